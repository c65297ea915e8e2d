"""Conclude the state of a worker and of its cells from all sources of information.

============= =========================================================================================
the record    whether the cell has a record; its state or verdict; the submission that wrote it last
the batch     whether sbatch refused the jobs, how workers ended, and which workers `cancel` ended
the scheduler whether Slurm knows the job, and whether the job waits, runs or has ended (`campaign.slurm.scheduler`)
the lease     whether a worker process runs on this machine (`CampaignFolder.is_worker_running`)
the log       the error message of a worker, or the last line of its log
============= =========================================================================================

The commands `status`, `show` and `run` show the state that `conclude_cell_state` returns.
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

    UNKNOWN = "unknown"  # the scheduler has not reported the worker yet
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class WorkerState:
    """The state of a worker, as its scheduler or the process table reports it."""

    phase: Phase
    wait: Wait | None = None  # the reason why a queued worker waits, or that a running job is suspended
    node_or_job: str = ""  # node name or job id; empty if unknown
    end: WorkerEnd | None = None  # how the worker ended; None while it has not ended


SILENT_WORKER = WorkerState(Phase.UNKNOWN, {"code": Waiting.SILENT})


def ended_state(batch: Batch, index: int, end: WorkerEnd, where: str = "") -> WorkerState:
    """Return the state of a worker that has ended, with its error message or the last line of its log."""
    if end["code"] == JobEnd.COMPLETED:
        pass
    elif fault := batch.worker_error(index):
        end = {**end, "code": JobEnd.ERROR, "words": fault["message"], "cure": fault["hint"]}
    elif end["code"] in (JobEnd.LOST, JobEnd.CANCELLED) and index in batch.cancelled_workers():
        # Without accounting, Slurm immediately forgets a cancelled job that never started: such a job is LOST.
        end = {**end, "code": JobEnd.CANCELLED, "by": _CANCEL}
    elif end["code"] not in INTERRUPTING - {JobEnd.LOST} and (words := batch.last_log_line(index, end.get("node"))):
        end = {**end, "words": words}
    return WorkerState(Phase.ENDED, None, where, end)


def conclude_cell_state(recorded: CellState, worker: WorkerState | None, *, is_own: bool, is_next: bool) -> CellState:
    """Return the state of a cell that `status` shows.

    Parameters
    ----------
    recorded
        The state that the record alone gives: damaged, running or a verdict. A cell without a record is planned.
    worker
        The last worker that had the cell in its work list. None if no worker had the cell, or if that worker never
        started.
    is_own
        Whether `worker` wrote the record.
    is_next
        Whether the cell is the first unfinished cell in the work list of `worker`.
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
