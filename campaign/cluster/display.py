"""Show a campaign under way: one live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Group
from rich.live import Live
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from campaign import console
from campaign.cluster import price
from campaign.cluster.conclude import WorkerState
from campaign.cluster.progress import Follower, Picture, Watched, until_over
from campaign.console import counted
from jobs.model.codes import CellState, wait_sentence
from jobs.model.results import Run
from jobs.terminal import visible

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
def display(
    to_go: Callable[[Picture], float | None], hindrance: Callable[[], str] = lambda: ""
) -> Iterator[Callable[[Picture], None]]:
    """Yield what shows a picture.

    `to_go` returns the seconds that are to go, None where these are not known; `hindrance` what keeps news away, empty
    where nothing does.
    """
    if console.stderr.is_terminal:
        with Live(console=console.stderr, auto_refresh=False, transient=True) as live:
            yield _LiveTable(live, to_go, hindrance)
    else:
        yield _PlainLines(hindrance)


def follow_here(follower: Follower, state: Callable[[], WorkerState], tick_s: float) -> None:
    """Show the progress of a worker on this machine until its state is that it has ended."""
    with display(price.Eta(follower.folder)) as show:
        until_over(Watched({0: follower}), lambda: {0: state()}, show, tick_s)


class _LiveTable:
    def __init__(self, live: Live, to_go: Callable[[Picture], float | None], hindrance: Callable[[], str]) -> None:
        self._live, self._to_go, self._hindrance = live, to_go, hindrance
        self._bar = console.bar(TextColumn("{task.fields[to_go]}"))
        self._task = self._bar.add_task("runs", total=None, latest="", to_go="")
        self._rates: dict[str, str] = {}

    def __call__(self, picture: Picture) -> None:
        for cell, run in picture.news:
            if console.figure(run):
                self._rates[cell] = console.figure(run, 0)
            if run["status"] != "valid":
                self._live.console.print(visible(describe(cell, run)), style="yellow", markup=False)
        seconds = self._to_go(picture)
        to_go = "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
        self._bar.update(self._task, completed=picture.runs_over, total=picture.runs_total, to_go=to_go)
        rates = [rate for _, run in picture.news if (rate := console.figure(run, 0))]
        if rates:
            self._bar.update(self._task, latest=rates[-1])
        self._live.update(Group(self._cells(picture), self._runs(picture), self._bar), refresh=True)

    def _cells(self, picture: Picture) -> Table:
        table = Table.grid(padding=(0, 2))
        # No markup: a line printed above the table (markup=False) switches it off in the table, too.
        words = [Text(f"{state} {picture.counts[state]}", _COLOURS.get(state, "")) for state in _shown(picture)]
        why = Text(visible(self._hindrance() or _queue(picture)))  # Slurm's words may hold brackets
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
    def __init__(self, hindrance: Callable[[], str]) -> None:
        self._hindrance = hindrance
        self._said = ""

    def __call__(self, picture: Picture) -> None:
        for number, (cell, run) in enumerate(picture.news, start=picture.runs_over - len(picture.news) + 1):
            console.say(f"[{number}/{picture.runs_total}] {describe(cell, run)}")
        queue = self._hindrance() or _queue(picture, lasting=True)  # what changes each moment is for a terminal
        if queue and queue != self._said:
            counts = ", ".join(f"{picture.counts[state]} {state}" for state in _shown(picture))
            console.say(f"cells: {counts}; {queue}")
        self._said = queue


def _shown(picture: Picture) -> list[CellState]:
    return [state for state in CellState if picture.counts[state]]


def _queue(picture: Picture, *, lasting: bool = False) -> str:
    waits = Counter(wait_sentence(wait, lasting=lasting) for wait in picture.waits)
    return ", ".join(f"{counted(number, 'job')} waiting: {why}" for why, number in waits.most_common())


def describe(cell_id: str, run: Run) -> str:
    """Return one line about a run that ended."""
    role = "" if run["role"] == "measured" else f" ({_ROLES.get(run['role'], run['role'])})"
    what = f"{cell_id} run {run['run']}{role}"
    rate = console.figure(run) or "no figure"
    return f"{what}: {rate}" if run["status"] == "valid" else f"{what}: {rate}, {run['status']}: {run['reason']}"
