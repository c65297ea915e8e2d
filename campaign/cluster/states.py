"""The state of each cell of a campaign, with what shows why: records, batches and the scheduler are read and asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from campaign.cells.folder import CampaignFolder
from campaign.cells.record import DamagedRecordError
from campaign.cells.summaries import Summaries, Summary
from campaign.cells.verdicts import Verdicts, usable
from campaign.cluster import fleet
from campaign.cluster.conclude import SILENT, VERDICTS, Phase, WorkerState, concluded, ended
from campaign.slurm import client
from campaign.slurm.task import Key
from campaign.storage import emulation
from campaign.worker.batch import Batch, latest, read_all
from jobs.judging import stopping
from jobs.model.codes import CellState, JobEnd, WorkerEnd, wait_sentence, worker_sentence
from jobs.model.record import Manifest


class State(TypedDict):
    """The state of a cell."""

    status: CellState
    reason: str | None
    valid: int  # measured runs
    measured: int
    where: str | None  # it runs
    emulated: list[str]  # storages of its record
    end: WorkerEnd | None  # of the worker that left it behind


def states(folder: CampaignFolder, campaign: Manifest) -> dict[str, State]:
    """Return the state of every cell that was ever asked for or has a record."""
    asked = [cell for request in campaign["requests"] for cell in request.get("cells", ())]
    cells = dict.fromkeys([*asked, *folder.recorded()])
    summaries = Summaries(folder, campaign["requests"])  # before any record is read
    verdicts, made, at_work = Verdicts(folder, requests=campaign["requests"]), read_all(folder), folder.worker_at_work()
    last, records = latest(made), {cell: summaries.of(cell) or _recorded(verdicts, cell, summaries) for cell in cells}
    summaries.save()
    workers = _workers(made, _left_by(made, last, records), at_work=at_work)
    for (_, index), each in workers.items():
        if each.state and each.state.phase == Phase.ENDED and index not in each.batch.ended:
            records |= {cell: _recorded(verdicts, cell) for cell in each.left}  # written while the scheduler was asked
    following = {each.left[0] for each in workers.values()}
    found = {}
    for cell, recorded in records.items():
        batch, index = last.get(cell, (None, 0))
        own = workers.get((str(batch.folder), index)) if batch else None
        worker = own.state if own else None
        if batch is None and recorded.state == CellState.RUNNING and at_work is not False:  # its batch was removed
            worker = WorkerState(Phase.UNKNOWN)
        found[cell] = _state(recorded, batch, worker, is_next=cell in following)
    return found


@dataclass
class _Owner:
    """A worker that had cells last, those of them that it has not brought to their end, and how it is."""

    batch: Batch
    left: list[str]
    has_begun: bool  # it has written a record
    state: WorkerState | None = None  # None: it never began


def _left_by(made: list[Batch], last: dict[str, tuple[Batch, int]], records: dict[str, Summary]) -> dict[Key, _Owner]:
    """Return the workers that have cells left, each with these in the order in which it takes them."""
    found = {}
    for batch in made:
        for index, cells in enumerate(batch.cells):
            mine = [cell for cell in cells if cell in records and last[cell] == (batch, index)]
            if left := [cell for cell in mine if not _is_over_by(batch, records[cell])]:
                has_begun = any(records[cell].token == batch.token for cell in mine)
                found[str(batch.folder), index] = _Owner(batch, left, has_begun)
    return found


def _workers(made: list[Batch], owners: dict[Key, _Owner], *, at_work: bool | None) -> dict[Key, _Owner]:
    """Find out how workers are; the scheduler is asked where the end of one is not known. `at_work`: one is here."""
    here, unknown = [batch.folder for batch in made if batch.cluster != "slurm"], []
    for (folder, index), owner in owners.items():
        batch = owner.batch
        if index in batch.ended:
            owner.state = WorkerState(Phase.ENDED, end=batch.ended[index])
        elif batch.cluster == "slurm":
            unknown += [] if batch.refused else [(folder, index)]
        elif at_work is not False and batch.folder == here[-1]:  # this machine has one worker
            owner.state = WorkerState(Phase.RUNNING if at_work else Phase.UNKNOWN)
        elif owner.has_begun or batch.fault(index):  # else it may be about to start
            owner.state = ended(batch, index, {"code": JobEnd.GONE})
    if unknown:
        workers = fleet.Fleet(made, client.facts())
        workers.settle()
        for key in unknown:
            is_silent = workers.silent_s and workers.seen[key].phase != Phase.ENDED
            owners[key].state = SILENT if is_silent else workers.seen[key]
    return owners


def _state(recorded: Summary, batch: Batch | None, worker: WorkerState | None, *, is_next: bool) -> State:
    """Return what is concluded of a cell, with the reason."""
    is_own = batch is None or recorded.token == batch.token
    status, reason, end = concluded(recorded.state, worker, is_own=is_own, is_next=is_next), recorded.reason, None
    is_at_work = worker is not None and worker.phase == Phase.RUNNING
    if worker and worker.end and status != recorded.state:
        end = worker.end
        reason = worker_sentence(end)
    elif worker and worker.wait and status in (CellState.QUEUED, CellState.RUNNING):
        reason = wait_sentence(worker.wait)
    elif status == CellState.RUNNING and not (is_own and recorded.state == status):
        reason = "starting"
    elif batch and batch.refused and status in (CellState.PLANNED, CellState.UNFINISHED, CellState.INTERRUPTED):
        reason = f"Slurm refused it: {batch.refused}"
    elif status in (CellState.QUEUED, CellState.INTERRUPTED):
        reason = None
    return {
        "status": status,
        "reason": reason,
        "valid": recorded.valid,
        "measured": recorded.measured,
        "where": worker.where if worker and is_at_work and status == CellState.RUNNING else None,
        "emulated": list(recorded.emulated),
        "end": end,
    }


def _is_over_by(batch: Batch, recorded: Summary) -> bool:
    """Return whether the submission of a batch has brought a cell to its end."""
    return recorded.token == batch.token and recorded.state in (*VERDICTS, CellState.UNFINISHED)


def _recorded(verdicts: Verdicts, cell: str, summaries: Summaries | None = None) -> Summary:
    """Return what the record of a cell says, and have it remembered."""
    path = verdicts.folder.record(cell)
    recorded, fault = verdicts.read(path)
    if recorded is None:
        return Summary(CellState.DAMAGED, fault) if fault else Summary()
    try:
        with usable(path):
            emulated = emulation.names(recorded["cell"]["settings"], recorded["provenance"])
            waiting = f"waiting for {wait_sentence(wait)}" if (wait := recorded.get("waits_for")) else None
    except DamagedRecordError as error:
        return Summary(CellState.DAMAGED, error.message)
    summary = Summary(
        CellState(recorded["status"]),
        waiting or recorded["reason"],
        recorded["campaign"]["token"],
        len(stopping.measured(recorded, "valid")),
        len(stopping.measured(recorded)),
        tuple(emulated),
    )
    if summaries:
        summaries.remember(cell, summary)
    return summary
