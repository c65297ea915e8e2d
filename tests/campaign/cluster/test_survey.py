"""Which cells are worth another try."""

import shutil

import pytest

from campaign.cells import cell_plan
from campaign.cluster import fleet, survey
from campaign.cluster.survey import cell_states
from campaign.errors import EnvironmentFaultError
from campaign.slurm import scheduler
from jobs.model.codes import worker_sentence
from tests.campaign.fake_template import COLD, TERMS, failed, figures
from tests.campaign.on_disk import leave_batch, leave_record
from tests.campaign.work_lists import UTC

CANCELLED, NODE_FAIL = {"code": "CANCELLED"}, {"code": "NODE_FAIL", "node": "n3"}
LOST, PREEMPTED = {"code": "LOST"}, {"code": "PREEMPTED", "node": "n1"}
REASONS = {
    "done": None, "invalid": f"0 of 5 measured runs valid, 3 needed; {COLD}",
    "failed": "0 of 2 measured runs valid, 3 needed; killed by signal 9 (SIGKILL)",
}  # fmt: skip
TOO_SHORT = {"code": "ERROR", "words": "the time limit of 60 min was reached 4 times"}
LOCKED, WAITS = {"code": "lock", "words": "/lock", "holder": "them"}, "waiting for /lock, held by them"
GONE = "the worker ended before the cell was complete"


class Scene:
    """A campaign folder, the one cell that everything is about, and a cluster of shell scripts."""

    def __init__(self, folder, cell, programs, patch):
        self.folder, self.cell, self.programs, self.patch = folder, cell, programs, patch

    def recorded(self, what):
        """Write the record of the cell; `what` is nothing, or a status, "before" where an earlier submission wrote it.

        One that is under way waits for a lock; one that is done has three valid runs of four.
        """
        status, _, before = what.partition(" ")
        if status != "nothing":
            runs = [{"status": each} for each in ("valid", "invalid", "valid", "valid")] if status == "done" else []
            token, wait = "theirs" if before else "mine", LOCKED if status == "running" else None
            leave_record(self.folder, self.cell, *runs, status=status, token=token, waits_for=wait)

    def batch(self, cluster="slurm", name="mine-0", cells=None, **more):
        """Write the batch that had the cell last, as the second of its workers."""
        return leave_batch(self.folder, name, cells or [["another"], [self.cell.id]], cluster, **more)

    def slurm(self, *says, deed="", silent=False):
        """Let the controller say this of the worker that has the cell (state, reason, node), and more of others."""
        mine = self.folder.workers / "mine-0"
        lines = [f"78|1|RUNNING|None|n9|{self.folder.workers}/other-0", f"77|0|RUNNING|None|n8|{mine}"]
        if says:
            lines.append(f"77|1|{'|'.join(says)}|{mine}")
        self.programs.answer("squeue", *lines)
        if silent or deed:
            self.programs("squeue", "exit 1" if silent else f"{deed}\ncat {self.programs.folder}/squeue.answer")

    def states(self, *cells):
        return cell_states(self.folder, {"requests": [{"cells": [cell.id for cell in cells or [self.cell]]}]})

    def told(self):
        state = self.states()[self.cell.id]
        return state["status"], state["reason"]


