"""Follow the records that workers write, and show a campaign under way: as a live table, or as plain lines.

The record on disk is the first witness, the scheduler the second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from rich.console import Group
from rich.live import Live
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from campaign import console
from campaign.cells import record
from campaign.cells.cell_plan import Entry
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.cluster.cell_state import Phase, WorkerState, conclude_cell_state
from campaign.console import counted
from campaign.worker.batch import Batch, read_file
from jobs.model.codes import CellState, Wait, Waiting, wait_sentence
from jobs.model.conduct import Conduct
from jobs.model.record import Record, Terms, terms_of
from jobs.model.results import Run
from jobs.model.settings import Settings
from jobs.model.work import WorkList
from jobs.terminal import visible

_SUBMITTED: Wait = {"code": Waiting.SCHEDULER, "words": "submitted"}


class CellShare(NamedTuple):
    """A cell of a worker's list, with the number of runs that it lacks, at least and at most, without warm-ups."""

    cell: str
    missing: int
    at_most: int
    settings: Settings


@dataclass
class Follower:
    """Reads the record of the cell that a worker has under way, and moves on when the cell is over."""

    folder: CampaignFolder
    cells: Sequence[CellShare]  # of the worker, in its order
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
    def of_worker(cls, folder: CampaignFolder, batch: Batch, index: int) -> Follower:
        """Return the follower of one worker of a batch, by its work list."""
        path = batch.work_list(index)
        if not path.exists():  # its front process was killed before it could submit
            return cls(folder, [CellShare(cell, 0, 0, {}) for cell in batch.cells[index]], 0, batch.token)
        work = read_file(path, WorkList)
        cells = [CellShare(item["id"], item["missing"], item["at_most"], item["settings"]) for item in work["cells"]]
        conduct = work["conduct"]
        turns = conduct["in_turn"]
        return cls(folder, cells, conduct["warmup_runs"], batch.token, terms_of(conduct), in_turn=turns)

    @classmethod
    def of_entries(
        cls, folder: CampaignFolder, entries: Sequence[Entry], conduct: Conduct, token: str = ""
    ) -> Follower:
        """Return the follower of a worker that will get these cells."""
        cells = [CellShare(entry.cell.id, entry.missing, entry.at_most, entry.cell.settings) for entry in entries]
        turns = conduct["in_turn"]
        return cls(folder, cells, conduct["warmup_runs"], token, terms_of(conduct), in_turn=turns)

    @property
    def runs_total(self) -> int:
        """Return the number of runs that there will have been at the end.

        A cell that gives up early takes its missing runs out; a requeue adds the run that it interrupted and another
        warm-up.
        """
        return self.runs_over + sum(share.missing for share in self.shares_left())

    @property
    def begun(self) -> bool:
        """Return whether the worker has begun a run."""
        return bool(self.runs_over or self.current)

    def shares_left(self) -> list[CellShare]:
        """Return the cells that are not over, with the number of runs that they still lack, warm-ups included."""
        shares = []
        for share in (each for each in self.cells if each.cell not in self._over):
            more = self.warmup_runs - self._reported[share.cell]
            shares.append(share._replace(missing=max(0, share.missing + more), at_most=max(0, share.at_most + more)))
        return shares

    @property
    def is_finished(self) -> bool:
        """Return whether all cells of the worker are over; False for a worker that makes data, which has no cell."""
        return 0 < len(self.cells) == self.cells_over

    def read_news(self) -> list[tuple[str, Run]]:
        """Read the records; return ``(cell id, run)`` of each run that ended since the last call."""
        ended: list[tuple[str, Run]] = []
        self.current, self.waits_for, self._begun = None, None, set()
        for cell in [share.cell for share in self.cells if share.cell not in self._over]:
            ended += self._read_cell_news(cell)
            if cell not in self._over and not self.in_turn:
                break
        self.runs_over += len(ended)
        return sorted(ended, key=lambda each: each[1]["started_utc"]) if self.in_turn else ended

    def _read_cell_news(self, cell: str) -> list[tuple[str, Run]]:
        """Return the runs of one cell that ended since the last call."""
        recorded = self._read_record(cell)
        if recorded is None:
            return []
        own_runs = [run for run in recorded["runs"] if run.get("token") == self.token]
        over, verdict = [run for run in own_runs if run["status"] != "running"], recorded
        if len(over) > self._reported[cell] or recorded["status"] != "running":
            verdict = Verdicts(self.folder, self.terms).judged(recorded)
            over = [run for run in verdict["runs"] if run.get("token") == self.token and run["status"] != "running"]
        news = [(cell, run) for run in over[self._reported[cell] :]]
        self._reported[cell] = len(over)
        running = next((run for run in own_runs if run["status"] == "running"), None)
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
        """Return the number of cells that are not over by their states; `worker` is the state of the worker."""
        states: Counter[CellState] = Counter()
        left = [share for share in self.cells if share.cell not in self._over]
        for index, share in enumerate(left):
            is_own = share.cell in self._begun
            recorded = CellState.RUNNING if is_own else CellState.PLANNED
            if worker.phase == Phase.ENDED and recorded == CellState.PLANNED:  # what others measured before it stands
                judged, fault = Verdicts(self.folder, self.terms).read(self.folder.record(share.cell))
                recorded = CellState(judged["status"]) if judged else CellState.DAMAGED if fault else recorded
            states[conclude_cell_state(recorded, worker, is_own=is_own, is_next=not index)] += 1
        return states

    def _read_record(self, cell: str) -> Record | None:
        # A damaged one is of before: the worker sets it aside when it comes to it.
        recorded, _ = record.read_or_fault(self.folder.record(cell))
        return recorded if recorded and recorded["campaign"].get("token") == self.token else None


