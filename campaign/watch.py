"""Follow the records that a worker writes, and show how far it is."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from campaign import record, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress

    from campaign.folder import CampaignFolder
    from campaign.plan import Entry

_TICK_S = 0.25
_OVER = ("done", "invalid", "failed")


@dataclass(frozen=True)
class Step:
    """What one look found.

    Attributes
    ----------
    ended
        ``(cell id, run)`` of each run that ended since the last look.
    current
        ``(cell id, run)`` under way, if any.
    cells_over, runs_over, runs_total
        Progress; a cell that gives up early takes its missing runs out of the total.
    """

    ended: list[tuple[str, dict[str, Any]]]
    current: tuple[str, dict[str, Any]] | None
    cells_over: int
    runs_over: int
    runs_total: int


@dataclass
class Follower:
    """Reads the record of the cell under way, and moves on when it is over.

    Attributes
    ----------
    token
        The submission's own: a record of an earlier one is not taken for news.
    """

    folder: CampaignFolder
    entries: Sequence[Entry]
    warmup_runs: int
    token: str
    _at: int = 0
    _seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count the runs that were there before."""
        self._total = sum(entry.missing + self.warmup_runs for entry in self.entries)
        self._over = 0

    def look(self) -> Step:
        """Read what is new."""
        ended: list[tuple[str, dict[str, Any]]] = []
        current = None
        while self._at < len(self.entries):
            entry = self.entries[self._at]
            recorded = self._read(entry)
            if recorded is None:
                break
            news, running = self._news(entry, recorded)
            ended += [(entry.cell.id, run) for run in news]
            if running or recorded["status"] not in _OVER:
                current = (entry.cell.id, running) if running else None
                break
            self._total -= entry.missing + self.warmup_runs - self._seen.get(entry.cell.id, 0)
            self._at += 1
        self._over += len(ended)
        return Step(ended, current, self._at, self._over, self._total)

    def _read(self, entry: Entry) -> record.Record | None:
        try:
            recorded = record.read(self.folder.record(entry.cell.id))
        except record.DamagedRecordError:
            return None  # of before: the worker sets it aside when it comes to it
        return recorded if recorded and recorded["campaign"]["token"] == self.token else None

    def _news(self, entry: Entry, recorded: record.Record) -> tuple[list[record.Run], record.Run | None]:
        mine = [run for run in recorded["runs"] if run.get("token") == self.token]
        over = [run for run in mine if run["status"] != "running"]
        news = over[self._seen.get(entry.cell.id, 0) :]
        self._seen[entry.cell.id] = len(over)
        return news, next((run for run in mine if run["status"] == "running"), None)


def until_over(follower: Follower, alive: Callable[[], bool]) -> None:
    """Show progress until the worker has ended."""
    with _display(len(follower.entries)) as show:
        while True:
            ends = not alive()  # asked before the look, so that the last look sees all
            show(follower.look())
            if ends:
                return
            time.sleep(_TICK_S)


@contextmanager
def _display(cells: int) -> Iterator[Callable[[Step], None]]:
    if talk.stderr.is_terminal:
        with talk.bar() as bar:
            yield _Live(bar, cells)
    else:
        yield _print_plain


class _Live:
    def __init__(self, bar: Progress, cells: int) -> None:
        self._bar, self._cells = bar, cells
        self._task = bar.add_task("starting", total=None, latest="")

    def __call__(self, step: Step) -> None:
        for cell_id, run in step.ended:
            if run["status"] != "valid":
                self._bar.console.print(describe(cell_id, run), style="yellow", markup=False)
        latest = f"{step.ended[-1][1].get('images_per_s', 0):.0f} images/s" if step.ended else None
        if step.current:
            self._bar.update(self._task, description=self._doing(*step.current, step.cells_over))
        if latest:
            self._bar.update(self._task, latest=latest)
        self._bar.update(self._task, completed=step.runs_over, total=step.runs_total, refresh=True)

    def _doing(self, cell_id: str, run: record.Run, cells_over: int) -> str:
        role = "warm-up" if run["role"] == "warmup" else "measured"
        return f"cell {cells_over + 1}/{self._cells} {cell_id.rpartition('-')[0]} run {run['run']} ({role})"


def _print_plain(step: Step) -> None:
    for number, (cell_id, run) in enumerate(step.ended, start=step.runs_over - len(step.ended) + 1):
        talk.say(f"[{number}/{step.runs_total}] {describe(cell_id, run)}")


def describe(cell_id: str, run: record.Run) -> str:
    """Put one ended run into a line."""
    what = f"{cell_id} run {run['run']}{' (warm-up)' if run['role'] == 'warmup' else ''}"
    rate = f"{run['images_per_s']:.1f} images/s" if "images_per_s" in run else "no figure"
    return f"{what}: {rate}" if run["status"] == "valid" else f"{what}: {rate}, {run['status']}: {run['reason']}"
