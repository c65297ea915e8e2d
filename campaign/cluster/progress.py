"""Follow the records that workers write: the record on disk is the first witness, the scheduler the second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from campaign.cells import record
from campaign.cells.cell_plan import Entry
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.cluster.conclude import Phase, WorkerState, concluded
from campaign.worker.batch import Batch, read_file
from jobs.model.codes import CellState, Wait, Waiting
from jobs.model.conduct import Conduct
from jobs.model.record import Record
from jobs.model.results import Run
from jobs.model.settings import Settings
from jobs.model.terms import Terms, terms_of
from jobs.model.work import WorkList

_SUBMITTED: Wait = {"code": Waiting.SCHEDULER, "words": "submitted"}


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
    outcomes: Counter[CellState] = field(default_factory=Counter)  # how many of its cells are done, invalid, failed
    current: tuple[str, Run] | None = None  # ``(cell id, run)`` under way, if any
    waits_for: Wait | None = None
    cells_over: int = 0
    runs_over: int = 0
    in_turn: bool = False  # whether its cells take turns, so that several are under way
    _reported: Counter[str] = field(default_factory=Counter)  # runs of each cell that has begun
    _begun: set[str] = field(default_factory=set)  # cells under way
    _over: set[str] = field(default_factory=set)  # cells

    @classmethod
    def of(cls, folder: CampaignFolder, batch: Batch, index: int) -> Follower:
        """Follow one worker of a batch, by its work list."""
        path = batch.work_list(index)
        if not path.exists():  # its front process was killed before it could submit
            return cls(folder, [Share(cell, 0, 0, {}) for cell in batch.cells[index]], 0, batch.token)
        work = read_file(path, WorkList)
        cells = [Share(item["id"], item["missing"], item["at_most"], item["settings"]) for item in work["cells"]]
        conduct = work["conduct"]
        turns = conduct["in_turn"]
        return cls(folder, cells, conduct["warmup_runs"], batch.token, terms_of(conduct), in_turn=turns)

    @classmethod
    def to_be(cls, folder: CampaignFolder, entries: Sequence[Entry], conduct: Conduct, token: str = "") -> Follower:
        """Follow a worker that is to get these cells."""
        cells = [Share(entry.cell.id, entry.missing, entry.at_most, entry.cell.settings) for entry in entries]
        turns = conduct["in_turn"]
        return cls(folder, cells, conduct["warmup_runs"], token, terms_of(conduct), in_turn=turns)

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
        for share in (each for each in self.cells if each.cell not in self._over):
            more = self.warmup_runs - self._reported[share.cell]
            shares.append(share._replace(missing=max(0, share.missing + more), at_most=max(0, share.at_most + more)))
        return shares

    @property
    def finished(self) -> bool:
        """Whether all of its cells are over; one that makes data has none, and is over when its job is."""
        return 0 < len(self.cells) == self.cells_over

    def news(self) -> list[tuple[str, Run]]:
        """Read the records; returns ``(cell id, run)`` of each run that ended since the last call."""
        ended: list[tuple[str, Run]] = []
        self.current, self.waits_for, self._begun = None, None, set()
        for cell in [share.cell for share in self.cells if share.cell not in self._over]:
            ended += self._news_of(cell)
            if cell not in self._over and not self.in_turn:
                break
        self.runs_over += len(ended)
        return sorted(ended, key=lambda each: each[1]["started_utc"]) if self.in_turn else ended

    def _news_of(self, cell: str) -> list[tuple[str, Run]]:
        """Return the runs of one cell that ended since the last call; one that is over has no more of them."""
        recorded = self._read(cell)
        if recorded is None:
            return []
        mine = [run for run in recorded["runs"] if run.get("token") == self.token]
        over, verdict = [run for run in mine if run["status"] != "running"], recorded
        if len(over) > self._reported[cell] or recorded["status"] != "running":
            verdict = Verdicts(self.folder, self.terms).judged(recorded)
            over = [run for run in verdict["runs"] if run.get("token") == self.token and run["status"] != "running"]
        news = [(cell, run) for run in over[self._reported[cell] :]]
        self._reported[cell] = len(over)
        running = next((run for run in mine if run["status"] == "running"), None)
        if running:
            self.current = (cell, running)
        elif recorded["status"] == "running":
            self.waits_for = self.waits_for or recorded.get("waits_for")
        else:
            self.outcomes[CellState(verdict["status"])] += 1
            self._over.add(cell)
            self.cells_over += 1
            return news
        self._begun.add(cell)
        return news

    def states_of_left(self, worker: WorkerState) -> Counter[CellState]:
        """Count the cells that are not over by their states; `worker` is how it is."""
        found: Counter[CellState] = Counter()
        left = [share for share in self.cells if share.cell not in self._over]
        for place, share in enumerate(left):
            is_own = share.cell in self._begun
            recorded = CellState.RUNNING if is_own else CellState.PLANNED
            if worker.phase == Phase.ENDED and recorded == CellState.PLANNED:  # what others measured before it stands
                judged, fault = Verdicts(self.folder, self.terms).read(self.folder.record(share.cell))
                recorded = CellState(judged["status"]) if judged else CellState.DAMAGED if fault else recorded
            found[concluded(recorded, worker, is_own=is_own, is_next=not place)] += 1
        return found

    def _read(self, cell: str) -> Record | None:
        # A damaged one is of before: the worker sets it aside when it comes to it.
        recorded, _ = record.read_or_fault(self.folder.record(cell))
        return recorded if recorded and recorded["campaign"].get("token") == self.token else None


@dataclass(frozen=True)
class Picture:
    """All workers at one moment."""

    news: list[tuple[str, Run]]  # ``(cell id, run)`` of each run that ended since the last picture
    counts: Counter[CellState]  # cells by their states
    waits: list[Wait]  # of each worker that waits
    running: list[tuple[str, Run, str]]  # ``(cell id, run, where)`` of each run under way
    runs_over: int
    runs_total: int
    workers: Sequence[Follower] = ()  # that have not ended


class Watched:
    """Several workers, each with its follower, by whatever names a worker."""

    def __init__(self, followers: Mapping[Hashable, Follower]) -> None:
        self.followers = followers
        self._closed: dict[Hashable, Counter[CellState]] = {}  # what became of the cells of workers that ended

    def picture(self, workers: Mapping[Any, WorkerState]) -> Picture:
        """Read the records of those that may have written some."""
        news: list[tuple[str, Run]] = []
        counts: Counter[CellState] = Counter()
        waits: list[Wait] = []
        running: list[tuple[str, Run, str]] = []
        for key, follower in self.followers.items():
            worker = workers[key]
            if key not in self._closed and worker.phase != Phase.QUEUED:
                news += follower.news()
                if worker.phase == Phase.ENDED or follower.finished:
                    self._closed[key] = follower.states_of_left(worker)
            counts.update(follower.outcomes)
            counts.update(self._closed[key] if key in self._closed else follower.states_of_left(worker))
            if follower.current and worker.phase in (Phase.RUNNING, Phase.UNKNOWN):
                running.append((*follower.current, worker.where))
            elif worker.phase == Phase.RUNNING and follower.waits_for:
                waits.append(follower.waits_for)
            elif worker.phase in (Phase.QUEUED, Phase.UNKNOWN) and not follower.finished:
                waits.append(worker.wait or _SUBMITTED)
        over = sum(follower.runs_over for follower in self.followers.values())
        total = sum(follower.runs_total for follower in self.followers.values())
        at_work = [follower for key, follower in self.followers.items() if key not in self._closed]
        return Picture(news, counts, waits, running, over, total, at_work)

    def finished(self) -> list[Any]:
        """List the workers whose cells are all over."""
        return [key for key, follower in self.followers.items() if follower.finished]


def until_over(
    watched: Watched, states: Callable[[], Mapping[Any, WorkerState]], show: Callable[[Picture], None], tick_s: float
) -> None:
    """Show progress until every worker has ended."""
    while True:
        workers = states()  # before the records are read, so that the last picture has all
        show(watched.picture(workers))
        if all(workers[key].phase == Phase.ENDED for key in watched.followers):
            return
        time.sleep(tick_s)
