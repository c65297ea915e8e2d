"""One worker's session on one cell: how it finds the record, and leaves it to others."""

from __future__ import annotations

import errno
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict

from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts, usable
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError
from campaign.storage import emulation, provenance
from campaign.worker import batch as batches
from jobs.judging import judge, paired, stopping
from jobs.model import reading
from jobs.model.codes import End, RunEnd
from jobs.model.record import Data, Provenance, Record, Session, Submission
from jobs.model.results import Addition, Role
from jobs.model.settings import Settings
from jobs.model.terms import terms_of
from jobs.model.work import ListedItem, WorkItem, WorkList
from jobs.system.clock import utc_now
from jobs.system.durable import keep_trying
from jobs.system.files import write_json


class TakenOverError(Exception):
    """Another worker has begun with the cell since this one did; the record is the other's now.

    `same_list`: the other has this very list. Slurm began the job again, and takes this worker for lost.
    """

    def __init__(self, *, same_list: bool) -> None:
        super().__init__("another worker has taken this cell over")
        self.same_list = same_list


class _Lease(TypedDict):
    """What counts of ``lease.json``, a session."""

    id: str
    token: str


def make_sure_it_is_ours(folder: CampaignFolder, recorded: Record) -> None:
    """Check that the last session in this record, which is the caller's, may still write it.

    The lease is a file of its own: a record that the other's worker had half written comes over ours, once, and not
    over our lease.
    """
    mine = recorded["sittings"][-1]
    try:
        lease = reading.read(folder.lease(recorded["cell"]["id"]), _Lease)
    except (FileNotFoundError, ValueError):
        refuse_removed(folder)
        return  # no worker leaves it so
    if lease["id"] != mine["id"]:
        raise TakenOverError(same_list=lease["token"] == mine["token"])


def _take_lease(folder: CampaignFolder, work: WorkList, cell_id: str, session: Session) -> None:
    """Take the cell over from any other worker that may be alive: it finds out before it writes again."""
    path = folder.lease(cell_id)

    def put() -> None:
        refuse_removed(folder)
        for each in (folder.records, path.parent):
            each.mkdir(mode=0o700, exist_ok=True)
        write_json(path, session)

    keep_trying(put, patience_of(work))


def refuse_removed(folder: CampaignFolder) -> None:
    """End a job whose campaign folder was removed; a folder whose disk is away for a while is waited for.

    The working directory of a job, which lies in that folder, tells one from the other: it has no link any more.
    """
    try:
        is_removed = Path().stat().st_nlink == 0
    except OSError as error:
        is_removed = error.errno in (errno.ENOENT, errno.ESTALE)
    if is_removed:
        raise EnvironmentFaultError(
            f"{folder.root} was removed while a job of its campaign ran", "the job ends, and makes nothing anew"
        )


def patience_of(work: WorkList) -> float:
    """Seconds for which a worker waits for a disk; on a workstation somebody is there to repair it."""
    return float(work["conduct"]["cluster"]["save_patience_s"]) if work["cluster"] == "slurm" else 0.0


def verdict(folder: CampaignFolder, work: WorkList, cell_id: str) -> bool | None:
    """Return whether a cell is done where nothing is left to do for this worker; None where there is.

    A later submission has it: this worker was taken for lost, or comes out of the queue again. Or this very list has
    brought it to its end before it was requeued; its end stands, be it good or bad.
    """
    try:
        recorded = record.read(folder.record(cell_id))
        if recorded is None:
            return None
        if recorded["campaign"].get("submitted_utc", "") > work["submitted_utc"]:
            return True
        if recorded["campaign"].get("token") != work["token"] or recorded["status"] == "running":
            return None
        return Verdicts(folder, terms_of(work["conduct"])).judged(recorded)["status"] == "done"
    except record.DamagedRecordError:
        return None


def begin(folder: CampaignFolder, work: WorkList, item: ListedItem | WorkItem) -> tuple[Record, int]:
    """Read the cell's record or make one; what may not be continued is set aside, never overwritten.

    Returns the record and how many measured runs it owes: by the record, for a list may come out of the queue a second
    time. Where the item has no dataset the session can do no more than say why.
    """
    data: Data = item["dataset"] or {}
    path = data.get("disk") or data.get("path") or item["settings"]["storage"]["root"]
    here = provenance.node(item["settings"], path, item["targets"], data.get("staged", {}).get("root"))
    campaign = _submission(work, item["position"])
    session: Session = {**campaign, "id": secrets.token_hex(4), "started_utc": utc_now(), "slurm": here["slurm"]}
    _take_lease(folder, work, item["id"], session)
    recorded = _continued(folder.record(item["id"]), work, item, here)
    if recorded is None:
        cell = Cell(item["id"], item["benchmark"], item["version"], item["settings"], item["access"])
        recorded = record.new(cell, campaign, data, terms_of(work["conduct"]))
        recorded["provenance"] = {**here, "started_utc": utc_now()}
    threads = item["settings"].get("threads") if recorded["cell"]["data"] == "images" else None
    recorded["provenance"] = emulation.with_expected(recorded["provenance"], data, threads)
    recorded["dataset"], recorded["terms"] = recorded["dataset"] or data, terms_of(work["conduct"])
    record.fail_open_runs(recorded, _why_cut(folder, recorded))
    judged = Verdicts(folder, recorded["terms"]).judged(recorded)
    owed = stopping.owed_runs(judged, recorded["terms"])  # a done cell's few invalid runs are not repeated
    recorded["status"], recorded["campaign"] = "running", campaign
    recorded.setdefault("sittings", []).append(session)
    recorded["provenance"]["finished_utc"] = None
    return recorded, owed


