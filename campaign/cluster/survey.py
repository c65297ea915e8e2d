"""Find the state of each cell of a campaign, with the reason, and find the cells to try again.

This module reads records and batches and asks the scheduler. `campaign.cluster.cell_state` concludes the state from
these sources.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TypedDict

from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import Plan
from campaign.cells.folder import CampaignFolder
from campaign.cells.record import DamagedRecordError
from campaign.cells.verdicts import Summaries, Summary, Verdicts, require_usable
from campaign.cluster import fleet
from campaign.cluster.cell_state import SILENT_WORKER, VERDICTS, Phase, WorkerState, conclude_cell_state, ended_state
from campaign.console import count_noun
from campaign.slurm import client
from campaign.slurm.scheduler import TaskKey
from campaign.storage import emulation
from campaign.worker.batch import Batch, last_workers, read_batches
from jobs.judging import stopping
from jobs.model.codes import CellState, JobEnd, WorkerEnd, wait_sentence, worker_sentence
from jobs.model.record import Manifest


class StateOfCell(TypedDict):
    """The state of a cell, with the reason for this state."""

    status: CellState
    reason: str | None
    valid: int  # number of valid measured runs
    measured: int  # number of measured runs
    where: str | None  # the node or job that runs the cell; None if the cell does not run now
    emulated: list[str]  # names of the emulated storages in the cell's record
    end: WorkerEnd | None  # the end of the worker that left the cell unfinished, if that is the reason


def cell_states(folder: CampaignFolder, campaign: Manifest) -> dict[str, StateOfCell]:
    """Return the state of every cell that a command has requested or that has a record."""
    requested = [cell for request in campaign["requests"] for cell in request.get("cells", ())]
    cells = dict.fromkeys([*requested, *folder.recorded_cells()])
    summaries = Summaries(folder, campaign["requests"])  # must be created before the first record is read
    verdicts, batches = Verdicts(folder, requests=campaign["requests"]), read_batches(folder)
    last_worker, has_local_worker = last_workers(batches), folder.is_worker_running()
    records = {cell: summaries.cached_summary(cell) or _summarise_record(verdicts, cell, summaries) for cell in cells}
    summaries.save()
    owners = _find_worker_states(
        batches, _owners_of_cells(batches, last_worker, records), has_local_worker=has_local_worker
    )
    for (_, index), owner in owners.items():
        if owner.state and owner.state.phase == Phase.ENDED and index not in owner.batch.ended:
            # The worker has just ended. Read its records again, because they may have changed meanwhile.
            records |= {cell: _summarise_record(verdicts, cell) for cell in owner.unfinished}
    next_cells = {owner.unfinished[0] for owner in owners.values()}
    states = {}
    for cell, summary in records.items():
        batch, index = last_worker.get(cell, (None, 0))
        owner_of_cell = owners.get((str(batch.folder), index)) if batch else None
        worker = owner_of_cell.state if owner_of_cell else None
        if (
            batch is None and summary.state == CellState.RUNNING and has_local_worker is not False
        ):  # the folder of the batch was removed, so the state of the worker is unknown
            worker = WorkerState(Phase.UNKNOWN)
        states[cell] = _conclude_state(summary, batch, worker, is_next=cell in next_cells)
    return states


@dataclass
class _Owner:
    """A worker, its state, and its unfinished cells; cells that a later worker has are left out."""

    batch: Batch
    unfinished: list[str]
    has_begun: bool  # whether the worker has written a record
    state: WorkerState | None = None  # None if the worker has not started


def _owners_of_cells(
    batches: list[Batch], last_worker: dict[str, tuple[Batch, int]], records: dict[str, Summary]
) -> dict[TaskKey, _Owner]:
    """Return the workers with unfinished cells; `_Owner.unfinished` has the order of the worker's work list."""
    owners = {}
    for batch in batches:
        for index, cells in enumerate(batch.cells):
            own_cells = [cell for cell in cells if cell in records and last_worker[cell] == (batch, index)]
            if unfinished := [cell for cell in own_cells if not _is_over_by(batch, records[cell])]:
                has_begun = any(records[cell].token == batch.token for cell in own_cells)
                owners[str(batch.folder), index] = _Owner(batch, unfinished, has_begun)
    return owners


def _find_worker_states(
    batches: list[Batch], owners: dict[TaskKey, _Owner], *, has_local_worker: bool | None
) -> dict[TaskKey, _Owner]:
    """Set the state of each worker in `owners`, and return `owners`; ask the scheduler about open Slurm workers.

    `has_local_worker` says whether a worker runs on this machine; None means unknown.
    """
    local_folders, unknown = [batch.folder for batch in batches if batch.cluster != "slurm"], []
    for (folder, index), owner in owners.items():
        batch = owner.batch
        if index in batch.ended:
            owner.state = WorkerState(Phase.ENDED, end=batch.ended[index])
        elif batch.cluster == "slurm":
            unknown += [] if batch.refused else [(folder, index)]
        elif has_local_worker is not False and batch.folder == local_folders[-1]:
            # At most one worker runs on this machine, so the running worker is the worker of the last batch.
            owner.state = WorkerState(Phase.RUNNING if has_local_worker else Phase.UNKNOWN)
        elif owner.has_begun or batch.worker_error(index):  # a worker without a record or an error may start soon
            owner.state = ended_state(batch, index, {"code": JobEnd.GONE})
    if unknown:
        workers = fleet.Fleet(batches, client.read_slurm_config())
        workers.refresh_until_explained()
        for key in unknown:
            is_silent = workers.silent_s and workers.states[key].phase != Phase.ENDED
            owners[key].state = SILENT_WORKER if is_silent else workers.states[key]
    return owners


