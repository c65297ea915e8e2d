"""The one function that concludes what a cell is: every combination of what its record and its worker say."""

import itertools

import pytest

from campaign.cluster.cell_state import Phase, WorkerState, conclude_cell_state, ended_state
from jobs.model.codes import INTERRUPTING, CellState, JobEnd
from tests.campaign.on_disk import leave_batch

ON_DISK = ("planned", "running", "unfinished", "done", "invalid", "failed", "damaged")
# By the worker, whether it wrote the record, and whether the cell is its next one: the state for each of `ON_DISK`,
# where a verdict of the worker's own stands always, and - means that there can be no such record.
TABLE = """
worker       own  next  planned      running      unfinished   done    invalid  failed  damaged
none         no   no    planned      interrupted  unfinished   done    invalid  failed  damaged
none         yes  no    -            interrupted  unfinished   done    invalid  failed  -
queued       no   no    queued       queued       queued       queued  queued   queued  queued
queued       no   yes   queued       queued       queued       queued  queued   queued  queued
queued       yes  yes   -            queued       unfinished   done    invalid  failed  -
unknown      no   no    queued       queued       queued       queued  queued   queued  queued
unknown      no   yes   queued       queued       queued       queued  queued   queued  queued
unknown      yes  yes   -            running      unfinished   done    invalid  failed  -
running      no   no    queued       queued       queued       queued  queued   queued  queued
running      no   yes   running      running      running      running running  running running
running      yes  yes   -            running      unfinished   done    invalid  failed  -
interrupted  no   no    interrupted  interrupted  interrupted  done    invalid  failed  damaged
interrupted  no   yes   interrupted  interrupted  interrupted  done    invalid  failed  damaged
interrupted  yes  yes   -            interrupted  unfinished   done    invalid  failed  -
failed       no   no    failed       failed       failed       done    invalid  failed  damaged
failed       no   yes   failed       failed       failed       done    invalid  failed  damaged
failed       yes  yes   -            failed       unfinished   done    invalid  failed  -
"""
HEAD, *LINES = (line.split() for line in TABLE.strip().splitlines())
INTERRUPTED = [WorkerState(Phase.ENDED, end={"code": code}) for code in sorted(INTERRUPTING)]
FAILED = [WorkerState(Phase.ENDED, end={"code": code}) for code in JobEnd if code not in INTERRUPTING]
WORKERS = {"none": [None], "interrupted": INTERRUPTED, "failed": FAILED}
WORKERS |= {phase: [WorkerState(phase)] for phase in (Phase.QUEUED, Phase.UNKNOWN, Phase.RUNNING)}


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_cell_is_what_its_record_and_its_worker_say_together(line):
    assert HEAD[3:] == [*ON_DISK]
    worker, own, following, *states = line

    for state, recorded in zip(states, ON_DISK, strict=True):
        for each in WORKERS[worker] if state != "-" else ():
            found = conclude_cell_state(CellState(recorded), each, is_own=own == "yes", is_next=following == "yes")
            assert found == state, (recorded, each)


def test_every_phase_and_every_end_of_a_worker_is_in_the_table():
    every = [worker for workers in WORKERS.values() for worker in workers if worker]

    assert {worker.phase for worker in every} == {*Phase}
    assert {worker.end["code"] for worker in every if worker.end} == {*JobEnd}
    assert {(worker, own) for worker, own, *_ in LINES} == {*itertools.product(WORKERS, ("yes", "no"))}


FAULT = '{"message": "no TensorFlow", "hint": "install it"}'


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled by the verb"])
@pytest.mark.parametrize("fault", [False, True], ids=["", "left an error"])
@pytest.mark.parametrize("code", JobEnd)
def test_why_a_worker_ended_is_its_own_error_else_the_verb_s_else_slurm_s_with_the_last_line_of_its_log(
    code, fault, cancelled, folder
):
    batch = leave_batch(folder)
    (batch.folder / "70_0_0_log.err").write_text("its last line\n")
    if fault:
        batch.work_list(0).with_suffix(".error.json").write_text(FAULT)
    if cancelled:
        batch.save_cancelled([0])

    end = ended_state(batch, 0, {"code": code, "node": "n1"}, "n1").end

    if code == JobEnd.COMPLETED:  # with exit code 0: all is over, and nothing is left to be said
        assert end == {"code": code, "node": "n1"}
    elif fault:
        assert end == {"code": "ERROR", "node": "n1", "words": "no TensorFlow", "cure": "install it"}
    elif cancelled and code in (JobEnd.LOST, JobEnd.CANCELLED):
        assert end == {"code": "CANCELLED", "by": "python -m campaign cancel", "node": "n1"}
    else:
        assert ("its last line" in end.get("words", "")) is (code == JobEnd.LOST or code not in INTERRUPTING)
        assert (end["code"], end["node"]) == (code, "n1")
