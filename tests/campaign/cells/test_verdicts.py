"""Verdicts are made when records are read, by whoever reads them; only a worker writes a record.

The cache of what `status` has found: it saves the reading, and never changes what is shown.
"""

import itertools
import json

import pytest

from campaign.cells import cell_plan
from campaign.cells.cell import make_cell
from campaign.cells.folder import open_existing
from campaign.cells.verdicts import Verdicts
from campaign.cluster.survey import cell_states
from campaign.errors import EnvironmentFaultError
from jobs.benchmarks import registry
from jobs.judging import judge, peaks
from jobs.model.record import terms_of_conduct
from tests.campaign.fake_template import COLD, TERMS, failed, figures, invalid
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import LATER, asked_again, compose, walk, work_list

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
        ("running", 5, True), ("running", 3, False)
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
