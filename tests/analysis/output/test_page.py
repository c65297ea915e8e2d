import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from pandas import DataFrame, concat, read_csv

from analysis.__main__ import main
from analysis.output.page import machines, proofs, summary
from analysis.records.record import parse
from jobs import checks
from jobs.ranks.training import alike
from tests.analysis.record_factory import check, id_of, record, run, store, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import grid, training, with_traces

CONTRACT = Path(__file__).parents[2] / "contract"
HOSTILE = "<script>alert('1')</script>\"&\u202e\x07\udcff"
SHOWN = "<script>alert('1')</script>\"&\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"


class Page(HTMLParser):
    """A page as a browser takes it apart: elements with their attributes, and text; tags must match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, text):
        if self._open and self._open[-1] != "style":
            self.texts.append(text)

    def all(self, name):
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def page_of(folder, *words):
    """Analyse a campaign folder; return its page."""
    assert main([str(folder), "--quiet", *map(str, words)]) == 0
    return Page(((Path(words[-1]) if words else folder) / "report.html").read_text(encoding="utf-8"))


def results_of(*made):
    """Return what a part of the page needs of these records."""
    return SimpleNamespace(found=SimpleNamespace(records=[parse(each) for each in made]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a campaign with Figs 4, 6, 7 and 8, verdicts, an invalid run and a failed cell."""
    folder = tmp_path_factory.mktemp("campaign")
    bad = run(2, 5e4, status="invalid", reason="cold: it was not", checks=[check("cold", passed=False)])
    made = [record([99.0, 100.0, 101.0]), unstable(record([50.0, bad, 90.0], threads=1))]
    made += [record([], threads=2) | {"status": "failed", "reason": "the node died"}]
    made += grid(("hdd",), (1, 2), size="smoke") + grid(("hdd",), (1,), batch_size=32, size="smoke")
    made += [
        with_traces(training([base, base + 1, base + 2], threads=16, storage="hdd", prefetch=ahead), folder)
        for ahead, base in ((1, 181.0), (0, 190.0))
    ]
    store(folder, *made)
    request = {"utc": "2026-11-21T08:00:00.000Z", "words": ["-m", "threads=1,2", "storage.root=/a b"], "cells": ["x"]}
    (folder / "campaign.json").write_text(json.dumps({"schema": 1, "requests": [request]}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def page(whole):
    return page_of(whole)


def test_the_page_is_whole_html_that_loads_nothing_and_runs_nothing(whole, page):
    names = {name for name, _ in page.elements}
    attributes = {key for _, each in page.elements for key in each}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "base", "image", "foreignobject"}
    assert not [key for key in attributes if key.startswith("on") or key in {"src", "srcset", "action"}]
    text = (whole / "report.html").read_text(encoding="utf-8")
    namespaces = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
    assert set(re.findall(r"""https?://[^"' <]+""", text)) <= {*namespaces}
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)


def test_ids_are_unique_and_every_reference_on_the_page_is_to_one_of_them(whole, page):
    ids = page.all("id")
    within = [link[1:] for name in ("href", "xlink:href") for link in page.all(name) if link.startswith("#")]
    within += re.findall(r"url\(#([^)]+)\)", " ".join([*page.all("style"), *page.all("clip-path")]))
    assert len(ids) == len(set(ids))
    assert len(within) > 100
    assert set(within) <= set(ids)


