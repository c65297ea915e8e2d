"""Follow the records that workers write, and show the progress of a campaign: as a live table, or as plain lines.

A record on disk is believed before the scheduler.
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
from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.cluster.cell_state import Phase, WorkerState, conclude_cell_state
from campaign.console import count_noun
from campaign.worker.batch import Batch, read_file
from jobs.model.codes import CellState, Wait, Waiting, wait_sentence
from jobs.model.conduct import Conduct
from jobs.model.record import Record, Terms, terms_of_conduct
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
    """Reads the record of a worker's present cell, and goes on to the next cell when this one is over."""

    folder: CampaignFolder
    cells: Sequence[CellShare]  # of the worker, in its order
    warmup_runs: int
    token: str  # of the submission; records of earlier submissions are ignored
    terms: Terms | None = None  # of the verdicts; None: those of each record
    outcomes: Counter[CellState] = field(default_factory=Counter)  # number of its cells by verdict
    current: tuple[str, Run] | None = None  # ``(cell id, run)`` of the run under way, if any
    waits_for: Wait | None = None
    cells_over: int = 0
    runs_over: int = 0
    in_turn: bool = False  # whether its cells take turns, so that several are under way
    _reported: Counter[str] = field(default_factory=Counter)  # number of reported runs by cell
    _begun: set[str] = field(default_factory=set)  # ids of the cells under way
    _over: set[str] = field(default_factory=set)  # ids of the finished cells

    @classmethod
    def of_worker(cls, folder: CampaignFolder, batch: Batch, index: int) -> Follower:
        """Return the follower of one worker of a batch, by its work list."""
        path = batch.work_list(index)
        if not path.exists():  # its front process was killed before it could submit
            return cls(folder, [CellShare(cell, 0, 0, {}) for cell in batch.cells[index]], 0, batch.token)
        work = read_file(path, WorkList)
        cells = [CellShare(item["id"], item["missing"], item["at_most"], item["settings"]) for item in work["cells"]]
        return cls._of_cells(folder, cells, work["conduct"], batch.token)

    @classmethod
    def of_entries(
        cls, folder: CampaignFolder, entries: Sequence[PlannedCell], conduct: Conduct, token: str = ""
    ) -> Follower:
        """Return the follower of a worker that will get these cells."""
        cells = [CellShare(entry.cell.id, entry.missing, entry.at_most, entry.cell.settings) for entry in entries]
        return cls._of_cells(folder, cells, conduct, token)

    @classmethod
    def _of_cells(cls, folder: CampaignFolder, cells: Sequence[CellShare], conduct: Conduct, token: str) -> Follower:
        return cls(folder, cells, conduct["warmup_runs"], token, terms_of_conduct(conduct), in_turn=conduct["in_turn"])

    @property
    def runs_total(self) -> int:
        """Return the expected number of runs at the end.

        It falls when a cell gives up early, and rises with a requeue: by the interrupted run and another warm-up.
        """
        return self.runs_over + sum(share.missing for share in self.shares_left())

    @property
    def has_begun(self) -> bool:
        """Return whether the worker has begun a run."""
        return bool(self.runs_over or self.current)

    def shares_left(self) -> list[CellShare]:
        """Return the cells that are not over, with the number of runs that they still lack, warm-ups included."""
        shares = []
        for share in (share for share in self.cells if share.cell not in self._over):
            change = self.warmup_runs - self._reported[share.cell]
            missing, at_most = max(0, share.missing + change), max(0, share.at_most + change)
            shares.append(share._replace(missing=missing, at_most=at_most))
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
        return sorted(ended, key=lambda news: news[1]["started_utc"]) if self.in_turn else ended

    def _read_cell_news(self, cell: str) -> list[tuple[str, Run]]:
        """Return the runs of one cell that ended since the last call."""
        recorded = self._read_record(cell)
        if recorded is None:
            return []
        own_runs = [run for run in recorded["runs"] if run.get("token") == self.token]
        ended_runs, judged = [run for run in own_runs if run["status"] != "running"], recorded
        if len(ended_runs) > self._reported[cell] or recorded["status"] != "running":
            judged = Verdicts(self.folder, self.terms).judged(recorded)
            ended_runs = [
                run for run in judged["runs"] if run.get("token") == self.token and run["status"] != "running"
            ]
        news = [(cell, run) for run in ended_runs[self._reported[cell] :]]
        self._reported[cell] = len(ended_runs)
        running = next((run for run in own_runs if run["status"] == "running"), None)
        if running:
            self.current = (cell, running)
        elif recorded["status"] == "running":
            self.waits_for = self.waits_for or recorded.get("waits_for")
        else:
            self.outcomes[CellState(judged["status"])] += 1
            self._over.add(cell)
            self.cells_over += 1
            return news
        self._begun.add(cell)
        return news

    def states_of_left(self, worker: WorkerState) -> Counter[CellState]:
        """Return the number of cells that are not over by their states; `worker` is the state of the worker."""
        states: Counter[CellState] = Counter()
        shares = [share for share in self.cells if share.cell not in self._over]
        for index, share in enumerate(shares):
            is_own = share.cell in self._begun
            recorded = CellState.RUNNING if is_own else CellState.PLANNED
            if (
                worker.phase == Phase.ENDED and recorded == CellState.PLANNED
            ):  # the verdict of an earlier worker stays valid
                judged_record, fault = Verdicts(self.folder, self.terms).read(self.folder.record(share.cell))
                recorded = (
                    CellState(judged_record["status"]) if judged_record else CellState.DAMAGED if fault else recorded
                )
            states[conclude_cell_state(recorded, worker, is_own=is_own, is_next=not index)] += 1
        return states

    def _read_record(self, cell: str) -> Record | None:
        # A damaged record is an earlier one: the worker sets it aside when it begins the cell.
        recorded, _ = record.read_or_fault(self.folder.record(cell))
        return recorded if recorded and recorded["campaign"].get("token") == self.token else None


