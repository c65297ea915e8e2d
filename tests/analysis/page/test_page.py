import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from pandas import DataFrame, concat, read_csv

from analysis.__main__ import main
from analysis.page import cells, charts, evidence, machines, part, summary
from analysis.page import report_page as whole_page
from analysis.records.read_records import SkippedRecord
from analysis.text import NONE
from tests.analysis.output.test_tables import EVERY, results_of, rows_of_page
from tests.analysis.record_factory import failed, id_of, record, run, scattered, store, unstable
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import grid, training


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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a campaign with Figs 4 and 6, verdicts, an invalid run and a failed cell."""
    folder = tmp_path_factory.mktemp("campaign")
    bad = run(2, 5e4, fails=["cold"])
    made = [record([99.0, 100.0, 101.0]), unstable(record([50.0, bad, 90.0], threads=1))]
    made += [record([failed(1, "the node died")], threads=2)]
    made += grid(("hdd",), (1, 2), size="smoke")
    store(folder, *made)
    request = {"utc": "2026-11-21T08:00:00.000Z", "words": ["-m", "threads=1,2", "storage.root=/a b"], "cells": ["x"]}
    (folder / "campaign.json").write_text(
        json.dumps({"schema": 1, "tool": "", "requests": [request]}), encoding="utf-8"
    )
    return folder


@pytest.fixture(scope="module")
def page(whole):
    return page_of(whole)


def test_a_requested_cell_without_a_record_is_said_at_the_top(page):
    assert "Not in this report: 1 of 1 requested cells have no record (not measured yet, or removed): x." in page.text


def test_ids_are_unique_and_every_reference_on_the_page_is_to_one_of_them(whole, page):
    ids = page.all("id")
    within = [link[1:] for name in ("href", "xlink:href") for link in page.all(name) if link.startswith("#")]
    within += re.findall(r"url\(#([^)]+)\)", " ".join([*page.all("style"), *page.all("clip-path")]))
    assert len(ids) == len(set(ids))
    assert len(within) > 50
    assert set(within) <= set(ids)


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


# Parts of the page, each against the records that it is made of.


def plain(markup):
    """Return the text of HTML, each blank once."""
    return " ".join(Page(f"<main>{markup}</main>").text.split())


def test_every_link_leads_to_its_file_wherever_the_page_lies(whole, page, tmp_path):
    found = [whole / unquote(link) for link in page.all("href") if not link.startswith(("#", "data:"))]

    assert [path for path in found if not path.is_file()] == []
    assert {path.resolve() for path in found} >= {path.resolve() for path in whole.glob("records/*/record.json")}
    elsewhere = cells.cell_sections(replace(results_of(*EVERY[:1], folder=tmp_path / "a"), home=tmp_path / "b" / "c"))
    assert 'href="../../a/record.json"' in elsewhere


@pytest.mark.parametrize(
    ("hosts", "words"),
    [(["n2", "n1"], "n1, n2"), ([""], "an unknown host"), (["d", "c", "b", "a"], "a, b, c and 1 more")],
)
def test_the_title_names_the_benchmarks_and_up_to_three_hosts(hosts, words):
    made = [record(scattered(9.0), threads=n, host=host) for n, host in enumerate(hosts, 1)]

    found = results_of(*made, training(scattered(7.0), host=hosts[0]))
    title = plain(whole_page.report_html(found, whole_page.parts_without_charts(found)).decode()).partition(" Claims")
    assert title[0].startswith(f"Campaign: alexnet, micro on {words} ")


def test_what_was_left_out_or_emulated_is_said_before_any_number():
    bounds = {"read_mb_per_s": 163.0, "write_iops": 80}
    made = [training(scattered(10.0), step_s=1.5, size="smoke"), record([1.0]), record([2.0], threads=2)]
    made[1]["provenance"]["emulated"] = {
        "storage": {"name": "hdd", **bounds},
        "checkpoint.fast": {"name": "hdd", **bounds},
    }
    made[2]["provenance"]["emulated"] = {"storage": {"name": "odd"}}
    skipped = [SkippedRecord(Path(f"{n}/record.json"), "is too large", "") for n in range(part.MOST_LINES + 1)]

    told = list(summary.reader_warnings(results_of(*made, skipped=skipped)))

    assert told[:2] == [
        ["Size smoke: a small version of the paper's experiment, for trying it out (1 of 3 cells)."],
        ["Emulated: accelerator, hdd, odd.", "accelerator of 1.5 s a step, 1 of 3 cells.",
         "hdd, at most 163 MB/s read, 80 writes/s (as storage, fast side of the burst buffer), 1 of 3 cells.",
         "odd, of unknown speed (as storage), 1 of 3 cells."],
    ]  # fmt: skip
    assert told[2][0] == "Not in this report: 201 records that cannot be read."
    assert told[2][1::200] == ["the record 0/record.json is too large.", "1 more records."]
    assert [list(each) for each in summary.reader_warnings(results_of(made[0], skipped=skipped[:1]))][1:] == [
        ["Emulated: accelerator of 1.5 s a step, 1 of 1 cells."],
        ["Not in this report: the record 0/record.json is too large."],
    ]  # fmt: skip


def test_the_summary_counts_cells_runs_and_verdicts_and_says_when():
    made = results_of(*EVERY[:5])
    stamps = ["2026-11-21T09:00:30.000Z", "2026-11-20T23:59:59.000Z"]
    made.runs["started_utc"] = [stamps[place % 2] for place in range(len(made.runs))]

    told = plain(summary.summary_lines(made))

    assert told.startswith(
        "5 cells: 3 done, 1 invalid, 1 unfinished; 1 unstable. 15 measured runs: 10 valid, 4 invalid, 1 failed."
    )
    assert told.endswith("Measured 2026-11-20 23:59 to 2026-11-21 09:00 UTC.")
    counts = {"holds": 2, "differs": 1, "not measured": 3}
    verdicts = DataFrame({"verdict": [verdict for verdict, n in counts.items() for _ in range(n)], "emulated": ""})
    by_model = DataFrame({"verdict": ["holds"] * 2, "emulated": "emulated (model): storage"})
    assert sorted(summary.counted_claims(verdicts).split(", ")) == ["1 differs", "2 hold", "3 not measured"]
    assert summary.counted_claims(verdicts[:0]) == "none"
    both = summary.counted_claims(concat([by_model, verdicts[2:3], verdicts[:1].assign(emulated="storage")]))
    assert both == "1 differs; emulated: 1 holds; emulated (model): 2 hold"


def test_every_cell_tells_its_runs_with_each_check_its_ranks_and_why_it_was_added(tmp_path):
    sides = [run(1, 80.0) | {"wall_s": 3.0 + n, "bytes_read": 7_000_000 * n} for n in range(3)]
    ranks = [{"rank": n, "figures": sides[n], "host": "h", "node": f"n{n}", "left_s": 0.002, "ended_s": 4.5}
             for n in (0, 1)] + [{"rank": 2, "figures": sides[2], "host": None}]  # fmt: skip
    added = {"until_spread": 0.05, "n": 3, "interval": None, "confidence": None}
    runs = [
        run(1, 123.0, unknown=["quiet"]), run(2, 80.0, fails=["cold"]),
        {"run": 3, "role": "measured", "status": "failed", "end": {"code": "killed", "number": 9}},
        run(4, 80.0, ranks=ranks, start_skew_s=0.002, added=added | {"width": 0.123}),
        run(5, 80.0, added=added | {"n": 2, "width": None}),
    ]  # fmt: skip
    made = record(runs)
    store(tmp_path, made)

    part = cells.cell_sections(results_of(made, folder=tmp_path / "records" / id_of(made)))

    text = plain(part)
    assert "run 0, warm-up: valid" in text
    assert "run 1, measured: valid , 123 images/s, 13.8 MB/s, 4.16 s" in text
    assert "? quiet unverifiable: others used the device to an unknown extent" in text
    assert "\N{BALLOT X} cold failed: 100.00% of the pages were in memory before the start" in text
    assert "run 3, measured: failed : killed by signal 9 (SIGKILL)" in text
    assert ", added for until_spread=0.0500: of 3 runs the interval of the median was 12.30 % wide" in text
    assert ", added for until_spread=0.0500: of 2 runs too few for an interval" in text
    assert "process: nice 0, scheduling other machine: cpus 2 of 2 cores local: mount ext4 rw,relatime," in text
    assert rows_of_page(part) == [
        ["rank", "node", "s", "MB", "began within ms", "ended after s"], ["0", "n0", "3.00", "0", "2.00", "4.50"],
        ["1", "n1", "4.00", "7.00", "2.00", "4.50"], ["2", NONE, "5.00", "14.0", NONE, NONE],
    ]  # fmt: skip


def test_each_command_that_was_given_stands_once_as_it_can_be_pasted(tmp_path):
    words = [["-m", "threads=1,2", "storage.root=/a b"], ["x=1"], ["-m", "threads=1,2", "storage.root=/a b"]]
    requests = [
        {"utc": f"2026-11-2{n}", "words": each, "cells": ["x"] * 1000 ** (n - 1)} for n, each in enumerate(words, 1)
    ]
    contents = {"": "The commands are unknown, because", "[]": "cannot be read: it ", "{": "cannot be read: it ",
                '{"schema": 1, "tool": "", "requests": []}': "campaign.json holds no commands."}  # fmt: skip
    for content, told in contents.items():
        if content:
            (tmp_path / "campaign.json").write_text(content)
        assert told in evidence.repeat_commands(tmp_path)
    (tmp_path / "campaign.json").write_text(
        json.dumps({"schema": 1, "tool": "", "requests": requests[:2] + requests[:1]})
    )

    assert plain(evidence.repeat_commands(tmp_path)) == (
        "python -m campaign -m threads=1,2 'storage.root=/a b' (1 cells, first given 2026-11-21)"
        " python -m campaign x=1 (1,000 cells, first given 2026-11-22)"
    )


def test_the_limits_that_were_in_force_stand_beside_what_they_proved():
    made = unstable(record([100.0, run(2, 100.0, unknown=["quiet"])])), record([100.0] * 2, threads=1)
    made[1]["terms"]["checks"]["other_cpu_max"] = 0.75

    rows = [row[:5] for row in rows_of_page(evidence.check_table(results_of(*made)))]

    assert rows == [
        ["check", "proved", "failed", "unverifiable", "limit"], ["cold", "4", "0", "0", "0.01"],
        ["device_bytes", "4", "0", "0", "0.99"], ["complete", "4", "0", "0", NONE],
        ["time_adds_up", "4", "0", "0", "0.01"], ["quiet", "3", "0", "1", "0.05, 0.5 to 0.75"],
        ["same_conditions", "4", "0", "0", "0"], ["spread", "1", "1", "0", "0.04"],
    ]  # fmt: skip


PROFILE = {
    "file": "profile-1.npz", "mode": "trace", "files": 512, "opens": 513, "reads": 1024, "bytes_read": 62_000_000,
    "read_mb_per_s": 28.0, "read_s": 0.77, "meta_s": 0.0076, "sequential": 0.6, "consecutive": 0.5,
    "read_sizes": [512, 0, 0, 205, 307, 0, 0, 0, 0, 0], "blind_spot": None,
}  # fmt: skip


def test_what_profiled_cells_called_is_the_median_of_the_runs_that_count():
    runs = [run(n, 100.0, profile=PROFILE | {"reads": each}) for n, each in enumerate((1030, 1900, 1026), 1)]
    made = record([*runs, run(7, 100.0, fails=["quiet"], profile=PROFILE | {"reads": 9})])
    made["cell"]["settings"]["profile"] = {"posix": "trace"}
    every = results_of(made, record([7.0], threads=1), record([run(1, 9.0, profile=PROFILE)], threads=2))

    found = charts.profiled_cells(every)
    amounts, other, sizes = (rows_of_page(charts.call_tables(found))[place] for place in (1, 2, 4))

    assert len(found) == 2
    written = [NONE] * 3
    numbers = ["512", "513", "1030", "62.0", "28.0", "0.770", *written, "0.00760", "60 %", "50 %"]
    assert amounts == ["local", "4", "trace", *numbers, id_of(made)]
    assert other[:6] == ["local", "2", "", "512", "513", "1024"]
    assert sizes[:9] == ["local", "4", "trace", "50 %", "0 %", "0 %", "20 %", "30 %", "0 %"]


def test_machines_and_storages_are_listed_once_with_what_the_records_have_of_them():
    made = saved("optane to hdd", [100.0], sources={"fast": "dsk/nvme0n1", "slow": "dsk/sda"})
    fast = {"source": "/dev/nvme0n1p1", "fstype": "xfs", "options": "rw", "fsid": "1", "device": "259:1"}
    made["provenance"] |= {"target_filesystems": [fast, "unknown"], "emulated": {"checkpoint.slow": {"name": "hdd"}}}
    shares = enumerate((0.1, 0.6), start=1)
    of_quota = {"quota_cores": 0.2, "throttled_periods": 1, "elapsed_s": 5.0}
    held = record([run(n, 100.0, throttled_s=share * 5, **of_quota) for n, share in shares], host="n2")
    held["provenance"] |= {"quota_cores": 0.2, "git": {"commit": "0123456789abcdef", "dirty": True}}

    rows = rows_of_page(machines.machine_tables(results_of(made, saved("ssd", [100.0]), saved("none", [99.0]), held)))

    fast_side = ["/dev/nvme0n1p1", "xfs", "rw"]
    machine, quota = ["Some Xeon", "2"], "0.2 cores, used up for 60 % of a run at most"
    software = ["23 GiB", "6.18.0", "3.11.7", "tensorflow 2.21.0, hydra-core 1.3.8"]
    assert rows[0][3:] == ["CPU quota", "memory", "kernel", "Python", "software", "commit", "cells"]
    assert ["n2", *machine, quota, *software, "0123456789ab with changes", "1"] in rows
    assert ["node1", *machine, "none", *software, "unknown", "3"] in rows
    disk = ["/dev/ssd", "ext4", "rw,relatime", "name ssd, model unknown, rotational false"]
    assert rows[-6:] == [
        ["storage", "host", "mount", "source", "file system", "options", "device", "cells"],
        ["ssd", "node1", "/", *disk, "3"],
        ["optane, fast side of the burst buffer", "node1", "root /optane", *fast_side, "name nvme0n1", "1"],
        ["hdd (emulated), slow side of the burst buffer", "node1", "root /hdd", *[NONE] * 3, "name sda", "1"],
        ["ssd, checkpoint target", "node1", "root /ssd", *[NONE] * 4, "1"],
        ["local", "n2", "/", "/dev/local", *disk[1:3], "name local, model unknown, rotational false", "1"],
    ]  # fmt: skip