def _conclude_state(summary: Summary, batch: Batch | None, worker: WorkerState | None, *, is_next: bool) -> StateOfCell:
    """Return the state of a cell, with the reason, from the cell's record and worker."""
    is_own = batch is None or summary.token == batch.token
    status = conclude_cell_state(summary.state, worker, is_own=is_own, is_next=is_next)
    reason, end = summary.reason, None
    runs_now = worker is not None and worker.phase == Phase.RUNNING and not worker.wait
    if worker and worker.end and status != summary.state:
        end = worker.end
        reason = worker_sentence(end)
    elif worker and worker.wait and status in (CellState.QUEUED, CellState.RUNNING):
        reason = wait_sentence(worker.wait)
    elif status == CellState.RUNNING and not (is_own and summary.state == status):
        reason = "starting"
    elif batch and batch.refused and status in (CellState.PLANNED, CellState.UNFINISHED, CellState.INTERRUPTED):
        reason = f"Slurm refused the job: {batch.refused}"
    elif status in (CellState.QUEUED, CellState.INTERRUPTED):
        reason = None
    return {
        "status": status,
        "reason": reason,
        "valid": summary.valid,
        "measured": summary.measured,
        "where": worker.node_or_job if worker and runs_now and status == CellState.RUNNING else None,
        "emulated": list(summary.emulated),
        "end": end,
    }


def _is_over_by(batch: Batch, summary: Summary) -> bool:
    """Return whether a worker of this batch has finished the cell."""
    return summary.token == batch.token and summary.state in (*VERDICTS, CellState.UNFINISHED)


def _summarise_record(verdicts: Verdicts, cell: str, summaries: Summaries | None = None) -> Summary:
    """Return the summary of a cell's record, and add it to the cache `summaries` if this is given."""
    path = verdicts.folder.record(cell)
    recorded, fault = verdicts.read(path)
    if recorded is None:
        return Summary(CellState.DAMAGED, fault) if fault else Summary()
    try:
        with require_usable(path):
            emulated = emulation.emulated_names(recorded["cell"]["settings"], recorded["provenance"])
            waiting = f"waiting for {wait_sentence(wait)}" if (wait := recorded.get("waits_for")) else None
    except DamagedRecordError as error:
        return Summary(CellState.DAMAGED, error.message)
    summary = Summary(
        CellState(recorded["status"]),
        waiting or recorded["reason"],
        recorded["campaign"]["token"],
        len(stopping.measured_runs(recorded, "valid")),
        len(stopping.measured_runs(recorded)),
        tuple(emulated),
    )
    if summaries:
        summaries.remember(cell, summary)
    return summary


# The recorded states of a cell that a worker left unfinished.
_LEFT = (CellState.PLANNED, CellState.RUNNING, CellState.UNFINISHED)
# The ends of a job that would be repeated by the next job, each with the reason that the user sees.
_ENDS_THAT_REPEAT = {
    JobEnd.CANCELLED: "cancelled",
    JobEnd.DEADLINE: "the job's deadline has passed",
    JobEnd.OUT_OF_MEMORY: "the job's memory did not suffice (cluster.mem_gb=… asks for more)",
    JobEnd.TIMEOUT: "the time limit was reached (cluster.timeout_min=… asks for more)",
}
_ENDS_OF_SCRIPT = (JobEnd.COMPLETED, JobEnd.FAILED)  # the script ended by itself, not because of Slurm or a node
_BEFORE_A_RUN = "the job failed before its first run"


def cells_to_retry(plan: Plan) -> tuple[list[Cell], list[str]]:
    """Return the cells to try again, and one line per reason why other cells are not tried again.

    Two kinds of cells are tried again: cells whose job ended before the cell was finished, and cells whose runs were
    disturbed by other programs.
    """
    batches = read_batches(plan.folder)
    last_worker = last_workers(batches)

    @cache
    def has_begun(token: str, cells: tuple[str, ...]) -> bool:
        """Return whether the submission with this token has written a record of one of these cells."""
        records = (record.read_or_fault(plan.folder.record(cell))[0] for cell in cells)
        return any(recorded is not None and recorded["campaign"].get("token") == token for recorded in records)

    retried: list[Cell] = []
    hindrances: Counter[str] = Counter()
    for entry in plan.to_do:
        is_left = entry.state in _LEFT
        if not (is_left or entry.disturbed):
            continue
        batch, index = last_worker.get(entry.cell.id, (None, 0))
        end = batch.ended.get(index) if batch else None
        hindrance = _retry_hindrance(end, is_left=is_left) if end else ""
        if batch and end and is_left and end["code"] in _ENDS_OF_SCRIPT:
            hindrance = hindrance if has_begun(batch.token, tuple(batch.cells[index])) else _BEFORE_A_RUN
        if hindrance:
            hindrances[hindrance] += 1
        else:
            retried.append(entry.cell)
    return retried, [
        f"{count_noun(number, 'cell')} not tried again: {hindrance}" for hindrance, number in hindrances.items()
    ]


def _retry_hindrance(end: WorkerEnd, *, is_left: bool) -> str:
    """Return the reason why a new worker would end in the same way as the last worker, or an empty text.

    If the last worker finished the cell (`is_left` is false), only a cancellation is such a reason.
    """
    if end["code"] == JobEnd.ERROR:
        return worker_sentence(end) if is_left else ""
    return _ENDS_THAT_REPEAT.get(end["code"], "") if is_left or end["code"] == JobEnd.CANCELLED else ""
