"""Follow the records that workers write, and show the progress of a campaign: as a live table, or as plain lines.

If a record on disk and the scheduler disagree, the record is right.
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
    """A cell in a worker's work list, with the number of missing runs, without warm-up runs."""

    cell: str
    missing: int
    at_most: int  # number of missing runs if ``until_spread`` adds as many runs as it may
    settings: Settings


@dataclass
class Follower:
    """Reads the record of the cell that a worker runs now, and then the records of the worker's next cells."""

    folder: CampaignFolder
    cells: Sequence[CellShare]  # the cells of the worker, in the order in which the worker runs them
    warmup_runs: int
    token: str  # the token of the submission; records of earlier submissions are ignored
    terms: Terms | None = None  # the terms by which records are judged; None: the terms in each record
    outcomes: Counter[CellState] = field(default_factory=Counter)  # number of finished cells by verdict
    current: tuple[str, Run] | None = None  # ``(cell id, run)`` of the run that runs now, if any
    waits_for: Wait | None = None
    runs_over: int = 0
    in_turn: bool = False  # whether the cells take turns, so that several cells can be unfinished at the same time
    _reported: Counter[str] = field(default_factory=Counter)  # number of reported runs by cell id
    _begun: set[str] = field(default_factory=set)  # ids of the cells that have begun and are not finished
    _over: set[str] = field(default_factory=set)  # ids of the finished cells

    @classmethod
    def of_worker(cls, folder: CampaignFolder, batch: Batch, index: int) -> Follower:
        """Return the follower of one worker of a batch, with the cells of the worker's work list."""
        path = batch.work_list(index)
        if not path.exists():  # the command that made the batch was killed before it wrote the work list
            return cls(folder, [CellShare(cell, 0, 0, {}) for cell in batch.cells[index]], 0, batch.token)
        work = read_file(path, WorkList)
        cells = [CellShare(item["id"], item["missing"], item["at_most"], item["settings"]) for item in work["cells"]]
        return cls._of_cells(folder, cells, work["conduct"], batch.token)

    @classmethod
    def of_entries(
        cls, folder: CampaignFolder, entries: Sequence[PlannedCell], conduct: Conduct, token: str = ""
    ) -> Follower:
        """Return the follower of a worker that will run the cells of `entries`."""
        cells = [CellShare(entry.cell.id, entry.missing, entry.at_most, entry.cell.settings) for entry in entries]
        return cls._of_cells(folder, cells, conduct, token)

    @classmethod
    def _of_cells(cls, folder: CampaignFolder, cells: Sequence[CellShare], conduct: Conduct, token: str) -> Follower:
        return cls(folder, cells, conduct["warmup_runs"], token, terms_of_conduct(conduct), in_turn=conduct["in_turn"])

    @property
    def runs_total(self) -> int:
        """Return the expected total number of runs when the worker ends.

        The number falls if a cell ends before its last run. A requeue adds the interrupted run and another warm-up run.
        """
        return self.runs_over + sum(share.missing for share in self.shares_left())

    @property
    def has_begun(self) -> bool:
        """Return whether the worker has begun a run."""
        return bool(self.runs_over or self.current)

    def shares_left(self) -> list[CellShare]:
        """Return the unfinished cells, with the number of their missing runs including warm-up runs."""
        shares = []
        for share in (share for share in self.cells if share.cell not in self._over):
            change = self.warmup_runs - self._reported[share.cell]
            missing, at_most = max(0, share.missing + change), max(0, share.at_most + change)
            shares.append(share._replace(missing=missing, at_most=at_most))
        return shares

    @property
    def is_finished(self) -> bool:
        """Return whether all cells of the worker are finished.

        A worker that makes data has no cell, so the value is False.
        """
        return 0 < len(self.cells) == len(self._over)

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
            judged = Verdicts(self.folder, self.terms).judge(recorded)
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
            return news
        self._begun.add(cell)
        return news

    def count_unfinished(self, worker: WorkerState) -> Counter[CellState]:
        """Count the unfinished cells by state; `worker` is the state of the worker."""
        states: Counter[CellState] = Counter()
        shares = [share for share in self.cells if share.cell not in self._over]
        for index, share in enumerate(shares):
            is_own = share.cell in self._begun
            recorded = CellState.RUNNING if is_own else CellState.PLANNED
            if (
                worker.phase == Phase.ENDED and recorded == CellState.PLANNED
            ):  # the cell may have a record with the verdict of an earlier worker, which remains valid
                judged_record, fault = Verdicts(self.folder, self.terms).read(self.folder.record(share.cell))
                recorded = (
                    CellState(judged_record["status"]) if judged_record else CellState.DAMAGED if fault else recorded
                )
            states[conclude_cell_state(recorded, worker, is_own=is_own, is_next=not index)] += 1
        return states

    def _read_record(self, cell: str) -> Record | None:
        # A damaged record comes from an earlier worker: a worker moves a damaged record away before it begins a cell.
        recorded, _ = record.read_or_fault(self.folder.record(cell))
        return recorded if recorded and recorded["campaign"].get("token") == self.token else None


@dataclass(frozen=True)
class WorkersPicture:
    """The state of all workers at one moment, for the display."""

    news: list[tuple[str, Run]]  # ``(cell id, run)`` of each run that ended since the last picture
    counts: Counter[CellState]  # number of cells by state
    waits: list[Wait]  # the reasons of the waiting and suspended workers
    running: list[tuple[str, Run, str]]  # ``(cell id, run, node or job)`` of each run that runs now
    runs_over: int
    runs_total: int
    workers: Sequence[Follower] = ()  # the followers of workers that have not ended


