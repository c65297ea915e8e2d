"""Follow the records that workers write: the record on disk is the first witness, the scheduler the second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cells.plan import Entry
from campaign.cells.verdicts import Verdicts
from campaign.worker.batch import Batch, read_file
from campaign.worker.disturbance import QUIET
from jobs.model.conduct import Conduct
from jobs.model.record import Record
from jobs.model.results import Run
from jobs.model.settings import Settings
from jobs.model.terms import Terms, terms_of
from jobs.model.work import WorkList

OVER = ("done", "invalid", "failed")


@dataclass(frozen=True)
class Seen:
    """How a worker is, as its scheduler (or the process table) reports."""

    state: str  # ``unknown`` (nobody has reported yet, so its records are read), ``queued``, ``running`` or ``ended``
    why: str = ""  # reason of the queue, or how it ended
    where: str = ""  # node or job, if known
    left: str = "interrupted"  # what the cells are that it left behind, once it has ended; or ``failed``


class Share(NamedTuple):
    """One cell of a worker's list, and how many runs it lacks, at least and at most, warm-ups apart."""

    cell: str
    missing: int
    at_most: int
    settings: Settings


@dataclass
class Follower:
    """Reads the record of the cell that a worker has under way, and moves on when it is over."""

    folder: CampaignFolder
    cells: Sequence[Share]  # of the worker, in its order
    warmup_runs: int
    token: str  # the submission's own: a record of an earlier one is not taken for news
    terms: Terms | None = None  # by which it judges; None: those of the worker
    outcomes: Counter[str] = field(default_factory=Counter)  # how many of its cells are done, invalid, failed
    current: tuple[str, Run] | None = None  # ``(cell id, run)`` under way, if any
    waits_for: str = ""
    cells_over: int = 0
    runs_over: int = 0
    _reported: int = 0

    @classmethod
    def of(cls, folder: CampaignFolder, batch: Batch, index: int) -> Follower:
        """Follow one worker of a batch, by its work list."""
        path = batch.work_list(index)
        if not path.exists():  # its front process was killed before it could submit
            return cls(folder, [Share(cell, 0, 0, {}) for cell in batch.cells[index]], 0, batch.token)
        work = read_file(path, WorkList)
        cells = [Share(item["id"], item["missing"], item["at_most"], item["settings"]) for item in work["cells"]]
        return cls(folder, cells, work["conduct"]["warmup_runs"], batch.token, terms_of(work["conduct"]))

    @classmethod
    def to_be(cls, folder: CampaignFolder, entries: Sequence[Entry], conduct: Conduct, token: str = "") -> Follower:
        """Follow a worker that is to get these cells."""
        cells = [Share(entry.cell.id, entry.missing, entry.at_most, entry.cell.settings) for entry in entries]
        return cls(folder, cells, conduct["warmup_runs"], token, terms_of(conduct))

    @property
    def runs_total(self) -> int:
        """How many runs there will have been.

        A cell that gives up early takes its missing runs out; a requeue adds the run that it interrupted and another
        warm-up.
        """
        return self.runs_over + sum(share.missing for share in self.left())

    @property
    def begun(self) -> bool:
        """Whether it has begun a run."""
        return bool(self.runs_over or self.current)

    def left(self) -> list[Share]:
        """Return the cells that are not over, with the runs that they have to go, warm-ups with them."""
        shares = []
        for place, share in enumerate(self.cells[self.cells_over :]):
            more = self.warmup_runs - (0 if place else self._reported)
            shares.append(share._replace(missing=max(0, share.missing + more), at_most=max(0, share.at_most + more)))
        return shares

    @property
    def finished(self) -> bool:
        """Whether all of its cells are over; one that makes data has none, and is over when its job is."""
        return 0 < len(self.cells) == self.cells_over

    def news(self) -> list[tuple[str, Run]]:
        """Read the records; returns ``(cell id, run)`` of each run that ended since the last call."""
        ended: list[tuple[str, Run]] = []
        self.current, self.waits_for = None, ""
        while self.cells_over < len(self.cells):
            cell = self.cells[self.cells_over].cell
            recorded = self._read(cell)
            if recorded is None:
                break
            mine = [run for run in recorded["runs"] if run.get("token") == self.token]
            over = [run for run in mine if run["status"] != "running"]
            if len(over) > self._reported or recorded["status"] != "running":
                verdict = Verdicts(self.folder, self.terms).judged(recorded)
                over = [run for run in verdict["runs"] if run.get("token") == self.token and run["status"] != "running"]
            ended += [(cell, run) for run in over[self._reported :]]
            self._reported = len(over)
            running = next((run for run in mine if run["status"] == "running"), None)
            if running or recorded["status"] == "running":
                self.current = (cell, running) if running else None
                self.waits_for = "" if running else _awaited(recorded["reason"])
                break
            self.outcomes[verdict["status"]] += 1
            self.cells_over, self._reported = self.cells_over + 1, 0
        self.runs_over += len(ended)
        return ended

    def _read(self, cell: str) -> Record | None:
        # A damaged one is of before: the worker sets it aside when it comes to it.
        recorded, _ = record.read_or_fault(self.folder.record(cell))
        return recorded if recorded and recorded["campaign"].get("token") == self.token else None