def _why_cut(folder: CampaignFolder, recorded: Record) -> End:
    """Return why runs that are under way came to no end: as their worker ended, where that was found out."""
    cell, tokens = recorded["cell"]["id"], {run.get("token") for run in recorded["runs"] if run["status"] == "running"}
    ends = [
        batch.ended[index]
        for batch in (batches.read_all(folder) if tokens else ())
        for index, cells in enumerate(batch.cells)
        if batch.token in tokens and cell in cells and index in batch.ended
    ]
    end: End = {"code": RunEnd.WORKER_ENDED}
    return {**end, "worker": ends[-1]} if ends else end


def _submission(work: WorkList, position: int) -> Submission:
    conduct = work["conduct"]
    return {
        "token": work["token"],
        "words": work["words"],
        "submitted_utc": work["submitted_utc"],
        "order_seed": conduct["order_seed"],
        "size": conduct["size"],
        "site": conduct["site"]["name"],
        "position": position,
        "attempt": work.get("attempt", 0),
    }


class Turn(NamedTuple):
    """A run still to be done: its role, why ``until_spread`` adds it (if so), and the number of its pair (if any)."""

    role: Role
    added: Addition | None = None
    pair: int | None = None


def turns(recorded: Record, owed: int, verdicts: Verdicts) -> Iterator[Turn]:
    """Yield the runs of a session.

    Asked for one by one: what the runs before gave is in the record then. As many are begun as the cell may have in
    all, be they valid or not: where nothing is valid it ends.
    """
    terms = recorded["terms"]

    def why_add() -> Addition | None:
        return stopping.reason_to_add(verdicts.judged(recorded), terms)

    if not owed and why_add() is None:
        return
    room = stopping.most_missing_runs(verdicts.judged(recorded), terms)
    # A warm-up belongs to a session, not to a record: after a break the machine is cold in ways no check sees.
    yield from [Turn("warmup")] * terms["warmup_runs"]
    in_pairs = paired.asked(recorded["cell"]["settings"], terms)
    for place in range(room):
        added = None if place < owed else why_add()
        if place >= owed and added is None:
            return
        if in_pairs:
            number = len(stopping.measured(recorded))
            yield from [Turn(role, added if role == "measured" else None, number) for role in paired.order(recorded)]
        else:
            yield Turn("measured", added)


def next_pair(folder: CampaignFolder, items: Iterable[ListedItem]) -> int:
    """Return the number of the next pair of runs of cells that take turns: of all of them the same."""
    records = [record.read_or_fault(folder.record(item["id"]))[0] for item in items]
    return 1 + max((run.get("pair", -1) for each in records if each for run in each["runs"]), default=-1)


def _continued(path: Path, work: WorkList, item: ListedItem | WorkItem, here: Provenance) -> Record | None:
    """Return the record to go on with; None where there is none, or it was set aside."""
    try:
        recorded = record.read(path)
        if recorded:
            with usable(path):
                judge.judged(recorded, terms_of(work["conduct"]))
    except record.DamagedRecordError:
        _set_aside(path, "damaged", patience_of(work))
        return None
    if recorded is None:
        return None
    if work["conduct"]["redo"] and recorded["campaign"]["token"] != work["token"]:
        _set_aside(path, "superseded", patience_of(work))
        return None
    data = item["dataset"] or recorded["dataset"]
    if provenance.difference(recorded, data, here, shared=item["access"]["shared"]):
        _set_aside(path, "elsewhere", patience_of(work))
        return None
    return recorded


def with_dataset(folder: CampaignFolder, item: ListedItem, progress: Progress = lambda *_: None) -> WorkItem:
    """Make the cell's data where this node is to: on a storage of its own, or what is too much for a login node."""
    data = item["dataset"]
    if data is None:
        from campaign.storage import datasets  # noqa: PLC0415 - numpy, and rare

        settings: Settings = {**item["settings"], "storage": {**item["settings"]["storage"]}}
        settings["storage"] |= {"root": root} if (root := item.get("root")) else {}
        data = datasets.on_this_node(settings, folder, progress)
    return {**item, "dataset": data}


def _set_aside(path: Path, why: str, patience_s: float) -> None:
    """Move a record and its logs into a folder beside it: nothing is lost, and the analysis does not read it."""
    prefix = f"{why}-{utc_now().replace(':', '')}-"
    aside = Path(keep_trying(lambda: tempfile.mkdtemp(prefix=prefix, dir=path.parent), patience_s))
    kept = ("run-*.*", "trace-*.csv", "profile-*.npz", "tensorflow-*.npz", "engine-*.txt", "timelog-*.timelog")
    left = [file for pattern in kept for file in path.parent.glob(pattern)]
    for file in (*left, path):  # the record last: without it they would seem nobody's
        keep_trying(partial(file.replace, aside / file.name), patience_s)
