"""Verdicts are made when records are read, by whoever reads them; only a worker writes a record.

The cache of what `status` has found: it saves the reading, and never changes what is shown.
"""

import ast
import itertools
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.cells import cell_plan, record, verdicts
from campaign.cells.cell import make_cell
from campaign.cells.folder import open_existing, open_or_create
from campaign.cells.verdicts import FILE, Summaries, Verdicts
from campaign.cluster.survey import cell_states
from campaign.errors import EnvironmentFaultError
from jobs.benchmarks import registry
from jobs.judging import judge, peaks
from jobs.model.record import terms_of_conduct
from jobs.system import files
from tests.campaign.fake_template import COLD, TERMS, failed, figures, invalid
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import LATER, asked_again, compose, walk, work_list

ROOT = Path(__file__).parents[3]
BUSY = {"other_cpu": 1.0}


@pytest.fixture
def fronts(cells):
    """One cell, and how two fronts conduct it: by default limits, and by such as let runs count beside others."""
    (cell, *_), conduct = cells
    strict = {**conduct, "wait_quiet_s": None}
    return cell, strict, {**strict, "checks": {**conduct["checks"], "other_cpu_max": 2.0, "spread_max": 0.5}}


@pytest.fixture
def asks(folder, fronts):
    """A function: let a front bring the cell to its end; returns its plan before, how many runs, and its verdict."""
    number = itertools.count()

    def ask(conduct, *answers):
        (entry,) = cell_plan.make_plan(fronts[:1], conduct, folder).entries
        token = f"ask{next(number)}"
        work = asked_again(work_list(folder, fronts[:1], conduct), token=token, submitted_utc=f"{LATER}{token}")
        template, (judged,) = walk(folder, work, *answers) if entry.missing else (None, read(folder, conduct))
        return entry, len(template.asked) if template else 0, judged

    return ask


def read(folder, conduct):
    verdicts = Verdicts(folder, terms_of_conduct(conduct))
    return [verdicts.read(path)[0] for path in sorted(folder.records.glob("*/record.json"))]


@pytest.mark.usefixtures("cpus")
def test_a_cell_whose_job_gave_up_before_its_last_runs_is_not_done_though_enough_runs_are_valid(folder, fronts, asks):
    cell, strict, _ = fronts
    conduct = {**strict, "runs": 11}

    _, many, gave_up = asks(conduct, *[figures()] * 6, failed(), failed())
    found = cell_states(folder, {"requests": [{"cells": [cell.id]}]})[cell.id]
    entry, more, whole = asks(conduct, *[figures()] * 6)

    assert (many, gave_up["status"]) == (8, "failed")
    assert gave_up["reason"].startswith("5 of 7 measured runs valid, 5 missing; killed by signal 9")
    assert (found["status"], found["reason"]) == ("failed", gave_up["reason"])
    assert (entry.state, entry.missing, more) == ("failed", 5, 6)
    assert (whole["status"], whole["reason"]) == ("done", None)


@pytest.mark.usefixtures("cpus")
def test_two_fronts_with_other_limits_disturb_neither_each_other_nor_the_record(folder, fronts, asks):
    cell, strict, loose = fronts
    _, many, by_loose = asks(loose, *(figures(rate, **BUSY) for rate in (400, 400, 460, 400, 400, 400)))
    assert (many, by_loose["status"]) == (6, "done")
    entry, many, _ = asks(strict)
    assert (entry.state, entry.missing, many) == ("invalid", 5, 6)
    before = folder.record(cell.id).read_bytes()

    told = [asks(conduct) for conduct in (loose, strict) * 2]

    assert [(entry.state, entry.missing, many) for entry, many, _ in told] == [("done", 0, 0)] * 4
    for (_, _, judged), (valid, spread, looser) in zip(told, [(10, True, 2), (5, True, 0)] * 2, strict=True):
        runs = [run["status"] for run in judged["runs"] if run["role"] == "measured"]
        assert (runs.count("valid"), len(runs)) == (valid, 10)
        assert (judged["checks"][0]["passed"], len(judged.get("looser_checks", ()))) == (spread, looser)
    assert folder.record(cell.id).read_bytes() == before
    assert b'"checks": [' not in before
    assert {run["status"] for run in json.loads(before)["runs"]} == {"ended"}


