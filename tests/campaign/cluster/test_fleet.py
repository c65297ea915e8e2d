import contextlib
import json
import os
from itertools import pairwise

import pytest

from campaign.cells.folder import CampaignFolder
from campaign.cluster import fleet
from campaign.cluster.cell_state import WorkerState
from campaign.cluster.progress import Follower, WatchedWorkers
from campaign.cluster.survey import cell_states
from campaign.slurm import scheduler
from campaign.slurm.client import SlurmConfig
from campaign.worker import session
from campaign.worker.batch import read_batches
from jobs.model.codes import run_end_sentence
from tests.campaign.fake_slurm import SQUEUE_HEAD
from tests.campaign.fake_template import figures
from tests.campaign.on_disk import leave_batch, leave_record, squeue_line
from tests.campaign.work_lists import asked_again, work_list
from tests.slurm.campaigns import wait

LATER = "2026-11-22T10:00:00.000Z"
RUNS = {"running": [None], "done": [figures()]}
NO_ACCOUNTING = SlurmConfig("AccountingStorageType = accounting_storage/none")
SLURMDBD = SlurmConfig("AccountingStorageType = accounting_storage/slurmdbd")
COMPLETED = {"code": "COMPLETED"}


@pytest.fixture(autouse=True)
def time(clock):
    return clock(fleet, scheduler)


@pytest.fixture
def ids(cells):
    return [cell.id for cell in cells[0]]


@pytest.fixture
def batch(folder, ids):
    """A function that writes a batch: the first worker has two cells, the second one."""

    def make(name="first-0", **more):
        return leave_batch(folder, name, [ids[:2], ids[2:]], **more)

    return make


@pytest.fixture
def begun(folder, cells):
    """A function that writes the record of a cell, with one run that is under way, or over where the cell is done."""

    def write(number, status="running", token="first"):
        leave_record(folder, cells[0][number], *RUNS.get(status, ()), status=status, token=token)
        return folder.record(cells[0][number].id)

    return write


def _ended(code, node, where=""):
    return WorkerState("ended", None, where, {"code": code, "node": node})


def _key(batch, index):
    return str(batch.folder), index


@pytest.fixture
def seen_as(folder, programs):
    """A function that gives the fleet of a batch whose workers the controller shows as given."""

    def look(batch, *cell_states):
        programs.answer(
            "squeue", *(squeue_line(batch, index, state, node="n1") for index, state in enumerate(cell_states))
        )
        found = fleet.open_fleet(folder, NO_ACCOUNTING)
        found.refresh()
        return found

    return look


@pytest.fixture
def settled(folder, seen_as):
    """A function that writes down how the workers of a batch ended; returns what is told."""
    return lambda batch, *cell_states: fleet.record_ends(folder, seen_as(batch, *cell_states))


def _ends(batch):
    return json.loads((batch.folder / "ended.json").read_text())


def test_workers_of_which_nobody_knows_the_end_are_seen_queued_running_and_ended_where_they_ran(
    folder, batch, programs, time
):
    first, second = batch(), batch("second-0")
    batch("third-0", cluster="local")
    batch("fourth-0", refused="invalid partition")
    batch("fifth-0").save_ends(dict.fromkeys((0, 1), COMPLETED))
    waits = squeue_line(first, 0, "PENDING", "Priority")
    lost = squeue_line(second, 0, "NODE_FAIL", "NodeDown", "n6")
    programs.answer("squeue", waits, squeue_line(first, 1, "RUNNING", node="n3"), lost)
    found = fleet.open_fleet(folder, NO_ACCOUNTING)
    keys = [_key(each, index) for each in (first, second) for index in (0, 1)]
    assert (set(found.open), found.states) == ({*keys}, dict.fromkeys(keys, WorkerState("unknown")))
    assert found.batch(keys[3]) == second

    seen = found.refresh()

    waiting = WorkerState("queued", {"code": "scheduler", "words": "Priority"}, "70_0")
    running, ended = WorkerState("running", None, "n3"), _ended("NODE_FAIL", "n6")
    assert seen == dict(zip(keys, (waiting, running, ended, WorkerState("unknown")), strict=True))
    assert set(found.open) == {*keys} - {keys[2]}
    programs.answer("squeue", waits, squeue_line(first, 1, "TIMEOUT", "TimeLimit", "n3"))
    time.now += 3.5
    assert found.refresh()[keys[1]] == _ended("TIMEOUT", "n3", where="n3")