@pytest.mark.long
def test_every_link_to_a_file_leads_to_it(whole, page, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "deep"

    for home, each in ((whole, page), (elsewhere, page_of(whole, "--out", elsewhere))):
        found = [home / unquote(link) for link in each.all("href") if not link.startswith(("#", "data:"))]
        assert [path for path in found if not path.is_file()] == []
        assert {path.resolve() for path in found} >= {path.resolve() for path in whole.glob("records/*/record.json")}


def test_the_csv_of_a_figure_within_the_page_is_the_file_beside_it(whole, page):
    inside = {each["download"]: each["href"] for name, each in page.elements if name == "a" and "download" in each}
    files = {path.name: path.read_bytes() for path in (whole / "figures").glob("*.csv")}
    assert len(files) >= 4
    assert {name: base64.b64decode(link.partition(",")[2]) for name, link in inside.items()} == files


@pytest.mark.long
@pytest.mark.parametrize("processors", [1, 2])
def test_figures_are_the_same_bytes_however_many_processes_draw_them(campaign, monkeypatch, processors):
    main([str(campaign), "--quiet"])
    before = {path.name: path.read_bytes() for path in campaign.rglob("*") if path.suffix in {".png", ".pdf", ".html"}}
    monkeypatch.setattr("analysis.figures.kit.draw.WORTH_PROCESSES", 1)
    monkeypatch.setattr("analysis.processes.processors", lambda: processors)

    main([str(campaign), "--quiet"])

    assert before == {path.name: path.read_bytes() for path in campaign.rglob("*") if path.name in before}
    assert len(before) == 3


@pytest.mark.long
def test_a_long_csv_and_a_large_drawing_are_linked_and_not_carried(campaign, monkeypatch):
    monkeypatch.setattr("analysis.output.page.figures.MOST_CSV_BYTES", 10)
    monkeypatch.setattr("analysis.output.page.figures.MOST_SVG_BYTES", 10)

    page = page_of(campaign)

    assert "figures/fig4.csv" in page.all("href")
    assert not [link for link in page.all("href") if link.startswith("data:")]
    assert "svg" not in {name for name, _ in page.elements}
    assert "Too large for this page; it stands in figures/fig4.pdf." in page.text


def test_every_figure_is_drawn_with_its_title_caption_and_numbers_as_text(whole, page):
    drawn = [each for name, each in page.elements if name == "svg"]
    stems = {path.stem for path in (whole / "figures").glob("*.pdf")}
    assert {each["id"] for name, each in page.elements if name == "figure"} == stems
    assert len(drawn) == len(stems)
    assert "Fig. 4. Micro-benchmark: read, decode and resize" in [each["aria-label"] for each in drawn]
    assert "Median of valid runs (n = 2" in page.text
    # The title stands once as a heading; the drawing does not repeat it.
    assert page.text.count("Fig. 4. Micro-benchmark") == 1


def test_the_summary_counts_what_the_records_hold(whole, page):
    records = [json.loads(path.read_bytes()) for path in whole.glob("records/*/record.json")]
    measured = [each for one in records for each in one["runs"] if each["role"] == "measured"]
    valid = sum(each["status"] == "valid" for each in measured)
    assert f"{len(records)} cells: {len(records) - 1} done, 1 failed; 1 unstable." in page.text
    assert f"{len(measured)} measured runs: {valid} valid, 1 invalid." in page.text


def test_the_verdicts_are_counted_in_plain_words():
    counts = {"holds": 2, "differs": 1, "not measured": 3}
    told = DataFrame({"verdict": [verdict for verdict, n in counts.items() for _ in range(n)], "emulated": ""})
    by_model = DataFrame({"verdict": ["holds"] * 2, "emulated": "emulated (model): storage"})

    assert sorted(summary.counted_claims(told).split(", ")) == ["1 differs", "2 hold", "3 not measured"]
    assert summary.counted_claims(told[:0]) == "none"
    both = summary.counted_claims(concat([by_model, told[2:3], told[:1].assign(emulated="storage")]))
    assert both == "1 differs; emulated: 1 holds; emulated (model): 2 hold"


def test_the_question_is_answered_before_what_proves_it(page):
    parts = ["summary", "fig4", "medians", "verdicts", "figures", "proofs", "machines", "cells", "again"]

    assert [each for each in page.all("id") if each in parts] == parts


def test_verdicts_are_one_table_and_what_is_not_measured_is_one_line_that_opens(whole, page):
    rows = read_csv(whole / "tables" / "verdicts.csv", keep_default_na=False)
    claims = rows[rows["pair"] == ""]
    left = int((claims["verdict"] == "not measured").sum())
    labels = [each for _, each in page.elements if "data-label" in each and each["data-label"] == "verdict"]
    assert len(labels) == len(rows) - left
    assert 0 < left < len(claims)
    assert f"Not measured: {left}, each with the command that measures it" in page.text
    assert "with prefetch the runtime is equal whatever the storage and the threads" in page.text


@pytest.mark.usefixtures("unrendered")
def test_every_cell_tells_its_runs_with_each_check_and_its_message(tmp_path):
    told = check("quiet", passed=None) | {"message": "traffic of others unknown"}
    failed = check("cold", passed=False) | {"message": "99 % of the pages were in memory"}
    bad = run(2, 80.0, status="invalid", reason="cold: 99 %", checks=[failed])
    dead = {"run": 3, "role": "measured", "status": "failed", "reason": "killed by signal 9"}

    text = page_of(store(tmp_path, record([run(1, 123.0, checks=[told]), bad, dead]))).text

    assert "run 1, measured: valid , 123 images/s, 13.8 MB/s, 4.16 s ? quiet unverifiable: traffic of others" in text
    assert "\N{BALLOT X} cold failed: 99 % of the pages were in memory" in text
    assert "run 3, measured: failed : killed by signal 9" in text
    assert "1 measured run invalid: cold: 99 %" in text


@pytest.mark.usefixtures("unrendered")
def test_machine_software_and_storage_are_told_from_the_records(tmp_path):
    text = page_of(store(tmp_path, record([1.0]), record([2.0], threads=1), record([1.0], threads=2, host="n2"))).text

    assert "node1 Some Xeon 2 23 GiB 6.18.0 3.11.7 tensorflow 2.21.0, hydra-core 1.3.8 unknown 2" in text
    assert "local node1 / /dev/local ext4 rw,relatime" in text
    assert "n2 Some Xeon" in text


@pytest.mark.usefixtures("unrendered")
@pytest.mark.long
def test_size_and_emulated_parts_are_named_before_any_number(tmp_path):
    text = page_of(store(tmp_path, training([10.0, 10.1, 10.2], step_s=1.5, size="smoke"), record([1.0]))).text

    notices = text[: text.index("Median, min and max")]
    assert "Size smoke: a small version of the paper's experiment, for trying it out (1 of 2 cells)." in notices
    assert "Emulated: accelerator of 1.5 s a step, 1 of 2 cells." in notices


def test_the_commands_stand_as_they_can_be_pasted(page):
    assert "python -m campaign -m threads=1,2 'storage.root=/a b' (1 cells, first given 2026-11-21T08:00" in page.text


@pytest.mark.usefixtures("unrendered")
@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "told"), [(None, "There is no campaign.json"), ("[]", "cannot be read"), ("{", "cannot be read")]
)
def test_without_commands_the_page_says_so(campaign, content, told):
    if content:
        (campaign / "campaign.json").write_text(content, encoding="utf-8")

    assert told in page_of(campaign).text