@dataclass(frozen=True)
class Picture:
    """The state of all workers at one moment."""

    news: list[tuple[str, Run]]  # ``(cell id, run)`` of each run that ended since the last picture
    counts: Counter[CellState]  # cells by their states
    waits: list[Wait]  # of each worker that waits
    running: list[tuple[str, Run, str]]  # ``(cell id, run, where)`` of each run under way
    runs_over: int
    runs_total: int
    workers: Sequence[Follower] = ()  # that have not ended


class WatchedWorkers:
    """Several workers, each with its follower, by the keys that the caller gives them."""

    def __init__(self, followers: Mapping[Hashable, Follower]) -> None:
        self.followers = followers
        self._closed: dict[Hashable, Counter[CellState]] = {}  # what became of the cells of workers that ended

    def take_picture(self, workers: Mapping[Any, WorkerState]) -> Picture:
        """Read the records of the workers that may have written some, and return the picture."""
        news: list[tuple[str, Run]] = []
        counts: Counter[CellState] = Counter()
        waits: list[Wait] = []
        running: list[tuple[str, Run, str]] = []
        for key, follower in self.followers.items():
            worker = workers[key]
            if key not in self._closed and worker.phase != Phase.QUEUED:
                news += follower.read_news()
                if worker.phase == Phase.ENDED or follower.is_finished:
                    self._closed[key] = follower.states_of_left(worker)
            counts.update(follower.outcomes)
            counts.update(self._closed[key] if key in self._closed else follower.states_of_left(worker))
            if follower.current and worker.phase in (Phase.RUNNING, Phase.UNKNOWN):
                running.append((*follower.current, worker.where))
            elif worker.phase == Phase.RUNNING and follower.waits_for:
                waits.append(follower.waits_for)
            elif worker.phase in (Phase.QUEUED, Phase.UNKNOWN) and not follower.is_finished:
                waits.append(worker.wait or _SUBMITTED)
        over = sum(follower.runs_over for follower in self.followers.values())
        total = sum(follower.runs_total for follower in self.followers.values())
        at_work = [follower for key, follower in self.followers.items() if key not in self._closed]
        return Picture(news, counts, waits, running, over, total, at_work)

    def finished_workers(self) -> list[Any]:
        """Return the keys of the workers whose cells are all over."""
        return [key for key, follower in self.followers.items() if follower.is_finished]


def show_until_over(
    watched: WatchedWorkers,
    states: Callable[[], Mapping[Any, WorkerState]],
    show: Callable[[Picture], None],
    tick_s: float,
) -> None:
    """Show a picture every `tick_s` seconds until every worker has ended."""
    while True:
        workers = states()  # before the records are read, so that the last picture has all
        show(watched.take_picture(workers))
        if all(workers[key].phase == Phase.ENDED for key in watched.followers):
            return
        time.sleep(tick_s)


_COLOURS = {
    CellState.RUNNING: "cyan",
    CellState.DONE: "green",
    CellState.FAILED: "red",
    CellState.INTERRUPTED: "red",
    CellState.INVALID: "yellow",
    CellState.UNFINISHED: "yellow",
}
_ROLES = {"warmup": "warm-up"}  # others are shown as they are recorded
_ROWS = 12  # runs under way that are shown one by one