def test_a_worker_whose_cells_are_over_is_looked_for_no_more_but_a_known_end_stands(batch, seen_as, programs, time):
    made = batch()
    found = seen_as(made, "NODE_FAIL", "RUNNING")

    found.close_finished([_key(made, 0), _key(made, 1), ("/elsewhere", 0)])
    time.now += 60.0

    assert found.refresh() == {
        _key(made, 0): _ended("NODE_FAIL", "n1"),
        _key(made, 1): WorkerState("ended", None, "n1", COMPLETED),
    }
    assert not found.open
    assert len(programs.calls) == 1


def test_the_scheduler_is_asked_less_than_twenty_times_a_minute_and_every_fifteen_while_nothing_changes(
    folder, batch, programs, time
):
    made = batch()
    programs.answer("squeue", *(squeue_line(made, index, "RUNNING", node="n1") for index in (0, 1)))
    found = fleet.open_fleet(folder, NO_ACCOUNTING)
    asked = []

    for _ in range(160):
        before = len(programs.calls)
        found.refresh()
        asked += [time.now] * (len(programs.calls) - before)
        time.now += 0.5

    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses[0] == 3.5
    assert pauses == sorted(pauses)
    assert pauses[-1] == 15.0


def test_all_batches_are_asked_for_at_once_since_the_day_before_the_first_submission(folder, batch, programs, time):
    for name, utc in (("first-0", LATER), ("second-0", "2026-11-21T09:00:00.000Z"), ("second-1", LATER)):
        batch(name, utc=utc)
    programs.answer("squeue")
    programs.answer("sacct")
    found = fleet.open_fleet(folder, SLURMDBD)

    found.refresh()
    time.now += 3.5
    found.refresh()

    assert programs.asked == ["squeue", "sacct"]
    assert all("--name=tfio-first,tfio-second " in call for call in programs.calls)
    (since,) = [word for word in programs.calls[-1].split() if word.startswith("--starttime=")]
    assert since.partition("T")[0] == "--starttime=2026-11-20"


def test_settling_asks_until_every_end_is_explained(folder, batch, programs):
    made = batch()
    programs.answer("squeue", squeue_line(made, 1, "RUNNING", node="n1"))
    programs.answer("sacct", f"70_0|OUT_OF_MEMORY|0:125|n1|None|{made.folder}")
    found = fleet.open_fleet(folder, SLURMDBD)

    found.refresh_until_explained()

    assert programs.asked == ["squeue", "sacct"]
    assert found.states[_key(made, 0)].end == {"code": "OUT_OF_MEMORY", "signal": 125, "node": "n1"}
    assert set(found.open) == {_key(made, 1)}


def test_settling_does_not_wait_for_a_controller_that_is_down_and_its_silence_is_timed(folder, batch, programs, time):
    batch()
    programs("squeue", "exit 1")
    found = fleet.open_fleet(folder, NO_ACCOUNTING)
    before = found.silent_s

    found.refresh_until_explained()
    time.now += 30.0

    assert (programs.asked, len(found.open), before, found.silent_s) == (["squeue"], 2, 0.0, 30.0)


def test_a_view_does_not_wait_for_the_controller_and_says_since_when_it_does_not_answer(
    folder, batch, programs, time, tmp_path
):
    made = batch()
    os.mkfifo(tmp_path / "answer")
    programs("squeue", f"cat {tmp_path}/answer")
    found = fleet.open_fleet(folder, NO_ACCOUNTING)

    before = dict(found.refresh_without_waiting())
    time.now += 30.0
    meanwhile, silent = dict(found.refresh_without_waiting()), (found.silent_since, found.silent_s)
    (tmp_path / "answer").write_text(f"{SQUEUE_HEAD}\n{squeue_line(made, 0, 'RUNNING', node='n1')}\n")
    wait(lambda: found.refresh_without_waiting()[_key(made, 0)].phase == "running")

    assert before == meanwhile == dict.fromkeys([_key(made, 0), _key(made, 1)], WorkerState("unknown"))
    assert silent == (1000.0, 30.0)
    assert found.silent_s == 0.0
    assert programs.asked == ["squeue"]