@pytest.mark.usefixtures("cpus")
def test_a_worker_that_was_killed_between_two_runs_is_read_by_whatever_limits_are_asked_for(folder, fronts, asks):
    cell, strict, loose = fronts
    work = work_list(folder, [cell], loose)
    with pytest.raises(KeyboardInterrupt):
        walk(folder, work, *[figures(**BUSY)] * 3, KeyboardInterrupt())
    before = folder.record(cell.id).read_bytes()

    entries = [cell_plan.make_plan([cell], conduct, folder).entries[0] for conduct in (strict, loose)]

    assert [(entry.state, entry.missing, entry.disturbed) for entry in entries] == [
        ("running", 5, "checks.other_cpu_max=1"), ("running", 3, "")
    ]  # fmt: skip
    assert folder.record(cell.id).read_bytes() == before
    _, many, judged = asks(loose, *[figures(**BUSY)] * 4)
    assert (many, judged["status"], [run["role"] for run in judged["runs"]].count("measured")) == (4, "done", 6)


def test_of_a_cell_the_last_request_that_names_it_says_by_what_it_is_judged_else_its_worker(folder, cells):
    cell, other, third = cells[0]
    loose = {**TERMS, "checks": {**TERMS["checks"], "resident_max": 1.0}}
    for each, terms in ((cell, loose), (other, TERMS), (third, loose)):
        leave_record(folder, each, *[invalid()] * 5, status="invalid", terms=terms)
    requests = [
        {"cells": [cell.id], "terms": loose}, {"cells": [cell.id, other.id], "terms": TERMS},
        {"cells": [other.id], "terms": loose},
    ]  # fmt: skip

    found = cell_states(folder, {"requests": requests})

    assert [found[each.id]["status"] for each in (cell, other, third)] == ["invalid", "done", "done"]
    assert COLD in found[cell.id]["reason"]


def test_a_baseline_that_a_front_does_not_name_is_judged_by_the_last_request_that_does(folder, cells):
    """So the front finds the same peaks as `status` does, and as the analysis."""
    (cell, *_), conduct = cells
    baseline = make_cell(compose("benchmark=baseline", "threads=1"))
    loose = {**TERMS, "checks": {**TERMS["checks"], "other_cpu_max": 1000.0}}
    leave_record(
        folder, baseline, *[{**figures(), "read_mb_per_s": 90.0, "other_cpu": 5.0}] * 6, status="done", terms=loose
    )

    of_front, of_status = (
        [each["cell"]["id"] for each in verdicts.peaks.baselines]
        for verdicts in (cell_plan.make_plan([cell], conduct, folder).verdicts, Verdicts(folder))
    )
    named = Verdicts(folder, TERMS, {baseline.id})
    asked_since = Verdicts(folder, requests=[{"cells": [baseline.id], "terms": TERMS}])

    assert of_front == of_status == [baseline.id]
    assert named.peaks.baselines == asked_since.peaks.baselines == []


def test_a_record_without_figures_is_damaged_and_disturbs_no_other(folder, cells):
    cell, other, _ = cells[0]
    leave_record(folder, cell, {**figures(), "wall_s": "x"})
    leave_record(folder, other, status="done")

    verdicts = Verdicts(folder)

    assert verdicts.read(folder.record(cell.id))[0] is None
    assert "record.json is damaged" in verdicts.read(folder.record(cell.id))[1]
    assert verdicts.read(folder.record(other.id))[0]["status"] == "done"


def test_a_record_that_contradicts_itself_counts_for_nothing_and_says_where(folder, cells):
    cell = cells[0][0]
    record = leave_record(folder, cell, status="done")
    record["runs"][2]["images_per_s"] *= 2
    folder.record(cell.id).write_text(json.dumps(record))

    judged, fault = Verdicts(folder).read(folder.record(cell.id))

    assert judged is None
    assert "record.json is damaged: it contradicts itself: runs[2].images_per_s is 800, and images / wall_s is" in fault
    assert cell_plan.make_plan([cell], cells[1], folder).entries[0].state == "damaged"


def test_a_baseline_that_contradicts_itself_is_no_peak(folder):
    baseline = make_cell(compose("benchmark=baseline", "threads=1"))
    record = leave_record(folder, baseline, *[figures()] * 6, status="done")
    assert [each["cell"]["id"] for each in Verdicts(folder).peaks.baselines] == [baseline.id]

    record["runs"][0]["read_mb_per_s"] *= 2
    folder.record(baseline.id).write_text(json.dumps(record))

    assert Verdicts(folder).peaks.baselines == []


def test_the_ids_of_cells_that_measure_a_storage_alone_begin_alike():
    alone = [name for name, benchmark in registry.benchmarks().items() if benchmark.kind == peaks.KIND]

    assert alone == [peaks.BENCHMARK]
    assert peaks.is_baseline_id(make_cell(compose("benchmark=baseline")).id)
    assert not peaks.is_baseline_id(make_cell(compose()).id)


def judged_with(record, **terms):
    return judge.judge_record(record, {**TERMS, **terms})


