"""Results of others: records of any shape and text are refused by key or are harmless, and the others are reported."""

import copy
import csv
import json
import os
import re
import shutil
import statistics
from contextlib import contextmanager
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.__main__ import main
from analysis.cli import report
from analysis.figures.kit.draw import Drawing
from analysis.records import read
from analysis.records.contract import OF_SNAPSHOT, PARTS
from analysis.text.html import Markup
from jobs.system import untrusted
from tests.analysis.baseline_records import baseline
from tests.analysis.figures.test_sweep import toy
from tests.analysis.record_factory import check, id_of, record, rows_of, run, store
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import training

ESCAPE, FORMULA, TAG, LINES = (
    "\x1b[2J\x1b]0;x\x07",
    "=1+cmd|' /c calc'!A1",
    "<script>alert(1)</script>",
    "a\nb\r|`c`\ud800",
)
JUNK = (
    None, True, -1, 0.5, 2**70, 10**400, float("nan"), float("inf"), 1.7e308, "", "valid", "threads", "alexnet",
    "training", ESCAPE, FORMULA, TAG, LINES, "[/red]", "$\\frac{", [], [1, [2, {"a": 3}]], {}, {"name": 5},
)  # fmt: skip
NAMES = ("threads", "n_valid", "spread", "cell", "run", "series_key", "target", "emulated", "wall_s", "new", ESCAPE)
MERIT = {"kind": "training", "figure": "wall_s", "unit": "s", "better": "lower"}
GOOD = [
    *(record([100.0 * n, 101.0 * n, 102.0 * n], threads=n, storage=s) for n in (1, 2) for s in ("hdd", "ssd")),
    *(training([10.0, 10.1, 10.2], prefetch=n, storage="hdd") for n in (0, 1)),
    saved("hdd", [10.0, 11.0, 12.0]), saved("none", [9.0, 9.1, 9.2]), saved("optane to hdd", [9.5, 9.6, 9.7]),
    baseline([100.0, 101.0, 102.0], storage="hdd"), baseline([50.0, 51.0, 52.0], "write", storage="hdd"),
    *(toy([5.0, 6.0, 7.0], size=size) for size in (1, 2)),
]  # fmt: skip


