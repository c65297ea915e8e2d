from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from campaign.cells import record
from campaign.cluster import fleet
from campaign.cluster.states import states
from campaign.errors import EnvironmentFaultError
from campaign.slurm import scheduler
from campaign.worker.batch import Batch
from tests.campaign.fake_template import figures

if TYPE_CHECKING:
    from pathlib import Path

UTC = "2026-11-21T09:00:00.000Z"
CANCELLED, NODE_FAIL, LOST = "Slurm: CANCELLED", "Slurm: NODE_FAIL on n3", "Slurm: LOST"
TOO_SHORT = "the time limit of 60 min was reached 4 times"
SILENT = "the scheduler does not answer"


@dataclass
class Scene:
    """A campaign folder, the one cell that everything is about, and a cluster of shell scripts."""

    folder: Any
    cell: Any
    place: Path
    patch: pytest.MonkeyPatch

    def recorded(self, what):
        """Write the record of the cell; `what` is nothing, or a status, "before" where an earlier submission wrote it.

        Its reason is `words`, and it has two measured runs, one of them valid.
        """
        status, _, before = what.partition(" ")
        if status != "nothing":
            made = record.new(self.cell, {"token": "theirs" if before else "mine"}, {})
            for run_status in ("valid", "invalid"):
                record.begin_run(made, "measured", "mine").update(figures(), status=run_status)
            made["status"], made["reason"] = status, "words"
            record.write(self.folder.record(self.cell.id), made)

    def batch(self, cluster="slurm", **more):
        """Write the batch that had the cell last, as the second of its workers."""
        cells = [["another"], [self.cell.id]]
        made = Batch(self.folder.workers / "mine-0", cluster, "mine", "tfio-mine", cells, UTC, **more)
        made.save()
        return made

    def slurm(self, *says, deed="", silent=False):
        """Let the controller say this of the worker that has the cell (state, reason, node), and more of others."""
        lines = [f"78|1|RUNNING|None|n9|{self.folder.workers}/other-0", f"77|0|RUNNING|None|n8|{self._mine}"]
        if says:
            lines.append(f"77|1|{'|'.join(says)}|{self._mine}")
        (self.place / "lines").write_text("\n".join(lines) + "\n")
        self._program("squeue", "exit 1" if silent else f"{deed}\ncat {self.place}/lines")
        self._program("scontrol", "echo 'AccountingStorageType = accounting_storage/none'")
        self._program("sacct", "exit 1")

    def worker_at_work(self, answer):
        """Let the lock of the worker on this machine be held, free, or nothing that this user may try."""
        self.patch.setattr(type(self.folder), "worker_at_work", lambda _: answer)

    @property
    def was_asked(self):
        """Whether anybody asked this Slurm anything."""
        return (self.place / "log").exists()

    def state(self):
        return states(self.folder, {"requests": [{"cells": [self.cell.id]}]})[self.cell.id]

    def told(self):
        state = self.state()
        return state["status"], state["reason"]

    @property
    def _mine(self):
        return self.folder.workers / "mine-0"

    def _program(self, name, body):
        (self.place / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {self.place}/log\n{body}\n')
        (self.place / name).chmod(0o755)


@pytest.fixture
def scene(folder, cells, tmp_path, monkeypatch):
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setattr(fleet, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(scheduler, "_LOST_AFTER_S", 0.0)
    made = Scene(folder, cells[0][0], place, monkeypatch)
    made.slurm()
    return made


def test_a_cell_that_was_asked_for_and_never_begun_is_planned(scene):
    state = {"status": "planned", "reason": None, "valid": 0, "measured": 0, "where": None, "emulated": []}

    assert scene.state() == state


def test_a_record_counts_its_runs_and_is_listed_though_nobody_asked_for_it(scene):
    scene.recorded("done")

    found = states(scene.folder, {"requests": []})

    counted = {"status": "done", "reason": "words", "valid": 1, "measured": 2, "where": None, "emulated": []}
    assert found == {scene.cell.id: counted}


@pytest.mark.parametrize("cluster", ["", "local", "debug"])
@pytest.mark.parametrize(
    ("what", "at_work", "told"),
    [
        ("nothing", False, ("planned", None)),
        ("nothing", True, ("planned", None)),
        ("running", False, ("interrupted", "words")),
        ("running", True, ("running", "words")),
        ("running", None, ("running", "words")),
        ("running before", False, ("interrupted", "words")),
        ("done", False, ("done", "words")),
        ("invalid", True, ("invalid", "words")),
        ("failed", False, ("failed", "words")),
    ],
)
def test_on_this_machine_the_record_and_the_lock_of_the_worker_tell(what, at_work, told, cluster, scene):
    scene.recorded(what)
    scene.worker_at_work(at_work)
    if cluster:
        scene.batch(cluster)

    assert scene.told() == told


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", ("planned", "Slurm refused it: Invalid account")),
        ("running before", ("planned", "Slurm refused it: Invalid account")),
        ("failed before", ("failed", "words")),
        ("done before", ("done", "words")),
    ],
)
def test_a_cell_whose_jobs_slurm_refused_is_planned_still(what, told, scene):
    scene.recorded(what)
    scene.batch(refused="Invalid account")

    assert scene.told() == told
    assert not scene.was_asked