@pytest.fixture
def scene(folder, cells, programs, monkeypatch):
    monkeypatch.setattr(fleet, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(scheduler, "_LOST_AFTER_S", 0.0)
    programs("scontrol", "echo 'AccountingStorageType = accounting_storage/none'")
    made = Scene(folder, cells[0][0], programs, monkeypatch)
    made.slurm()
    return made


def test_a_cell_that_was_asked_for_and_never_begun_is_planned(scene):
    state = {"status": "planned", "reason": None, "valid": 0, "measured": 0, "where": None, "emulated": []}
    state["end"] = None

    assert scene.states() == {scene.cell.id: state}


def test_a_record_counts_its_runs_and_is_listed_though_nobody_asked_for_it(scene):
    scene.recorded("done")

    found = cell_states(scene.folder, {"requests": []})

    counted = {"status": "done", "reason": None, "valid": 3, "measured": 4, "where": None, "emulated": []}
    counted["end"] = None
    assert found == {scene.cell.id: counted}


@pytest.mark.parametrize(
    ("what", "at_work", "told", "without_batch"),
    [
        ("nothing", True, ("running", "starting"), ("planned", None)),
        ("nothing", False, ("planned", None), ("planned", None)),  # its worker may be about to start
        ("running", False, ("interrupted", GONE), ("interrupted", None)),
        *(("running", at_work, ("running", WAITS), ("running", WAITS)) for at_work in (True, None)),
        ("running before", True, ("running", "starting"), ("running", WAITS)),
        ("running before", False, ("interrupted", None), ("interrupted", None)),
        *((over, at_work, *[(over, REASONS[over])] * 2) for over in REASONS for at_work in (False, True)),
    ],
)
def test_on_this_machine_the_record_and_the_lock_of_the_worker_tell(what, at_work, told, without_batch, scene):
    scene.recorded(what)
    scene.patch.setattr(type(scene.folder), "is_worker_running", lambda _: at_work)

    assert scene.told() == without_batch
    scene.batch("local", cells=[[scene.cell.id]])
    assert scene.told() == told


def test_of_a_worker_on_this_machine_that_has_gone_the_cells_behind_are_interrupted_too(scene, cells):
    scene.batch("local", cells=[[cell.id for cell in cells[0]]])
    scene.recorded("running")

    assert {state["status"] for state in scene.states(*cells[0]).values()} == {"interrupted"}


def test_the_error_that_a_worker_on_this_machine_left_is_told(scene):
    fault = scene.batch("local", cells=[[scene.cell.id]]).work_list(0).with_suffix(".error.json")
    fault.write_text('{"message": "no TensorFlow", "hint": "install it"}')

    assert scene.told() == ("failed", "no TensorFlow (install it)")


def test_a_cell_that_was_done_and_is_asked_for_with_more_runs_lacks_runs_and_has_not_failed(scene):
    leave_record(scene.folder, scene.cell, *[{"status": "valid"}] * 3, status="ended", token="mine")
    scene.batch("local", cells=[[scene.cell.id]])
    terms = {**TERMS, "runs": 7, "min_valid_runs": 5}

    found = cell_states(scene.folder, {"requests": [{"cells": [scene.cell.id], "terms": terms}]})[scene.cell.id]

    assert (found["status"], found["reason"]) == (
        "unfinished", "3 of 3 measured runs valid, 5 needed; 3 more to be measured"
    )  # fmt: skip


REFUSED = {"refused": "Invalid account"}
ENDS = [
    *((what, CANCELLED, "interrupted") for what in ("nothing", "running")),
    *((what, NODE_FAIL, "failed") for what in ("nothing", "running")),
    ("nothing", LOST, "interrupted"), ("running", TOO_SHORT, "failed"), ("running", PREEMPTED, "interrupted"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "ended", "told"),
    [
        *((what, REFUSED, (state, "Slurm refused the job: Invalid account"))
          for what, state in (("nothing", "planned"), ("running before", "interrupted"))),
        *((f"{over} before", end, (over, REASONS[over])) for over in REASONS for end in (REFUSED, CANCELLED)),
        *((what, end, (state, worker_sentence(end))) for what, end, state in ENDS),
    ],
)  # fmt: skip
def test_of_a_job_that_was_refused_or_left_the_cell_behind_the_batch_tells_and_a_verdict_stands(
    what, ended, told, scene
):
    scene.recorded(what)
    scene.batch(**REFUSED) if ended is REFUSED else scene.batch().save_ends({1: ended})

    assert scene.told() == told
    assert scene.programs.calls == []


@pytest.mark.parametrize(
    ("what", "says", "told"),
    [
        ("nothing", ("PENDING", "Priority", ""), ("queued", "Priority", None)),
        ("running", ("PENDING", "BeginTime", ""), ("queued", "BeginTime", None)),
        ("running before", ("PENDING", "Resources", ""), ("queued", "Resources", None)),
        ("done before", ("PENDING", "None", ""), ("queued", None, None)),
        ("nothing", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("running", ("RUNNING", "None", "n2"), ("running", WAITS, "n2")),
        ("running before", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("failed before", ("RUNNING", "None", "n2"), ("running", "starting", "n2")),
        ("nothing", ("NODE_FAIL", "None", "n3"), ("failed", NODE_FAIL, None)),
        ("running", ("NODE_FAIL", "None", "n3"), ("failed", NODE_FAIL, None)),
        ("running", ("CANCELLED", "None", ""), ("interrupted", CANCELLED, None)),
        ("done before", ("CANCELLED", "None", ""), ("done", None, None)),
        ("nothing", (), ("interrupted", LOST, None)),
        ("running", (), ("interrupted", LOST, None)),
        ("failed before", (), ("failed", REASONS["failed"], None)),
    ],
    ids=lambda value: str(value).replace("'", ""),
)
def test_of_an_open_job_the_controller_tells(what, says, told, scene):
    scene.recorded(what)
    scene.batch()
    scene.slurm(*says)

    state = scene.states()[scene.cell.id]

    status, reason, where = told
    assert (state["status"], state["where"]) == (status, where)
    assert state["reason"] == (worker_sentence(reason) if isinstance(reason, dict) else reason)
    assert state["end"] == (reason if isinstance(reason, dict) else None)


SILENCE = "the scheduler does not answer, so the job may have another state by now"


@pytest.mark.parametrize(
    ("what", "status"), [("nothing", "queued"), ("running", "running"), ("running before", "queued")]
)
def test_a_silent_scheduler_is_told_and_nothing_is_taken_for_lost(what, status, scene):
    scene.recorded(what)
    scene.batch()
    scene.slurm(silent=True)

    assert scene.told() == (status, SILENCE)


SITUATIONS = {
    "no batch": lambda scene: None,
    "this machine": lambda scene: scene.batch("local"),
    "refused": lambda scene: scene.batch(**REFUSED),
    "cancelled": lambda scene: scene.batch().save_ends({1: CANCELLED}),
    "runs": lambda scene: (scene.batch(), scene.slurm("RUNNING", "None", "n2")),
    "is gone": lambda scene: (scene.batch(), scene.slurm()),
    "is silent": lambda scene: (scene.batch(), scene.slurm(silent=True)),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_verdict_of_the_last_worker_stands_whatever_became_of_it_and_damage_unless_it_lives(situation, scene):
    scene.recorded("failed")
    SITUATIONS[situation](scene)

    assert (scene.told(), scene.programs.calls) == (("failed", REASONS["failed"]), [])
    scene.folder.record(scene.cell.id).write_text("{")
    status, reason = scene.told()
    live = {"runs": "running", "is silent": "queued"}.get(situation)  # who has it sets such a record aside
    assert (status, "record.json" in reason) == (live or "damaged", live is None)


def test_a_record_that_was_finished_while_the_scheduler_was_asked_is_believed(scene):
    scene.recorded("done")
    finished = scene.folder.cell(scene.cell.id) / "finished.json"
    shutil.copy(scene.folder.record(scene.cell.id), finished)
    scene.recorded("running")
    scene.batch()
    scene.slurm("COMPLETED", "None", "n2", deed=f"cp {finished} {scene.folder.record(scene.cell.id)}")

    assert scene.told() == ("done", None)


def test_a_later_batch_speaks_for_its_cells_and_an_earlier_one_for_the_others(scene, cells):
    one, other, third = cells[0]
    first = scene.batch(name="first-0", cells=[[one.id, other.id], [third.id]])
    first.save_ends({0: NODE_FAIL, 1: CANCELLED})
    scene.batch(utc=f"{UTC}1")
    scene.slurm("PENDING", "Priority", "")

    found = scene.states(one, other, third)

    assert [(found[each.id]["status"], found[each.id]["reason"]) for each in (one, other, third)] == [
        ("queued", "Priority"), ("failed", worker_sentence(NODE_FAIL)), ("interrupted", worker_sentence(CANCELLED))
    ]  # fmt: skip


def test_a_cell_that_went_on_on_this_machine_is_no_more_the_cluster_s(scene):
    scene.batch().save_ends({1: NODE_FAIL})
    scene.batch("local", "mine-1", [[scene.cell.id]], utc=f"{UTC}1")
    scene.recorded("running")

    assert scene.told() == ("interrupted", GONE)


def test_of_a_worker_that_has_several_cells_one_is_running_and_the_rest_are_queued(scene, cells):
    scene.batch(cells=[["x"], [cell.id for cell in cells[0]]])
    scene.slurm("RUNNING", "None", "n2")

    before = scene.states(*cells[0]).values()
    scene.recorded("running")
    begun = scene.states(*cells[0]).values()

    for found, reason in ((before, "starting"), (begun, WAITS)):
        assert [(each["status"], each["reason"]) for each in found] == [
            ("running", reason), ("queued", None), ("queued", None)
        ]  # fmt: skip


def test_a_damaged_batch_stops_the_telling(scene):
    (scene.batch().folder / "batch.json").write_text("[]")

    with pytest.raises(EnvironmentFaultError, match="is damaged"):
        scene.states()


LOUD = figures(other_cpu=8.93)
SAYS = "1 cell not tried again: "


@pytest.mark.parametrize(
    ("runs", "code", "why"),
    [
        *(([], code, None) for code in ("NODE_FAIL", "PREEMPTED", "LOST")),
        *((runs, "CANCELLED", "cancelled") for runs in ([], [None], [LOUD] * 5)),
        ([None], "DEADLINE", "the job's deadline has passed"),
        ([None], "OUT_OF_MEMORY", "the job's memory did not suffice (cluster.mem_gb=… asks for more)"),
        ([None], "TIMEOUT", "the time limit was reached (cluster.timeout_min=… asks for more)"),
        ([None], "ERROR", "no such module: CUDA"),
        *(([], code, "the job failed before its first run") for code in ("FAILED", "COMPLETED")),
        *(([None], code, None) for code in ("FAILED", "COMPLETED")),
        *(([LOUD] * 5, code, None) for code in ("TIMEOUT", "FAILED", "ERROR", "")),
        ([failed("of its own")] * 5, "NODE_FAIL", ""),
    ],
)  # fmt: skip
def test_a_cell_is_tried_again_unless_the_next_job_would_end_as_the_last_did(runs, code, why, cells, folder):
    (one, *_), conduct = cells
    batch = leave_batch(folder, cells=[["another"], [one.id]])
    batch.save_ends({1: {"code": code, "words": "no such module: CUDA"}} if code else {})
    if runs:
        leave_record(folder, one, *runs, status="running" if runs == [None] else "invalid")

    again, lines = survey.cells_to_retry(cell_plan.make_plan([one], conduct, folder))

    assert (again, lines) == ([one] if why is None else [], [f"{SAYS}{why}"] if why else [])


def test_cells_that_are_not_tried_again_are_counted_by_their_reason(cells, folder):
    made, conduct = cells
    leave_batch(folder, cells=[[cell.id] for cell in made]).save_ends(
        {0: {"code": "TIMEOUT"}, 1: {"code": "CANCELLED"}, 2: {"code": "CANCELLED", "node": "n2"}}
    )

    again, lines = survey.cells_to_retry(cell_plan.make_plan(made, conduct, folder))

    assert (again, [line.partition(" (")[0] for line in lines]) == (
        [], [f"{SAYS}the time limit was reached", "2 cells not tried again: cancelled"],
    )  # fmt: skip


def test_a_suspended_job_is_not_taken_for_one_that_measures_now(scene):
    scene.recorded("running")
    scene.batch()
    scene.slurm("SUSPENDED", "None", "n1")

    state = scene.states()[scene.cell.id]

    assert (state["status"], state["where"]) == ("running", None)
    assert state["reason"].startswith("SUSPENDED: ")