@dataclass(frozen=True)
class Picture:
    """All workers at one moment."""

    news: list[tuple[str, Run]]  # ``(cell id, run)`` of each run that ended since the last picture
    # Cells that are ``planned`` (behind another one of their worker), ``queued``, ``running``, ``done``, ``failed``,
    # ``invalid``, ``interrupted`` (their worker was ended without them).
    counts: Counter[str]
    reasons: Counter[str]  # the scheduler's reasons, with the number of workers each keeps waiting
    running: list[tuple[str, Run, str]]  # ``(cell id, run, where)`` of each run under way
    runs_over: int
    runs_total: int
    workers: Sequence[Follower] = ()  # that have not ended


class Watched:
    """Several workers, each with its follower, by whatever names a worker."""

    def __init__(self, followers: Mapping[Hashable, Follower]) -> None:
        self.followers = followers
        self._closed: set[Hashable] = set()

    def picture(self, seen: Mapping[Any, Seen]) -> Picture:
        """Read the records of those that may have written some."""
        news: list[tuple[str, Run]] = []
        counts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        running: list[tuple[str, Run, str]] = []
        for key, follower in self.followers.items():
            state = seen[key].state
            if key not in self._closed and state != "queued":
                news += follower.news()
                if state == "ended" or follower.finished:
                    self._closed.add(key)
            counts.update(follower.outcomes)
            counts.update(_rest(follower, seen[key]))
            if follower.current and state in ("running", "unknown"):
                running.append((*follower.current, seen[key].where))
            elif state == "running" and follower.waits_for:
                reasons[follower.waits_for] += 1
            elif state in ("queued", "unknown") and not follower.finished:
                reasons[seen[key].why] += 1
        over = sum(follower.runs_over for follower in self.followers.values())
        total = sum(follower.runs_total for follower in self.followers.values())
        workers = [follower for key, follower in self.followers.items() if key not in self._closed]
        return Picture(news, counts, reasons, running, over, total, workers)

    def finished(self) -> list[Any]:
        """List the workers whose cells are all over."""
        return [key for key, follower in self.followers.items() if follower.finished]


def _awaited(reason: str | None) -> str:
    """Return what a worker waits for: a lock that somebody holds (`campaign.storage.locks.locked`), or quiet."""
    before, _, what = (reason or "").partition("waiting for ")
    return what if not before and (", held by " in what or what.startswith(QUIET)) else ""


def _rest(follower: Follower, seen: Seen) -> dict[str, int]:
    """Return what the cells of a worker are that are not over."""
    left = len(follower.cells) - follower.cells_over
    if left == 0 or seen.state == "queued" or (seen.state == "unknown" and not follower.current):
        return {"queued": left}
    if seen.state == "ended":
        return {seen.left: left}
    return {"running": 1, "planned": left - 1}


def until_over(
    watched: Watched, states: Callable[[], Mapping[Any, Seen]], show: Callable[[Picture], None], tick_s: float
) -> None:
    """Show progress until every worker has ended."""
    while True:
        seen = states()  # before the records are read, so that the last picture has all
        show(watched.picture(seen))
        if all(seen[key].state == "ended" for key in watched.followers):
            return
        time.sleep(tick_s)
