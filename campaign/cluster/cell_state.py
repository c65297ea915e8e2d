"""Conclude the state of a worker and of its cells from all sources; `status` shows the result.

============ ==========================================================================================
the record   of the cell: none, under way, or a verdict; and which submission wrote it last
the batch    whether sbatch refused its jobs, how workers ended (``ended.json``), which ones the verb cancelled
the scheduler whether the job waits, runs, has ended and how, or is unknown (`campaign.slurm.scheduler`)
the lease    of the worker on this machine: whether a process holds it (`CampaignFolder.is_worker_running`)
the log      the error that a worker left, or its last line
============ ==========================================================================================

`status`, `show` and the front process show what `conclude_cell_state` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from campaign.worker.batch import Batch
from jobs.model.codes import INTERRUPTING, CellState, JobEnd, Wait, Waiting, WorkerEnd

VERDICTS = frozenset({CellState.DONE, CellState.INVALID, CellState.FAILED})
_CANCEL = "python -m campaign cancel"


class Phase(StrEnum):
    """The phase of a worker's life."""

    UNKNOWN = "unknown"  # there is no report yet
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class WorkerState:
    """The state of a worker, as its scheduler or the process table reports it."""

    phase: Phase
    wait: Wait | None = None  # of a queued worker
    where: str = ""  # node or job, if known
    end: WorkerEnd | None = None  # of a worker that has ended


SILENT_WORKER = WorkerState(Phase.UNKNOWN, {"code": Waiting.SILENT})


def ended_state(batch: Batch, index: int, end: WorkerEnd, where: str = "") -> WorkerState:
    """Return the state of a worker that has ended: with its own error if it left one, else the last line of its log."""
    if end["code"] == JobEnd.COMPLETED:
        pass
    elif fault := batch.fault(index):
        end = {"code": JobEnd.ERROR, "words": fault["message"], "cure": fault["hint"]}
    elif (
        end["code"] == JobEnd.LOST and index in batch.cancelled_workers()
    ):  # Slurm forgets at once a job that never started
        end = {"code": JobEnd.CANCELLED, "by": _CANCEL}
    elif end["code"] not in INTERRUPTING and (words := batch.last_words(index)):
        end = {**end, "words": words}
    return WorkerState(Phase.ENDED, None, where, end)


def conclude_cell_state(recorded: CellState, worker: WorkerState | None, *, is_own: bool, is_next: bool) -> CellState:
    """Return the state of a cell, the word that `status` shows.

    Parameters
    ----------
    recorded
        The state by the record alone: planned without a record, else damaged, running, or a verdict.
    worker
        The last worker that was given the cell; None if there was none, or if it never began to work.
    is_own
        Whether that worker wrote the record.
    is_next
        Whether the cell is the first unfinished one in that worker's list.
    """
    is_over = recorded in VERDICTS or recorded == CellState.UNFINISHED
    if worker is None:
        return CellState.INTERRUPTED if recorded == CellState.RUNNING else recorded
    if is_own and is_over:
        return recorded
    if worker.phase == Phase.ENDED:
        if recorded in VERDICTS or recorded == CellState.DAMAGED or worker.end is None:
            return recorded
        return CellState.INTERRUPTED if worker.end["code"] in INTERRUPTING else CellState.FAILED
    is_begun = is_own and recorded == CellState.RUNNING
    if worker.phase == Phase.RUNNING and (is_begun or is_next):
        return CellState.RUNNING
    return CellState.RUNNING if worker.phase == Phase.UNKNOWN and is_begun else CellState.QUEUED