def test_terms_that_ask_for_no_run_make_no_cell_done_and_a_run_that_counts_is_not_denied(folder, cells):
    record = leave_record(folder, cells[0][0], *[{"status": "valid"}] * 2, status="ended")

    lacking, empty = judged_with(record, runs=6), judged_with({**record, "runs": []}, warmup_runs=20)

    assert (lacking["status"], lacking["reason"]) == (
        "unfinished",
        "2 of 2 measured runs valid, 3 needed; 3 more to be measured",
    )
    assert (empty["status"], empty["reason"]) == (
        "unfinished",
        "0 of 0 measured runs valid, 1 needed; 1 more to be measured",
    )


def test_limits_that_are_not_named_are_the_defaults(folder, cells):
    record = leave_record(folder, cells[0][0], status="done")

    judged = judged_with(record, checks={"other_cpu_max": 5.0})

    assert judged["status"] == "done"
    assert judged["looser_checks"] == ["checks.other_cpu_max=5 (the site's: 0.5)"]


@pytest.mark.parametrize("cell", ["../x", "a/b", "", ".", "\ud800"])
def test_a_request_names_cells_by_what_may_be_the_name_of_a_folder(folder, cell):
    manifest = {"schema": 1, "tool": "", "requests": [{"cells": [cell]}]}
    folder.marker.write_text(json.dumps(manifest))

    with pytest.raises(EnvironmentFaultError, match=r"campaign.json is damaged: requests\[0\].cells\[0\] is"):
        open_existing(folder.root)


def test_only_the_worker_writes_a_record():
    writers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "campaign").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("record.write_record", "cells.record.write_record")
    }

    assert writers == {"campaign/worker/__main__.py"}


LOOSE = {**TERMS, "min_valid_runs": 1, "checks": {**TERMS["checks"], "spread_max": 0.9, "other_cpu_max": 9.0}}
PLACE = {"host": "n1", "conditions": {"process": {}, "machine": {}, "storages": {}}}


@pytest.fixture(scope="module")
def named():
    """Two cells, and the baseline that bounds the first one."""
    baseline = ["benchmark=baseline", "benchmark.access=random_read", "threads=1"]
    return [make_cell(compose(*words)) for words in (["threads=1"], ["threads=2"], baseline)]


@pytest.fixture
def eager(monkeypatch):
    """Remember every record at once, however few there are and however new they are."""
    monkeypatch.setattr(verdicts, "FEWEST_NEW", 1)
    monkeypatch.setattr(verdicts, "_SETTLED_NS", -(10**12))
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails here


def leave(folder, cell, rate=200):
    """Leave a record with five runs of so many MB/s; at 300 others were busy, and 10 is less than honest ones read."""
    run = {**figures(), "read_mb_per_s": rate, "other_cpu": 2.0 if rate == 300 else 0.0}
    leave_record(folder, cell, *[run] * 5, status="done", provenance=PLACE, data={"checksum": "c"})