@contextmanager
def open_display(
    to_go: Callable[[Picture], float | None], hindrance: Callable[[], str] = lambda: ""
) -> Iterator[Callable[[Picture], None]]:
    """Yield a function that shows a picture.

    `to_go` returns the remaining seconds, None if they are not known; `hindrance` returns why no news can come, empty
    if nothing hinders.
    """
    if console.stderr.is_terminal:
        with Live(console=console.stderr, auto_refresh=False, transient=True) as live:
            yield _LiveTable(live, to_go, hindrance)
    else:
        yield _PlainLines(hindrance)


class _LiveTable:
    """A table on a terminal that is drawn again for each picture."""

    def __init__(self, live: Live, to_go: Callable[[Picture], float | None], hindrance: Callable[[], str]) -> None:
        self._live, self._to_go, self._hindrance = live, to_go, hindrance
        self._bar = console.make_bar(TextColumn("{task.fields[to_go]}"))
        self._task = self._bar.add_task("runs", total=None, latest="", to_go="")
        self._rates: dict[str, str] = {}

    def __call__(self, picture: Picture) -> None:
        for cell, run in picture.news:
            if console.format_rate(run):
                self._rates[cell] = console.format_rate(run, 0)
            if run["status"] != "valid":
                self._live.console.print(visible(describe_run(cell, run)), style="yellow", markup=False)
        seconds = self._to_go(picture)
        to_go = "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
        self._bar.update(self._task, completed=picture.runs_over, total=picture.runs_total, to_go=to_go)
        rates = [rate for _, run in picture.news if (rate := console.format_rate(run, 0))]
        if rates:
            self._bar.update(self._task, latest=rates[-1])
        self._live.update(Group(self._cells(picture), self._runs(picture), self._bar), refresh=True)

    def _cells(self, picture: Picture) -> Table:
        table = Table.grid(padding=(0, 2))
        # No markup: a line printed above the table (markup=False) switches it off in the table, too.
        words = [
            Text(f"{state} {picture.counts[state]}", _COLOURS.get(state, "")) for state in _states_present(picture)
        ]
        why = Text(visible(self._hindrance() or _describe_queue(picture)))  # Slurm's words may hold brackets
        table.add_row("cells", *words, why)
        return table

    def _runs(self, picture: Picture) -> Table:
        table = Table.grid(padding=(0, 2))
        for cell, run, where in picture.running[:_ROWS]:
            role = _ROLES.get(run["role"], run["role"])
            row = (f"  {cell.rpartition('-')[0]}", f"run {run['run']} ({role})", self._rates.get(cell, ""), where)
            table.add_row(*map(Text, map(visible, row)))
        if len(picture.running) > _ROWS:
            table.add_row(f"  … and {len(picture.running) - _ROWS} more")
        return table


class _PlainLines:
    """One line for each run that ended, for a log file or a pipe."""

    def __init__(self, hindrance: Callable[[], str]) -> None:
        self._hindrance = hindrance
        self._said = ""

    def __call__(self, picture: Picture) -> None:
        for number, (cell, run) in enumerate(picture.news, start=picture.runs_over - len(picture.news) + 1):
            console.say(f"[{number}/{picture.runs_total}] {describe_run(cell, run)}")
        queue = self._hindrance() or _describe_queue(
            picture, lasting=True
        )  # what changes each moment is for a terminal
        if queue and queue != self._said:
            counts = ", ".join(f"{picture.counts[state]} {state}" for state in _states_present(picture))
            console.say(f"cells: {counts}; {queue}")
        self._said = queue


def _states_present(picture: Picture) -> list[CellState]:
    """Return the states that at least one cell has, in their order."""
    return [state for state in CellState if picture.counts[state]]


def _describe_queue(picture: Picture, *, lasting: bool = False) -> str:
    """Return how many jobs wait for which reason, in one line."""
    waits = Counter(wait_sentence(wait, lasting=lasting) for wait in picture.waits)
    return ", ".join(f"{counted(number, 'job')} waiting: {why}" for why, number in waits.most_common())


def describe_run(cell_id: str, run: Run) -> str:
    """Return one line about a run that ended."""
    role = "" if run["role"] == "measured" else f" ({_ROLES.get(run['role'], run['role'])})"
    what = f"{cell_id} run {run['run']}{role}"
    rate = console.format_rate(run) or "no figure"
    return f"{what}: {rate}" if run["status"] == "valid" else f"{what}: {rate}, {run['status']}: {run['reason']}"