class WatchedWorkers:
    """The followers of several workers; the caller chooses the keys that identify the workers."""

    def __init__(self, followers: Mapping[Hashable, Follower]) -> None:
        self.followers = followers
        self._closed: dict[Hashable, Counter[CellState]] = {}  # cells that ended workers left unfinished

    def take_picture(self, workers: Mapping[Any, WorkerState]) -> WorkersPicture:
        """Read the records of all workers that have started, and return the picture of all workers."""
        news: list[tuple[str, Run]] = []
        counts: Counter[CellState] = Counter()
        waits: list[Wait] = []
        running: list[tuple[str, Run, str]] = []
        for key, follower in self.followers.items():
            worker = workers[key]
            if key not in self._closed and worker.phase != Phase.QUEUED:
                news += follower.read_news()
                if worker.phase == Phase.ENDED or follower.is_finished:
                    self._closed[key] = follower.count_unfinished(worker)
            counts.update(follower.outcomes)
            counts.update(self._closed[key] if key in self._closed else follower.count_unfinished(worker))
            if worker.phase == Phase.RUNNING and worker.wait:
                waits.append(worker.wait)
            elif follower.current and worker.phase in (Phase.RUNNING, Phase.UNKNOWN):
                running.append((*follower.current, worker.node_or_job))
            elif worker.phase == Phase.RUNNING and follower.waits_for:
                waits.append(follower.waits_for)
            elif worker.phase in (Phase.QUEUED, Phase.UNKNOWN) and not follower.is_finished:
                waits.append(worker.wait or _SUBMITTED)
        runs_over = sum(follower.runs_over for follower in self.followers.values())
        runs_total = sum(follower.runs_total for follower in self.followers.values())
        open_followers = [follower for key, follower in self.followers.items() if key not in self._closed]
        return WorkersPicture(news, counts, waits, running, runs_over, runs_total, open_followers)

    def finished_workers(self) -> list[Any]:
        """Return the keys of the workers that have finished all their cells."""
        return [key for key, follower in self.followers.items() if follower.is_finished]


def show_until_over(
    watched: WatchedWorkers,
    states: Callable[[], Mapping[Any, WorkerState]],
    show: Callable[[WorkersPicture], None],
    tick_s: float,
) -> None:
    """Show a picture every `tick_s` seconds until every worker has ended."""
    while True:
        # Get the states before the records are read, so that the last picture shows the complete records.
        workers = states()
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
_ROLES = {"warmup": "warm-up"}  # all other roles are shown as in the record
_ROWS = 12  # largest number of running runs that have their own row in the table


@contextmanager
def open_display(
    remaining_s: Callable[[WorkersPicture], float | None], hindrance: Callable[[], str] = lambda: ""
) -> Iterator[Callable[[WorkersPicture], None]]:
    """Yield a function that shows a picture of the workers.

    `remaining_s` returns the remaining seconds, or None if unknown. `hindrance` returns the reason why the progress
    cannot be seen, or an empty text.
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
        # Use Text, not markup: a line printed above the table with markup=False switches markup off in the table, too.
        words = [
            Text(f"{state} {picture.counts[state]}", _COLOURS.get(state, "")) for state in _states_present(picture)
        ]
        queue = self._hindrance() or ", ".join(_waiting_jobs(picture).values())
        reason = Text(visible(queue))  # Slurm's reasons may contain brackets
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
    """Prints one line for each run that ended, if stderr is a log file or a pipe."""

    def __init__(self, hindrance: Callable[[], str]) -> None:
        self._hindrance = hindrance
        self._said: set[str] = set()

    def __call__(self, picture: WorkersPicture) -> None:
        for number, (cell, run) in enumerate(picture.news, start=picture.runs_over - len(picture.news) + 1):
            console.say(f"[{number}/{picture.runs_total}] {describe_run(cell, run)}")
        # `lasting` leaves out numbers that change all the time, so that the same reason is printed only once.
        hindrance = self._hindrance()
        reasons = {hindrance: hindrance} if hindrance else _waiting_jobs(picture, lasting=True)
        if news := [text for key, text in reasons.items() if key not in self._said]:
            self._said.update(reasons)
            counts = ", ".join(f"{picture.counts[state]} {state}" for state in _states_present(picture))
            console.say(f"cells: {counts}; {', '.join(news)}")


def _states_present(picture: WorkersPicture) -> list[CellState]:
    """Return the states that at least one cell has, in the order of `CellState`."""
    return [state for state in CellState if picture.counts[state]]


def _waiting_jobs(picture: WorkersPicture, *, lasting: bool = False) -> dict[str, str]:
    """Return for each reason a text with the number of jobs that wait for this reason."""
    waits = Counter(wait_sentence(wait, lasting=lasting) for wait in picture.waits)
    return {reason: f"{count_noun(number, 'job')} waiting: {reason}" for reason, number in waits.most_common()}


def describe_run(cell_id: str, run: Run) -> str:
    """Return one line about a run that ended."""
    role = "" if run["role"] == "measured" else f" ({_ROLES.get(run['role'], run['role'])})"
    title = f"{cell_id} run {run['run']}{role}"
    rate = console.format_rate(run) or "no figure"
    return f"{title}: {rate}" if run["status"] == "valid" else f"{title}: {rate}, {run['status']}: {run['reason']}"