@pytest.mark.parametrize(
    ("what", "why", "told"),
    [
        ("nothing", CANCELLED, ("interrupted", CANCELLED)),
        ("running", CANCELLED, ("interrupted", CANCELLED)),
        ("failed before", CANCELLED, ("failed", "words")),
        ("nothing", LOST, ("interrupted", LOST)),
        ("running", "Slurm: PREEMPTED on n1", ("interrupted", "Slurm: PREEMPTED on n1")),
        ("nothing", NODE_FAIL, ("failed", NODE_FAIL)),
        ("running", NODE_FAIL, ("failed", NODE_FAIL)),
        ("running", TOO_SHORT, ("failed", TOO_SHORT)),
    ],
)
def test_how_a_job_ended_that_left_the_cell_behind_is_told_and_a_verdict_stands(what, why, told, scene):
    scene.recorded(what)
    scene.batch().save_ends({1: why})

    assert scene.told() == told
    assert not scene.was_asked


@pytest.mark.parametrize(
    ("what", "says", "told"),
    [
        ("nothing", ("PENDING", "Priority", ""), ("queued", "Priority", None)),
        ("running", ("PENDING", "BeginTime", ""), ("queued", "BeginTime", None)),
        ("running before", ("PENDING", "Resources", ""), ("queued", "Resources", None)),
        ("done before", ("PENDING", "None", ""), ("queued", None, None)),
        ("nothing", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("running", ("RUNNING", "None", "n2"), ("running", "words", "n2")),
        ("running before", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("failed before", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("nothing", ("NODE_FAIL", "None", "n3"), ("failed", NODE_FAIL, None)),
        ("running", ("NODE_FAIL", "None", "n3"), ("failed", NODE_FAIL, None)),
        ("running", ("CANCELLED", "None", ""), ("interrupted", CANCELLED, None)),
        ("done before", ("CANCELLED", "None", ""), ("done", "words", None)),
        ("nothing", (), ("interrupted", LOST, None)),
        ("running", (), ("interrupted", LOST, None)),
        ("failed before", (), ("failed", "words", None)),
    ],
    ids=lambda value: str(value).replace("'", ""),
)
def test_of_an_open_job_the_controller_tells(what, says, told, scene):
    scene.recorded(what)
    scene.batch()
    scene.slurm(*says)

    state = scene.state()

    status, reason, where = told
    assert (state["status"], state["where"]) == (status, where)
    assert state["reason"] == reason or (reason == LOST and state["reason"].startswith(LOST))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", ("queued", SILENT)),
        ("running", ("running", SILENT)),
        ("running before", ("queued", SILENT)),
    ],
)
def test_a_silent_scheduler_is_told_and_nothing_is_taken_for_lost(what, told, scene):
    scene.recorded(what)
    scene.batch()
    scene.slurm(silent=True)

    assert scene.told() == told


SITUATIONS = {
    "no batch": lambda scene: None,
    "this machine": lambda scene: scene.batch("local"),
    "refused": lambda scene: scene.batch(refused="Invalid account"),
    "cancelled": lambda scene: scene.batch().save_ends({1: CANCELLED}),
    "node lost": lambda scene: scene.batch().save_ends({1: NODE_FAIL}),
    "waits": lambda scene: (scene.batch(), scene.slurm("PENDING", "Priority", "")),
    "runs": lambda scene: (scene.batch(), scene.slurm("RUNNING", "None", "n2")),
    "is gone": lambda scene: (scene.batch(), scene.slurm()),
    "failed": lambda scene: (scene.batch(), scene.slurm("NODE_FAIL", "None", "n3")),
    "is silent": lambda scene: (scene.batch(), scene.slurm(silent=True)),
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("what", ["done", "failed", "invalid"])
def test_the_verdict_of_the_last_worker_stands_whatever_became_of_it_and_nobody_is_asked(what, situation, scene):
    scene.recorded(what)
    SITUATIONS[situation](scene)

    assert scene.told() == (what, "words")
    assert not scene.was_asked


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("text", ["{", '{"schema": 99}'])
def test_a_damaged_record_is_damaged_whatever_became_of_its_worker(text, situation, scene):
    scene.folder.cell(scene.cell.id).mkdir(parents=True)
    scene.folder.record(scene.cell.id).write_text(text)
    SITUATIONS[situation](scene)

    status, reason = scene.told()

    assert status == "damaged"
    assert "record.json" in reason


def test_a_record_that_was_finished_while_the_scheduler_was_asked_is_believed(scene):
    scene.recorded("done")
    finished = scene.folder.cell(scene.cell.id) / "finished.json"
    shutil.copy(scene.folder.record(scene.cell.id), finished)
    scene.recorded("running")
    scene.batch()
    scene.slurm("COMPLETED", "None", "n2", deed=f"cp {finished} {scene.folder.record(scene.cell.id)}")

    assert scene.told() == ("done", "words")


def test_a_later_batch_speaks_for_its_cells_and_an_earlier_one_for_the_others(scene, cells):
    one, other, third = cells[0]
    first = Batch(scene.folder.workers / "first-0", "slurm", "first", "tfio", [[one.id, other.id], [third.id]], UTC)
    first.save()
    first.save_ends({0: NODE_FAIL, 1: CANCELLED})
    again = Batch(scene.folder.workers / "mine-0", "slurm", "mine", "tfio-mine", [["x"], [one.id]], f"{UTC}1")
    again.save()
    scene.slurm("PENDING", "Priority", "")

    found = states(scene.folder, {"requests": [{"cells": [one.id, other.id, third.id]}]})

    assert [(found[each.id]["status"], found[each.id]["reason"]) for each in (one, other, third)] == [
        ("queued", "Priority"), ("failed", NODE_FAIL), ("interrupted", CANCELLED)
    ]  # fmt: skip


def test_a_cell_that_went_on_on_this_machine_is_no_more_the_cluster_s(scene):
    scene.batch("slurm").save_ends({1: NODE_FAIL})
    Batch(scene.folder.workers / "local-0", "local", "local", "tfio", [[scene.cell.id]], f"{UTC}1").save()
    scene.recorded("running")

    assert scene.told() == ("interrupted", "words")


def test_of_a_worker_that_has_several_cells_one_is_running_and_the_rest_are_planned(scene, cells):
    first, second, third = (cell.id for cell in cells[0])
    made = Batch(scene.folder.workers / "mine-0", "slurm", "mine", "tfio-mine", [["x"], [first, second, third]], UTC)
    made.save()
    scene.slurm("RUNNING", "None", "n2")

    before = states(scene.folder, {"requests": [{"cells": [first, second, third]}]})
    scene.recorded("running")
    begun = states(scene.folder, {"requests": [{"cells": [first, second, third]}]})

    assert [before[cell]["status"] for cell in (first, second, third)] == ["running", "planned", "planned"]
    assert [before[cell]["reason"] for cell in (first, second, third)] == ["starting", None, None]
    assert [begun[cell]["status"] for cell in (first, second, third)] == ["running", "planned", "planned"]
    assert begun[first]["reason"] == "words"


def test_a_damaged_batch_stops_the_telling(scene):
    (scene.batch().folder / "batch.json").write_text(json.dumps([]))

    with pytest.raises(EnvironmentFaultError, match="is damaged"):
        scene.state()