def computed(folder, requests):
    """What is shown where nothing is remembered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Summaries, "cached_summary", lambda *_: None)
        patch.setattr(Summaries, "save", lambda _: None)
        return cell_states(folder, {"requests": requests})


def change(folder, cell, requests, what, rate):
    """Make one of the changes that a campaign, or somebody, may make between two looks."""
    if what == "measure":
        leave(folder, cell, rate)
    elif what == "ask":
        requests.append({"cells": [cell.id], "terms": LOOSE if rate == 300 else TERMS})
    elif what == "forget":
        requests.clear()
    elif what == "remove":
        folder.record(cell.id).unlink(missing_ok=True)
    elif what == "spoil" and folder.cell(cell.id).is_dir():
        folder.record(cell.id).write_text("{")
    elif what == "link" and folder.cell(cell.id).is_dir() and not folder.cell(cell.id).is_symlink():
        elsewhere = folder.cell(cell.id).rename(folder.root / f"elsewhere-{len([*folder.root.iterdir()])}")
        folder.cell(cell.id).symlink_to(elsewhere)
    elif what == "unlink" and folder.cell(cell.id).is_symlink():
        folder.cell(cell.id).unlink()
    elif what == "cut" and (folder.root / FILE).exists():
        (folder.root / FILE).write_bytes((folder.root / FILE).read_bytes()[:rate])


_CHANGES = st.tuples(
    st.sampled_from(["measure", "measure", "measure", "ask", "forget", "remove", "spoil", "link", "unlink", "cut"]),
    st.integers(0, 2),
    st.sampled_from([10, 200, 300]),
)


@pytest.mark.usefixtures("eager")
@given(changes=st.lists(_CHANGES, min_size=1, max_size=8))
def test_what_is_remembered_is_what_would_be_found_whatever_changed(named, changes):
    with tempfile.TemporaryDirectory() as place:
        folder, requests = open_or_create(Path(place, "results"))[0], []
        for cell, rate in zip(named, (200, 300, 200), strict=True):
            leave(folder, cell, rate)
        for what, which, rate in changes:
            shown = cell_states(folder, {"requests": requests})
            assert shown == cell_states(folder, {"requests": requests}) == computed(folder, requests)
            try:
                change(folder, named[which], requests, what, rate)
            except OSError:  # to measure behind a link is refused
                assert folder.cell(named[which].id).is_symlink()
        assert cell_states(folder, {"requests": requests}) == computed(folder, requests)


@pytest.mark.usefixtures("eager")
def test_a_record_that_is_as_it_was_is_not_read_again_and_one_that_is_not_alone_is(folder, named, monkeypatch):
    for cell in named:
        leave(folder, cell)
    first = cell_states(folder, {"requests": []})
    read, real = [], record.read_record
    monkeypatch.setattr(record, "read_record", lambda path: (read.append(path.parent.name), real(path))[1])

    assert (cell_states(folder, {"requests": []}), read) == (first, [])
    leave(folder, named[1])
    assert (cell_states(folder, {"requests": []}), read) == (
        first,
        [named[1].id, named[2].id],
    )  # it, and what judges it
    del read[:]
    leave(folder, named[2])  # the baseline: all others are judged by it
    assert cell_states(folder, {"requests": []}) == first
    assert set(read) == {cell.id for cell in named}


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("changed", "then"),
    [(("ask", 1, 300), ["done", "done", "done"]), (("measure", 2, 10), ["invalid", "invalid", "done"])],
)
def test_other_terms_and_another_baseline_change_what_is_shown_of_a_record_that_is_as_it_was(
    folder, named, changed, then
):
    requests, (what, which, rate) = [], changed
    for cell, first in zip(named, (200, 300, 200), strict=True):
        leave(folder, cell, first)
    before = cell_states(folder, {"requests": requests})
    change(folder, named[which], requests, what, rate)

    after = cell_states(folder, {"requests": requests})

    assert [before[cell.id]["status"] for cell in named] == ["done", "invalid", "done"]
    assert [after[cell.id]["status"] for cell in named] == then


@pytest.mark.parametrize(("worth", "settled_ns"), [(4, -(10**12)), (1, 10**12)])
def test_few_records_are_not_remembered_nor_those_that_may_be_written_again_within_a_tick(
    folder, named, monkeypatch, worth, settled_ns
):
    monkeypatch.setattr(verdicts, "FEWEST_NEW", worth)
    monkeypatch.setattr(verdicts, "_SETTLED_NS", settled_ns)
    for cell in named:
        leave(folder, cell)

    assert len(cell_states(folder, {"requests": []})) == 3

    kept = json.loads((folder.root / FILE).read_text())["cells"] if (folder.root / FILE).exists() else {}
    assert kept == {}


def _foreign(_path, patch):
    patch.setattr(verdicts.os, "geteuid", lambda: 12345)


def _full(path, patch):
    def write_json(*_, **__):
        raise OSError(28, "No space left on device")

    path.unlink()
    patch.setattr(files, "write_json", write_json)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, _: path.write_text("[]"),
        lambda path, _: path.write_text(path.read_text().replace('"of": "', '"of": "0')),
        lambda path, _: path.write_text(path.read_text().replace('"done"', '"holy"')),
        lambda path, _: path.rename(path.with_name("other")) and path.symlink_to(path.with_name("other")),
        lambda path, _: path.unlink() or path.mkdir(),
        _foreign,
        _full,
    ],
)
def test_a_cache_that_is_damaged_or_foreign_or_cannot_be_written_is_no_error_and_is_not_believed(
    folder, named, monkeypatch, spoil
):
    for cell in named:
        leave(folder, cell)
    first = cell_states(folder, {"requests": []})
    spoil(folder.root / FILE, monkeypatch)

    assert cell_states(folder, {"requests": []}) == first == computed(folder, [])
    assert {state["status"] for state in first.values()} == {"done"}


@pytest.mark.usefixtures("eager")
def test_a_changed_program_believes_nothing_of_what_another_one_has_found(folder, named, monkeypatch):
    leave(folder, named[0])
    cell_states(folder, {"requests": []})
    monkeypatch.setattr(verdicts, "_program_state", lambda: [("jobs/checks.py", 1, 1)])

    assert Summaries(folder, []).cached_summary(named[0].id) is None