def places(value):
    """Yield each object and list within a value, with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


@st.composite
def damaged(draw):
    """Return the bytes of a good record that was changed in one to three places."""
    made = copy.deepcopy(draw(st.sampled_from(GOOD)))
    name = id_of(made)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(made))))
        match draw(st.sampled_from(["delete", "replace", "replace", "add", "double"])):
            case "delete":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(JUNK)))
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        if not made:
            break
    text = bytearray(json.dumps(made).encode())
    if draw(st.integers(0, 9)) == 0:
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return name, bytes(text)


@contextmanager
def undrawn(specs, _within_page):
    yield (Drawing({}, Markup()) for _ in specs)


def median_of(value):
    """Return the median of the figure of merit of a record as JSON, None without one."""
    figure = value["cell"].get("figure", "images_per_s")
    rates = [each[figure] for each in value["runs"] if (each["role"], each["status"]) == ("measured", "valid")]
    return statistics.median(rates) if rates else None


@pytest.mark.long
@settings(max_examples=40, derandomize=True)
@given(st.lists(damaged(), min_size=1, max_size=3), st.integers(0, 3))
def test_whatever_a_record_holds_the_others_are_reported_and_no_number_comes_from_a_refused_one(
    tmp_path, monkeypatch, odd, number
):
    monkeypatch.setattr(report, "drawings", undrawn)
    shutil.rmtree(tmp_path / "results", ignore_errors=True)
    honest = GOOD[number]
    folder = store(tmp_path / "results", *(each for each in GOOD if id_of(each) not in dict(odd) or each is honest))
    others = {path.parent.name for path in folder.glob("records/*/record.json")}
    for name, text in odd:
        place = folder / "records" / f"odd-{name}"
        place.mkdir(exist_ok=True)
        (place / "record.json").write_bytes(text)

    assert main([str(folder)]) in (0, 1)

    found = read.read(folder)
    assert others <= {each.cell for each in found.records} | {each.path.parent.name for each in found.skipped}
    rows = {row["cell"]: row for row in rows_of(folder / "tables" / "medians.csv")}
    assert len(rows) == len(found.records)
    for each in found.records:
        value = json.loads((each.folder / "record.json").read_text())
        if each.benchmark == "micro" and (median := median_of(value)) and each.cell in rows:
            assert float(rows[each.cell]["images_per_s"]) == pytest.approx(median)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"run": 1}, "2 of its runs have the number 1"),
        ({"images_per_s": 1000.0}, "runs[2].images_per_s is 1000, and images / wall_s is 512 / 5.12"),
        ({"read_mb_per_s": 20.0}, "runs[2].read_mb_per_s is 20"),
        ({"images_per_s": -100.0}, "has -100.0 at runs[2].images_per_s, where a number from 0"),
        ({"images_per_s": 100.0 * 1.0011}, "runs[2].images_per_s is 100.11, and images / wall_s"),
        ({"images": 600, "images_per_s": None}, "runs[2].images is 600, and images_asked 512"),
        ({"images": 500, "images_per_s": 500 / 5.12}, "runs[2] is complete, with 500 of 512 images"),
        ({"images": 0, "images_per_s": 0.0}, "runs[2] is valid, and its images_per_s is 0.0"),
        ({"checks": [check("cold", passed=False)]}, "runs[2] is valid, and its check cold failed"),
        ({"checks": [{**check("cold", passed=True, limit=0.01), "observed": 0.5}]}, "passed with 0.5, and its limit"),
        ({"checks": [{**check("warm", passed=True, limit=0.9), "observed": 0.5}]}, "runs[2].checks[0], warm, passed"),
        ({"checks": [check("time_adds_up", passed=True, limit=0.01)], "load_s": 0.5}, "make up 0.51 s"),
        ({"image_errors": 3}, "runs[2] is complete, with 3 image_errors"),
        ({"checks": [check("time_adds_up", passed=True, limit=0.01)], "load_s": None}, "and its load_s is None"),
        ({"checks": [check("cold", passed=True)] * 2}, "runs[2].checks has 2 of the rule cold"),
        ({"status": "fine"}, "runs[2].status, where one of running, valid, invalid, failed"),
        ({"wall_s": 10**400}, "at runs[2].wall_s"),
    ],
)
def test_a_run_that_cannot_be_true_sets_its_record_aside_by_key(campaign, change, why):
    odd = record([100.0] * 3, storage="odd")
    odd["runs"][2] |= change

    found = read.read(store(campaign, odd))

    assert len(found.records) == 4
    assert why in found.skipped[0].why


@pytest.mark.parametrize(("gap_s", "skipped"), [(0.0049, 0), (0.0051, 1)])
def test_a_time_slice_between_the_parts_of_a_short_run_contradicts_nothing(campaign, gap_s, skipped):
    short = record([5120.0] * 3, storage="short")
    parts = dict.fromkeys(PARTS, 0.0) | {"load_s": 0.1 - gap_s}
    short["runs"][2] |= {"checks": [check("time_adds_up", passed=True, limit=0.01)], **parts}

    assert short["runs"][2]["wall_s"] == pytest.approx(0.1)
    assert len(read.read(store(campaign, short)).skipped) == skipped


@pytest.mark.usefixtures("unrendered")
def test_what_is_odd_and_honest_is_read(campaign):
    """Unreadable files count beyond the images asked for, clocks of two machines differ, nothing may be lost."""
    unread = record([100.0], storage="unread") | {"status": "invalid"}
    unread["runs"][0] |= {"status": "invalid", "images": 0, "images_per_s": 0.0, "image_errors": 600}
    drained = training([10.0] * 3, storage="drained")
    drained["runs"][0]["checkpoints"] = [dict.fromkeys(OF_SNAPSHOT, 0.1) | {"drain_s": -0.002, "bytes": 8}]
    nothing = record([100.0] * 3, storage="nothing")
    nothing["cell"] |= {"benchmark": "loss", "kind": "pipeline", "figure": "lost", "unit": "files", "better": "lower"}
    nothing["runs"] = [each | {"lost": 0} for each in nothing["runs"]]
    still = training([10.0] * 3, storage="still", images_per_s=0)
    layered = record([100.0] * 3, storage="overlay")
    layered["provenance"] |= {"device": "unknown", "mount": "unknown", "host": "unknown"}

    found = read.read(store(campaign, unread, drained, nothing, still, layered))

    assert (len(found.records), found.skipped) == (9, ())
    assert main([str(campaign), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (MERIT | {"kind": "pipeline"}, "cell.kind is pipeline, and alexnet is of the kind training"),
        ({"kind": "training"}, "of kind, figure, unit, better cell has kind alone"),
        ({"settings": {"threads": 1, "batch_size": 1}}, "it has no cell.settings.prefetch"),
        ({"settings": {"threads": "8"}}, "has '8' at cell.settings.threads"),
        ({"settings": {ESCAPE: 8}}, "at cell.settings[0], where printable text belongs"),
        ({"benchmark": LINES}, "at cell.benchmark, where printable text belongs"),
        ({"benchmark": "x" * 1001}, "at cell.benchmark, where text of at most 1000 letters belongs"),
    ],
)
def test_a_cell_that_cannot_be_true_is_refused_by_key(campaign, change, why):
    odd = training([10.0] * 3)
    odd["cell"] |= change

    assert why in read.read(store(campaign, odd)).skipped[0].why


# Of 100, 100 and 130 the median is 100 and the mean 110; a thousandth may be lost to rounding.
@pytest.mark.parametrize(
    ("status", "observed", "refused"), [("done", 0.298, True), ("done", 0.2991, False), ("running", 0.298, False)]
)
def test_a_passed_spread_is_held_against_the_runs_of_a_record_that_is_over(campaign, status, observed, refused):
    odd = record([100.0, 100.0, 130.0], storage="odd") | {"status": status}
    odd["checks"] = [check("spread", passed=True, limit=0.3) | {"observed": observed}]

    told = [each.why for each in read.read(store(campaign, odd)).skipped]

    why = f"its check spread passed with {observed}, and (max - min) / median is (130 - 100) / 100"
    assert told == ([f"contradicts itself: {why}"] if refused else [])


@pytest.mark.parametrize("name", ["figures", "tables"])
@pytest.mark.parametrize(
    ("make", "why"), [(lambda path: path.symlink_to(path.parents[1]), "a link"), (os.mkfifo, "no")]
)
def test_nothing_is_written_where_a_folder_of_results_is_none(campaign, capsys, name, make, why):
    make(campaign / name)

    assert main([str(campaign), "--quiet"]) == 2

    err = capsys.readouterr().err
    assert f"{campaign / name} is {why}" in err
    assert "--out DIR" in err


def test_text_of_others_in_a_figure_is_drawn_and_says_nothing_on_stderr(tmp_path, capfd, recwarn):
    text = "a\ud800 \x1b[2J\x00 \u4e2d\u6587 ".ljust(1000, "x")
    made = [record([100.0 * n, 101.0 * n, 102.0 * n], threads=n, host=text) for n in (1, 2)]
    for each in made:
        each["provenance"]["versions"] = {"tensorflow": text}
        each["campaign"] = {"size": text}

    assert main([str(store(tmp_path / "results", *made)), "--quiet"]) == 0

    assert list(tmp_path.glob("results/figures/fig4*.pdf"))
    assert not [each for each in recwarn if "Glyph" in str(each.message)]
    assert "Glyph" not in capfd.readouterr().err


MOST = 1 << 16  # in place of what takes seconds to read


def sparse(path):
    with path.open("wb") as file:
        file.truncate(MOST + 1)


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is no regular file"),
        (os.mkdir, "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.symlink_to("/proc/self/stat"), "is no regular file"),
        (sparse, f"has more than {MOST} bytes"),
        (lambda path: path.write_text('{"schema": ' + "[" * 10**4), "is nested too deep"),
        (lambda path: path.write_text("9" * 10**4), "is not whole JSON"),
        (lambda path: path.write_text('{"schema": 1, "runs": 1e999}'), "lacks the key"),
    ],
)
def test_a_record_that_is_no_file_of_ours_is_named_and_never_waited_for(campaign, capsys, monkeypatch, make, why):
    monkeypatch.setattr(untrusted, "MOST_BYTES_OF_JSON", MOST)
    path = min(campaign.glob("records/*/record.json"))
    path.unlink()
    make(path)

    assert main([str(campaign), "--quiet"]) == 1

    assert f"warning: {path} {why}" in capsys.readouterr().err
    assert path.parent.name in (campaign / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("to", ["itself", "elsewhere"])
def test_a_folder_that_is_a_link_is_named_and_costs_that_entry_alone(campaign, tmp_path, to):
    elsewhere = store(tmp_path / "elsewhere", record([1.0]))
    (campaign / "records" / "itself").symlink_to(to if to == "itself" else next(elsewhere.glob("records/*")))

    found = read.read(campaign)

    assert (len(found.records), [each.path.parent.name for each in found.skipped]) == (4, ["itself"])
    assert found.skipped[0].why == "lies in a folder that is a link"


@pytest.mark.usefixtures("unrendered")
def test_text_of_others_acts_neither_on_a_terminal_nor_in_a_spreadsheet_nor_in_a_page(tmp_path, capsys):
    records = []
    for number, text in enumerate((ESCAPE, FORMULA, TAG, LINES, "@x", "\t=1", "[/red]", "$\\frac{")):
        name = text if text.isprintable() else "odd"
        odd = record([100.0, 101.0, run(3, 1.0, status="failed", reason=text)], storage=name, threads=2, host=text)
        odd["cell"] |= {"id": f"{name}-{number}"}
        odd["cell"]["settings"]["dataset"] |= {"name": name, name: name}
        records.append(odd)
    folder = store(tmp_path / "results", record([1.0]))
    for number in range(len(records)):
        (folder / "records" / str(number)).mkdir()
    for path, odd in zip(sorted(folder.glob("records/?")), records, strict=True):
        (path / "record.json").write_text(json.dumps(odd), encoding="utf-8")
    broken = folder / "records" / "broken\x1b[2J"
    broken.mkdir()
    (broken / "record.json").write_text(json.dumps(ESCAPE), encoding="utf-8")

    main([str(folder), "--junit", str(tmp_path / "junit.xml")])
    main(["verdicts", str(folder)])
    main(["compare", str(folder), str(store(tmp_path / "other", record([2.0]))), "--out", str(tmp_path / "compared")])

    out, err = capsys.readouterr()
    assert all(letter.isprintable() or letter in "\n\N{NO-BREAK SPACE}" for letter in out + err)
    assert "\\x1b[2J" in out
    assert "broken\\x1b[2J" in err
    for path in [*folder.glob("tables/*.csv"), *folder.glob("figures/*.csv"), tmp_path / "compared" / "comparison.csv"]:
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if re.match(r"[=@\t\r]|[+-](?![0-9.])", cell)]
        assert not [cell for cell in cells if re.search("[\x00-\x08\x1b\x7f-\x9f]", cell)]
    for path in [*folder.glob("tables/*.md"), tmp_path / "compared" / "comparison.md", folder / "report.html"]:
        assert not re.search("<script>|[\x00-\x08\x1b]", path.read_text(encoding="utf-8"))
    ET.parse(tmp_path / "junit.xml")  # noqa: S314 - ours


@pytest.mark.parametrize("end", list("\n\r\v\f\x85\u2028"))
def test_a_line_break_in_a_name_or_a_reason_makes_no_line(end, tmp_path, capsys):
    home = tmp_path / f"x{end}FORGED"
    home.mkdir()
    odd = run(1, 1.0, status="invalid", reason=f"x{end}FORGED", checks=[check("cold", passed=False)])
    store(home, record([100.0, 101.0, 102.0]), record([odd, 100.0, 101.0, 102.0], threads=4))
    (home / "records" / "odd").mkdir()
    (home / "records" / "odd" / "record.json").write_text("{")

    assert main([str(home)]) == 1
    assert main([str(home / "nothing")]) == 2

    said = capsys.readouterr()
    assert "FORGED" in said.out
    assert "FORGED" in said.err
    lines = (said.out + said.err + (home / "tables" / "medians.md").read_text()).splitlines()
    assert not [line for line in lines if line.strip().startswith("FORGED")]