def test_what_goes_wrong_in_a_question_is_not_lost_with_its_thread(batch, folder, monkeypatch):
    batch()
    found = fleet.open_fleet(folder, NO_ACCOUNTING)
    monkeypatch.setattr(scheduler, "list_tasks", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        wait(found.refresh_without_waiting)

    assert found.silent_since is None


@pytest.fixture
def followed(folder, monkeypatch):
    """A function: follow a fleet once while the controller has been silent for so long; returns cells and hindrance."""

    def follow(workers, silent_s):
        shown = []
        display = lambda _, hindrance: contextlib.nullcontext(lambda each: shown.append((each, hindrance())))  # noqa: E731
        monkeypatch.setattr(fleet.Fleet, "silent_s", silent_s)
        monkeypatch.setattr(fleet.progress, "open_display", display)
        monkeypatch.setattr(
            fleet, "show_until_over", lambda watched, states, show, _: show(watched.take_picture(states()))
        )
        fleet.follow_fleet(folder, workers)
        ((picture, why),) = shown
        return [cell for cell, _ in picture.news], why

    return follow


def test_runs_are_followed_in_the_order_of_workers_and_a_silence_is_said_when_it_lasts(
    batch, begun, programs, followed, ids
):
    made = batch()
    for number in range(3):
        begun(number, "done")
    programs("squeue", "exit 1")
    workers = fleet.open_fleet(CampaignFolder(made.folder.parents[1]), NO_ACCOUNTING)
    workers.refresh()

    told = [followed(workers, silent_s) for silent_s in (9.9, 10.0, 60.0)]

    assert told[0] == (ids, "")
    assert [why.startswith("Slurm's controller has not answered since") for _, why in told] == [False, True, True]


def test_how_workers_of_all_batches_ended_is_written_beside_their_work_lists(folder, batch, programs, begun):
    made, other = batch(), batch("second-0")
    done = begun(0, "done"), begun(1, "done")
    lines = [squeue_line(made, 0, "COMPLETED", node="n1"), squeue_line(made, 1, "RUNNING", node="n1")]
    programs.answer("squeue", *lines, *(squeue_line(other, place, "TIMEOUT", node="n2") for place in (0, 1)))
    found = fleet.open_fleet(folder, NO_ACCOUNTING)
    found.refresh()

    said = fleet.record_ends(folder, found)

    assert said == [f"{done[0].parent.name} and 2 more: Slurm: TIMEOUT on n2"]
    timeout = {"code": "TIMEOUT", "node": "n2"}
    assert (_ends(made), _ends(other)) == ({"0": {**COMPLETED, "node": "n1"}}, dict.fromkeys("01", timeout))
    assert [each.open_workers() for each in read_batches(folder)] == [[1], []]


@pytest.mark.usefixtures("cpus")
def test_a_run_that_a_worker_left_open_is_failed_by_the_next_one_for_the_reason_of_its_end(
    batch, settled, begun, cells, folder
):
    ids = [cell.id for cell in cells[0]]
    made, over, left = batch(), begun(0, "done"), begun(1)
    before = over.read_bytes(), left.read_bytes()

    assert settled(made, "NODE_FAIL", "RUNNING") == [f"{ids[1]}: Slurm: NODE_FAIL on n1"]

    end = {"code": "NODE_FAIL", "node": "n1"}
    assert _ends(made) == {"0": end}
    assert (over.read_bytes(), left.read_bytes()) == before
    recorded, _ = session.begin_session(
        folder, asked_again(work_list(folder, *cells)), work_list(folder, *cells)["cells"][1]
    )
    assert [(run["status"], run["end"]) for run in recorded["runs"]] == [
        ("failed", {"code": "worker_ended", "worker": end})
    ]
    assert run_end_sentence(recorded["runs"][0]["end"]) == "interrupted: Slurm: NODE_FAIL on n1"


@pytest.mark.parametrize(
    ("whose", "state"),
    [("of an earlier submission", "TIMEOUT"), ("damaged", "TIMEOUT"), ("of a worker that lives", "PENDING")],
)
def test_a_record_that_is_not_of_a_worker_that_ended_is_left_as_it_is(whose, state, batch, settled, begun):
    made, path = batch(), begun(2, token="earlier" if "earlier" in whose else "first")
    if whose == "damaged":
        path.write_text("{")
    before, over = path.read_bytes(), state == "TIMEOUT"

    assert settled(made, "RUNNING", state) == [f"{path.parent.name}: Slurm: TIMEOUT on n1"] * over
    assert path.read_bytes() == before
    assert (made.folder / "ended.json").exists() is over


def test_what_a_worker_said_of_its_end_is_told_rather_than_slurm_s_word(batch, settled, begun, ids):
    made = batch()
    begun(2)
    made.work_list(1).with_suffix(".error.json").write_text('{"message": "no such module: CUDA", "hint": ""}')

    assert settled(made, "RUNNING", "FAILED") == [f"{ids[2]}: no such module: CUDA"]
    assert _ends(made) == {"1": {"code": "ERROR", "words": "no such module: CUDA", "cure": ""}}


@pytest.mark.parametrize(("state", "left"), [("CANCELLED", "interrupted"), ("FAILED", "failed"), ("TIMEOUT", "failed")])
def test_the_live_view_and_status_call_a_cell_that_was_left_behind_the_same(state, left, batch, seen_as):
    made = batch()
    folder, ids = CampaignFolder(made.folder.parents[1]), [cell for cells in made.cells for cell in cells]

    watched = WatchedWorkers({key: Follower.of_worker(folder, made, key[1]) for key in seen_as(made).open})
    seen = seen_as(made, state, state).states
    counts = watched.take_picture(seen).counts

    told = cell_states(folder, {"requests": [{"cells": ids}]})
    assert {each["status"] for each in told.values()} == {left}
    assert counts[left] == len(ids)


@pytest.mark.parametrize(("state", "says"), [("FAILED", "its last word ({path})"), ("CANCELLED", None)])
def test_why_a_job_failed_is_told_by_its_log(state, says, batch, settled):
    made = batch()
    path = made.folder / "70_1_0_log.err"
    path.write_text("its last word\n")

    said = settled(made, "RUNNING", state)

    told = f"; {says.format(path=path)}" if says else ""
    assert said == [f"{made.cells[1][0]}: Slurm: {state} on n1{told}"]


def test_what_a_completed_worker_wrote_may_come_into_sight_late(batch, settled, begun, time):
    made = batch()
    pauses = []
    time.sleep = lambda pause: (pauses.append(pause), len(pauses) == 3 and begun(2, "done"))

    assert settled(made, "RUNNING", "COMPLETED") == []
    assert _ends(made) == {"1": {**COMPLETED, "node": "n1"}}


@pytest.mark.parametrize(("state", "waited_s"), [("COMPLETED", 5.0), ("FAILED", 0.0)])
def test_what_a_worker_never_wrote_was_left_behind_and_is_waited_for_once(state, waited_s, batch, settled, time):
    made, before = batch(), time.now

    assert settled(made, state, state) == [f"{made.cells[0][0]} and 2 more: Slurm: {state} on n1"]
    assert time.now - before == waited_s


@pytest.mark.parametrize(
    ("state", "lines"), [("FAILED", ["the data were not made: no room (less data)"]), ("COMPLETED", [])]
)
def test_why_a_job_has_not_made_the_data_is_said(state, lines, settled, folder):
    made = leave_batch(folder, "first-9", [[]])
    fault = made.work_list(0).with_suffix(".error.json")
    fault.write_text(json.dumps({"message": "no room", "hint": "less data"}))

    assert settled(made, state) == lines
    assert read_batches(folder)[0].open_workers() == []
