"""Results of others: records of any shape and text are refused by key or are harmless, and the others are reported."""

import copy
import json
import os
import shutil
import statistics
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from analysis.__main__ import main
from analysis.cli import report
from analysis.figures.kit.save import Drawing
from analysis.records import read_records
from analysis.records.runs import OF_SNAPSHOT
from jobs.judging.judge import judge_record
from tests.analysis.baseline_records import baseline
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.record_factory import id_of, record, rows_of, store
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
    figure = value["cell"]["figure"]
    runs = judge_record(value, value["terms"])["runs"]
    rates = [each[figure] for each in runs if (each["role"], each["status"]) == ("measured", "valid")]
    return statistics.median(rates) if rates else None


@pytest.mark.long
@settings(max_examples=40, derandomize=True)
@given(st.lists(damaged(), min_size=1, max_size=3), st.integers(0, 3))
def test_whatever_a_record_holds_the_others_are_reported_and_no_number_comes_from_a_refused_one(
    tmp_path, monkeypatch, odd, number
):
    monkeypatch.setattr(report, "draw_all", undrawn)
    shutil.rmtree(tmp_path / "results", ignore_errors=True)
    honest = GOOD[number]
    folder = store(tmp_path / "results", *(each for each in GOOD if id_of(each) not in dict(odd) or each is honest))
    others = {path.parent.name for path in folder.glob("records/*/record.json")}
    for name, text in odd:
        place = folder / "records" / f"odd-{name}"
        place.mkdir(exist_ok=True)
        (place / "record.json").write_bytes(text)

    assert main([str(folder)]) in (0, 1)

    found = read_records.read_records(folder)
    assert others <= {each.cell for each in found.records} | {each.path.parent.name for each in found.skipped}
    rows = {row["cell"]: row for row in rows_of(folder / "tables" / "medians.csv")}
    assert len(rows) == len(found.records)
    for each in found.records:
        value = json.loads((each.folder / "record.json").read_text())
        if each.benchmark == "micro" and (median := median_of(value)) and each.cell in rows:
            assert float(rows[each.cell]["images_per_s"]) == pytest.approx(median)


@pytest.mark.usefixtures("unrendered")
def test_what_is_odd_and_honest_is_read(campaign):
    """Unreadable files count beyond the images asked for, clocks of two machines differ, nothing may be lost."""
    unread = record([100.0], storage="unread")
    unread["runs"][0] |= {
        "images": 0,
        "images_per_s": 0.0,
        "image_errors": 600,
        "unreadable": [{"file": "a", "error": "x"}] * 600,
    }
    drained = training([10.0] * 3, storage="drained")
    lines = [dict.fromkeys(OF_SNAPSHOT, 0.1) | {"drain_s": -0.002, "bytes": 8, "verified": True}]
    drained["runs"][0] |= {
        "checkpoints": lines,
        "checkpoints_asked": 1,
        "checkpoint_troubles": [],
        "targets": [{"role": "only", "source": None, "storage": "ssd", "bytes": 8, "written_bytes": None}],
    }
    nothing = record([100.0] * 3, storage="nothing")
    nothing["cell"] |= {"benchmark": "loss", "kind": "pipeline", "figure": "lost", "unit": "files", "better": "lower"}
    nothing["runs"] = [each | {"lost": 0} for each in nothing["runs"]]
    still = training([10.0] * 3, storage="still")
    layered = record([100.0] * 3, storage="overlay")
    layered["provenance"] |= {"device": "unknown", "mount": "unknown", "host": "unknown"}

    found = read_records.read_records(store(campaign, unread, drained, nothing, still, layered))

    assert (len(found.records), found.skipped) == (9, ())
    assert main([str(campaign), "--quiet"]) == 0


def test_text_of_others_in_a_figure_is_drawn_and_says_nothing_on_stderr(tmp_path, capfd, recwarn):
    text = "a\ud800 \x1b[2J\x00 \u4e2d\u6587 ".ljust(1000, "x")
    made = [record([100.0 * n, 101.0 * n, 102.0 * n], threads=n, host=text) for n in (1, 2)]
    for each in made:
        each["provenance"]["versions"] = {"tensorflow": text}
        each["campaign"]["size"] = text

    assert main([str(store(tmp_path / "results", *made)), "--quiet"]) == 0

    assert list(tmp_path.glob("results/figures/fig4*.pdf"))
    assert not [each for each in recwarn if "Glyph" in str(each.message)]
    assert "Glyph" not in capfd.readouterr().err


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is damaged: the path is no regular file"),
        (lambda path: path.write_text("9" * 10**4), "is damaged: the text is not valid JSON"),
    ],
)
def test_a_record_that_is_no_file_of_ours_is_named_and_never_waited_for(campaign, capsys, make, why):
    path = min(campaign.glob("records/*/record.json"))
    path.unlink()
    make(path)

    assert main([str(campaign), "--quiet"]) == 1

    assert f"warning: {path} {why}" in capsys.readouterr().err
    assert path.parent.name in (campaign / "report.html").read_text(encoding="utf-8")
