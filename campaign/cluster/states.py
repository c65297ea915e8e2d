"""The state of each cell: by its record first, then by what the batch and the scheduler know of its worker."""

from __future__ import annotations

from typing import TypedDict

from campaign.cells.folder import CampaignFolder
from campaign.cells.record import DamagedRecordError
from campaign.cells.verdicts import Verdicts, usable
from campaign.cluster import fleet
from campaign.cluster.progress import OVER, Seen
from campaign.slurm import client
from campaign.storage import emulation
from campaign.worker import batch as batches
from jobs.judging import stopping
from jobs.model.record import Manifest


class State(TypedDict, total=False):
    """The state of a cell; every one that is returned has all of it."""

    status: str  # planned, queued, running, done, invalid, failed, interrupted or damaged
    reason: str | None
    valid: int  # measured runs
    measured: int
    where: str | None  # it runs
    emulated: list[str]  # storages of its record


def states(folder: CampaignFolder, campaign: Manifest) -> dict[str, State]:
    """Return the state of every cell that was ever asked for or has a record."""
    asked = dict.fromkeys(cell for request in campaign["requests"] for cell in request.get("cells", ()))
    recorded = sorted(path.parent.name for path in folder.records.glob("*/record.json"))
    witnesses, verdicts = _Witnesses(folder), Verdicts(folder, requests=campaign["requests"])
    found = {cell: witnesses.judge(cell, *_recorded(verdicts, cell)) for cell in dict.fromkeys([*asked, *recorded])}
    witnesses.ask_scheduler(verdicts, found)
    return found


class _Witnesses:
    """What the batches and the scheduler know of the workers that had the cells last."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._batches = batches.read_all(folder)
        self._of = batches.latest(self._batches)
        self._at_work = folder.worker_at_work()
        self._open: dict[str, tuple[tuple[str, int], bool]] = {}

    def judge(self, cell: str, state: State, token: str | None) -> State:
        """Correct what a record says (or that there is none) by what is known of the cell's last worker."""
        if state["status"] == "damaged":
            return state
        batch, index = self._of.get(cell, (None, 0))
        if batch is None or batch.cluster != "slurm":
            lost = state["status"] == "running" and self._at_work is False
            return {**state, "status": "interrupted"} if lost else state
        over = state["status"] in OVER
        if batch.refused or index in batch.ended:
            refused: State = {"status": "planned", "reason": f"Slurm refused it: {batch.refused}"}
            return state if over else {**state, **(refused if batch.refused else _of_end(batch.ended[index]))}
        if not (over and token == batch.token):
            begun = state["status"] == "running" and token == batch.token
            self._open[cell] = (str(batch.folder), index), begun
        return state

    def ask_scheduler(self, verdicts: Verdicts, found: dict[str, State]) -> None:
        """Ask the scheduler, once, for the cells in jobs whose end is not known."""
        if not self._open:
            return
        workers = fleet.Fleet(self._batches, client.facts())
        workers.settle()
        starting = self._starting()
        for cell, (key, begun) in self._open.items():
            seen = workers.seen[key]
            if seen.state == "ended":
                found[cell], _ = _recorded(verdicts, cell)  # its worker may have written it while Slurm was asked
            if seen.state != "ended" or found[cell]["status"] not in (*OVER, "damaged"):
                found[cell] |= (
                    _of_end(fleet.explained(workers.batch(key), key[1], seen.why))
                    if seen.state == "ended"
                    else _seen(seen, found[cell]["reason"], begun=begun, silent=bool(workers.silent_s))
                )
                if found[cell]["status"] == "planned" and cell in starting:
                    found[cell] |= {"status": "running", "reason": "starting"}

    def _starting(self) -> set[str]:
        """List the cells that workers take first which have written nothing yet: a running one is at their start."""
        first: dict[tuple[str, int], str] = {}
        for batch in self._batches:
            for index, cells in enumerate(batch.cells):
                key = (str(batch.folder), index)
                left = [cell for cell in cells if self._open.get(cell, (None, False))[0] == key]
                if left and not any(self._open[cell][1] for cell in left):
                    first[key] = left[0]
        return set(first.values())


def _of_end(why: str) -> State:
    return {"status": fleet.left_as(why), "reason": why}


def _seen(seen: Seen, reason: str | None, *, begun: bool, silent: bool) -> State:
    """Return the state of a worker that lives in words, for a cell that it has or has not begun."""
    if silent:
        return {"status": "running" if begun else "queued", "reason": "the scheduler does not answer"}
    if seen.state in ("queued", "unknown"):
        return {"status": "queued", "reason": seen.why or None}
    return {"status": "running" if begun else "planned", "reason": reason if begun else None, "where": seen.where}


def _recorded(verdicts: Verdicts, cell: str) -> tuple[State, str | None]:
    """Return the state by the record alone, and the token of the submission that wrote it."""
    nothing: State = {"status": "planned", "reason": None, "valid": 0, "measured": 0, "where": None, "emulated": []}
    path = verdicts.folder.record(cell)
    recorded, fault = verdicts.read(path)
    if recorded is None:
        return {**nothing, "status": "damaged", "reason": fault} if fault else nothing, None
    try:
        with usable(path):
            emulated = emulation.names(recorded["cell"]["settings"], recorded["provenance"])
    except DamagedRecordError as error:
        return {**nothing, "status": "damaged", "reason": error.message}, None
    state: State = {
        **nothing,
        "status": recorded["status"],
        "reason": recorded.get("reason"),
        "valid": len(stopping.measured(recorded, "valid")),
        "measured": len(stopping.measured(recorded)),
        "emulated": emulated,
    }
    return state, recorded["campaign"].get("token")