def test_whatever_a_record_holds_is_text(tmp_path):
    made = record([run(1, 2.0, checks=[check(HOSTILE, passed=True) | {"message": HOSTILE}])], host=HOSTILE[:-3])
    made["provenance"] |= {"cpu": HOSTILE, "versions": {HOSTILE: HOSTILE}, "git": "unknown", "device": None}
    failed = record([], threads=8, storage="<b>&\"'") | {"status": "failed", "reason": HOSTILE}
    failed["cell"]["settings"]["dataset"][HOSTILE[:-3]] = HOSTILE[:-3]
    store(tmp_path, made, failed)
    (tmp_path / "campaign.json").write_text(
        json.dumps({"schema": 1, "requests": [{"words": [HOSTILE], "utc": HOSTILE, "cells": []}]}), encoding="utf-8"
    )

    page = page_of(tmp_path)

    assert "script" not in {name for name, _ in page.elements}
    assert "b" not in {name for name, _ in page.elements}
    assert page.text.count(SHOWN) > 7
    assert not re.search("[\x00-\x08\u202e]", page.text)


@pytest.mark.usefixtures("unrendered")
@pytest.mark.long
def test_a_folder_named_like_an_address_stays_a_file(tmp_path):
    made = record([1.0])
    folder = tmp_path / "javascript:alert(1) #?"
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps(made), encoding="utf-8")

    links = page_of(tmp_path).all("href")

    assert "javascript%3Aalert%281%29%20%23%3F/record.json" in links