@dataclass(frozen=True)
class WorkersPicture:
    """The state of all workers at one moment."""

    news: list[tuple[str, Run]]  # ``(cell id, run)`` of each run that ended since the last picture
    counts: Counter[CellState]  # cells by their states
    waits: list[Wait]  # of each worker that waits
    running: list[tuple[str, Run, str]]  # ``(cell id, run, where)`` of each run under way
    runs_over: int
    runs_total: int
    workers: Sequence[Follower] = ()  # the followers of workers that have not ended


class WatchedWorkers:
    """Several workers, each with its follower, by the keys that the caller gives them."""

    def __init__(self, followers: Mapping[Hashable, Follower]) -> None:
        self.followers = followers
        self._closed: dict[Hashable, Counter[CellState]] = {}  # states of the cells that ended workers left

    def take_picture(self, workers: Mapping[Any, WorkerState]) -> WorkersPicture:
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
        runs_over = sum(follower.runs_over for follower in self.followers.values())
        runs_total = sum(follower.runs_total for follower in self.followers.values())
        open_followers = [follower for key, follower in self.followers.items() if key not in self._closed]
        return WorkersPicture(news, counts, waits, running, runs_over, runs_total, open_followers)

    def finished_workers(self) -> list[Any]:
        """Return the keys of the workers whose cells are all over."""
        return [key for key, follower in self.followers.items() if follower.is_finished]


def show_until_over(
    watched: WatchedWorkers,
    states: Callable[[], Mapping[Any, WorkerState]],
    show: Callable[[WorkersPicture], None],
    tick_s: float,
) -> None:
    """Show a picture every `tick_s` seconds until every worker has ended."""
    while True:
        workers = states()  # before the records are read, so that the last picture is complete
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
    remaining_s: Callable[[WorkersPicture], float | None], hindrance: Callable[[], str] = lambda: ""
) -> Iterator[Callable[[WorkersPicture], None]]:
    """Yield a function that shows a picture.

    `remaining_s` returns the remaining seconds, None if they are not known; `hindrance` returns why no progress can be
    seen, empty if nothing hinders.
    """
    if console.stderr.is_terminal:
        with Live(console=console.stderr, auto_refresh=False, transient=True) as live:
            yield _LiveTable(live, remaining_s, hindrance)
    else:
        yield _PlainLines(hindrance)