@pytest.mark.long
def test_very_many_cells_leave_a_page_that_opens_and_says_where_the_rest_is(tmp_path, monkeypatch):
    for limit, value in {"MOST_CELLS": 3, "MOST_ROWS": 4, "MOST_FIGURES": 1, "MOST_LINES": 2}.items():
        for module in ("cells", "figures", "summary", "rerun"):
            monkeypatch.setattr(f"analysis.output.page.{module}.{limit}", value, raising=False)
    good = [record([99.0, 100.0, 101.0], seed=n // 4, threads=n % 4 + 1) for n in range(12)]
    bad = [unstable(record([1.0, 2.0, 3.0], seed=9)), record([], seed=10) | {"status": "failed", "reason": "no"}]

    page = page_of(store(tmp_path, *good, *bad))

    folded = [each["id"] for name, each in page.elements if name == "details" and "id" in each]
    assert len(folded) == 3
    assert {f"cell-{id_of(each)}" for each in bad} < set(folded)
    assert "3 of 14 cells are shown; all are in tables/medians.csv and tables/runs.csv" in page.text
    assert "4 of 14 cells are shown" in page.text
    assert "1 of 3 figures are shown; all are in the folder figures/ beside this page." in page.text
    assert "2 of 4 rows are shown; all are in figures/fig4" in page.text


def test_the_limits_that_were_in_force_stand_beside_what_they_proved():
    checks = [check("quiet", passed=True, limit={"other_device": 0.05, "other_cpu": cpu}) for cpu in (0.5, 0.75)]
    more = [check(rule, passed=True, limit=62_300_000) for rule in ("complete", "same_data")]
    runs = [run(1, 100.0, checks=[checks[0], *more]), run(2, 100.0, checks=[checks[1]])]
    made = record(runs) | {"checks": [check("spread", passed=False, limit=0.04)]}

    page = str(proofs.proofs(results_of(made)))

    cells = (re.findall("<t[hd][^>]*>(.*?)</t[hd]>", line) for line in page.split("<tr>"))
    rows = {row[0]: row[1:] for row in cells if row}
    assert rows["quiet"][:4] == ["2", "0", "0", "0.05, 0.5 to 0.75"]
    assert rows["complete"][:4] == rows["same_data"][:4] == ["1", "0", "0", "\N{EN DASH}"]
    assert rows["spread"][:4] == ["0", "1", "0", "0.04"]
    assert rows["complete"][4] == proofs.CLAIMS["complete"]


PROFILE = {
    "file": "profile-1.npz", "mode": "trace", "files": 512, "opens": 512, "reads": 1024, "bytes_read": 62_000_000,
    "read_mb_per_s": 28.0, "read_s": 0.77, "meta_s": 0.0076, "sequential": 0.5, "consecutive": 0.5,
    "read_sizes": [512, 0, 0, 205, 307, 0, 0, 0, 0, 0], "blind_spot": None,
}  # fmt: skip


@pytest.mark.usefixtures("unrendered")
def test_what_profiled_cells_called_is_told_and_of_others_there_is_no_part(tmp_path):
    runs = [run(n, 100.0, profile=PROFILE | {"reads": 1024 + n}) for n in (1, 2, 3)]
    profiled = record([*runs, run(4, 100.0, status="invalid", reason="quiet", profile=PROFILE | {"reads": 9})])
    profiled["cell"]["settings"]["profile"] = {"posix": "trace"}
    profiled["profile_cost"] = {"pairs": 3, "median": 0.012, "min": -0.002, "max": 0.03}

    page = page_of(store(tmp_path / "profiled", profiled))
    plain = page_of(store(tmp_path / "plain", record([100.0, 100.0, 100.0])))

    assert "POSIX calls" in page.text
    assert "local 4 trace 512 512 1026 62.0 28.0 0.770" in page.text
    assert "0.00760 50 % 50 % +1.2% (-0.2% to +3.0%, 3 pairs)" in page.text
    assert "local 4 trace 50 % 0 % 0 % 20 % 30 % 0 %" in page.text
    assert "POSIX calls" not in plain.text


def test_every_rule_that_a_record_can_have_has_its_claim_in_words():
    found = {each["rule"] for path in CONTRACT.rglob("record.json") for each in _checks(json.loads(path.read_text()))}
    rules = {name: rule for name, rule in vars(checks).items() if not name.startswith("_")}
    made = {name for name, rule in rules.items() if getattr(rule, "__annotations__", {}).get("return") == "Check"}
    made.remove("cold_at_server")  # the rule `cold` of an object store

    predicted = alike([{"steps": 1, "weights": "sum"}], [1], "", "each came once")
    assert len(found) >= 8
    assert {*found, *made, *predicted} - {*proofs.CLAIMS} == set()


def _checks(made):
    return [*made["checks"], *(each for one in made["runs"] for each in one.get("checks", ()))]


def test_the_storages_of_snapshots_are_listed_with_what_the_record_has_of_them():
    made = saved("optane to hdd", [100.0], sources={"fast": "dsk/nvme0n1", "slow": "dsk/sda"})
    fast = {"source": "/dev/nvme0n1p1", "fstype": "xfs", "options": "rw", "fsid": "1", "device": "259:1"}
    made["provenance"] |= {"target_filesystems": [fast, "unknown"], "emulated": {"checkpoint.slow": {"name": "hdd"}}}

    told = str(machines.machines(results_of(made, saved("ssd", [100.0]))))

    rows = [re.findall("<td[^>]*>(.*?)</td>", line) for line in told.split("<tr>")]
    none = "\N{EN DASH}"
    assert [row[0] for row in rows if row and row[0].startswith("ssd")] == ["ssd", "ssd, checkpoint target"]
    assert ["optane, fast side of the burst buffer", "node1", "root /optane", "/dev/nvme0n1p1", "xfs", "rw",
            "name nvme0n1", "1"] in rows  # fmt: skip
    assert ["hdd (emulated), slow side of the burst buffer", "node1", "root /hdd", none, none, none, "name sda",
            "1"] in rows  # fmt: skip


def test_a_quota_and_how_far_it_was_used_up_stand_beside_the_machine():
    shares = enumerate((0.1, 0.6), start=1)
    held = [run(n, 100.0, quota_cores=0.2, throttled_s=share * 5, elapsed_s=5.0) for n, share in shares]
    quotas = [record(held), record([run(1, 100.0)], threads=8, host="node2")]
    quotas[0]["provenance"]["quota_cores"] = 0.2

    told = str(machines.machines(results_of(*quotas)))

    assert "0.2 cores, used up for 60 % of a run at most" in told
    assert ">none<" in told


@pytest.mark.parametrize(
    ("git", "shown"),
    [
        ({"commit": "0123456789abcdef", "dirty": True}, "0123456789ab with changes"),
        ({"commit": "0123456789abcdef", "dirty": False}, "0123456789ab"),
        ({"commit": "", "dirty": True}, "\N{EN DASH}"),
        ("unknown", "\N{EN DASH}"),
    ],
)
def test_changes_are_told_of_a_commit_that_is_known(git, shown):
    made = saved("ssd", [100.0])
    made["provenance"]["git"] = git

    told = str(machines.machines(results_of(made)))

    rows = [re.findall("<td[^>]*>(.*?)</td>", line) for line in told.split("<tr>")]
    assert shown in [cell for row in rows if row for cell in row]
    assert told.count("with changes") == shown.count("with changes")