class _LiveTable:
    """A table on a terminal that is drawn again for each picture."""

    def __init__(
        self, live: Live, remaining_s: Callable[[WorkersPicture], float | None], hindrance: Callable[[], str]
    ) -> None:
        self._live, self._remaining_s, self._hindrance = live, remaining_s, hindrance
        self._bar = console.make_bar(TextColumn("{task.fields[remaining]}"))
        self._task = self._bar.add_task("runs", total=None, latest="", remaining="")
        self._rates: dict[str, str] = {}

    def __call__(self, picture: WorkersPicture) -> None:
        for cell, run in picture.news:
            if console.format_rate(run):
                self._rates[cell] = console.format_rate(run, 0)
            if run["status"] != "valid":
                self._live.console.print(visible(describe_run(cell, run)), style="yellow", markup=False)
        seconds = self._remaining_s(picture)
        remaining = "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
        self._bar.update(self._task, completed=picture.runs_over, total=picture.runs_total, remaining=remaining)
        rates = [rate for _, run in picture.news if (rate := console.format_rate(run, 0))]
        if rates:
            self._bar.update(self._task, latest=rates[-1])
        self._live.update(Group(self._make_cells_row(picture), self._make_run_rows(picture), self._bar), refresh=True)

    def _make_cells_row(self, picture: WorkersPicture) -> Table:
        table = Table.grid(padding=(0, 2))
        # No markup: a line printed above the table (markup=False) switches it off in the table, too.
        words = [
            Text(f"{state} {picture.counts[state]}", _COLOURS.get(state, "")) for state in _states_present(picture)
        ]
        reason = Text(visible(self._hindrance() or _describe_queue(picture)))  # Slurm's words may hold brackets
        table.add_row("cells", *words, reason)
        return table

    def _make_run_rows(self, picture: WorkersPicture) -> Table:
        table = Table.grid(padding=(0, 2))
        for cell, run, where in picture.running[:_ROWS]:
            role = _ROLES.get(run["role"], run["role"])
            row = (f"  {cell.rpartition('-')[0]}", f"run {run['run']} ({role})", self._rates.get(cell, ""), where)
            table.add_row(*map(Text, map(visible, row)))
        if len(picture.running) > _ROWS:
            table.add_row(f"  … and {len(picture.running) - _ROWS} more")
        return table


class _PlainLines:
    """One line per run that ended, for a log file or a pipe."""

    def __init__(self, hindrance: Callable[[], str]) -> None:
        self._hindrance = hindrance
        self._last_queue = ""

    def __call__(self, picture: WorkersPicture) -> None:
        for number, (cell, run) in enumerate(picture.news, start=picture.runs_over - len(picture.news) + 1):
            console.say(f"[{number}/{picture.runs_total}] {describe_run(cell, run)}")
        queue = self._hindrance() or _describe_queue(picture, lasting=True)  # without what changes at each moment
        if queue and queue != self._last_queue:
            counts = ", ".join(f"{picture.counts[state]} {state}" for state in _states_present(picture))
            console.say(f"cells: {counts}; {queue}")
        self._last_queue = queue


def _states_present(picture: WorkersPicture) -> list[CellState]:
    """Return the states that at least one cell has, in their order."""
    return [state for state in CellState if picture.counts[state]]


def _describe_queue(picture: WorkersPicture, *, lasting: bool = False) -> str:
    """Return how many jobs wait for which reason, in one line."""
    waits = Counter(wait_sentence(wait, lasting=lasting) for wait in picture.waits)
    return ", ".join(f"{count_noun(number, 'job')} waiting: {reason}" for reason, number in waits.most_common())


def describe_run(cell_id: str, run: Run) -> str:
    """Return one line about a run that ended."""
    role = "" if run["role"] == "measured" else f" ({_ROLES.get(run['role'], run['role'])})"
    title = f"{cell_id} run {run['run']}{role}"
    rate = console.format_rate(run) or "no figure"
    return f"{title}: {rate}" if run["status"] == "valid" else f"{title}: {rate}, {run['status']}: {run['reason']}"
