"""Messages go to stderr, data to stdout; live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich import progress
from rich.console import Console

from jobs import checks
from jobs.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from jobs.figures import Run

    Progress = Callable[[str, int, int, str], None]

_WIDE = 200  # columns of a pipe: lines are never folded there
_SILENT_S, _DRAW_EACH_S, _LINE_EACH_S = 1.0, 0.1, 5.0  # of what is counted
_PLAIN_STEPS = 4  # lines that a long preparation prints where there is no terminal

_Thing = TypeVar("_Thing")
stderr = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE)


def say(text: str) -> None:
    """Print a message for the user on stderr."""
    stderr.print(visible(text), markup=False, soft_wrap=True)


def show(text: str, *, flush: bool = False) -> None:
    """Print data on stdout."""
    print(visible(text), flush=flush)


def counted(number: int, noun: str) -> str:
    """Put a number before its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def complain(message: str, hint: str) -> None:
    """Report an error: what is wrong, a blank line, the cure."""
    stderr.print("error:", style="bold red", end=" ")
    say(message)
    if hint:
        say("")
        stderr.print("hint:", style="bold", end=" ")
        say(hint)


def agreed(question: str) -> bool:
    """Ask before node-hours are spent; without a terminal the command itself is the answer."""
    if os.environ.get("CAMPAIGN_YES") == "1" or not (sys.stdin and sys.stdin.isatty() and stderr.is_terminal):
        return True
    stderr.print(f"{question} [y/N] ", end="", markup=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def bar() -> progress.Progress:
    """Make a progress bar for stderr that costs little: it draws only when it is refreshed."""
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[latest]}"),
        progress.TextColumn("ETA"),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=stderr,
        auto_refresh=False,
        transient=True,
        speed_estimate_period=3600,
    )


def figure(run: Run, digits: int = 1) -> str:
    """Return the figure of a run with its unit; empty where it has none."""
    rate = checks.rate(run)
    return "" if rate is None else f"{rate:.{digits}f} {checks.unit(run)}"


def counting(things: Collection[_Thing], what: str) -> Iterator[_Thing]:
    """Yield the things; where that takes longer than a second, show on stderr how far it is."""
    pause_s = _DRAW_EACH_S if stderr.is_terminal else _LINE_EACH_S
    with ExitStack() as stack:
        show, next_s = None, time.monotonic() + _SILENT_S
        for done, thing in enumerate(things):
            if (now := time.monotonic()) >= next_s:
                show = show or stack.enter_context(_counter(what, len(things)))
                show(done)
                next_s = now + pause_s
            yield thing


@contextmanager
def _counter(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield what shows how many things are done."""
    if not stderr.is_terminal:
        yield lambda done: say(f"{what}: {done} of {total}")
        return
    with bar() as shown:
        task = shown.add_task(what, total=total, latest="")
        yield lambda done: shown.update(task, completed=done, refresh=True)


@contextmanager
def preparation() -> Iterator[Progress]:
    """Show how far the making of what is read is; yields ``progress(what, done, total, of_what)``."""
    if stderr.is_terminal:
        with bar() as shown:
            yield _on_bars(shown)
    else:
        yield _on_lines()


def _on_bars(shown: progress.Progress) -> Progress:
    tasks: dict[str, progress.TaskID] = {}

    def show(what: str, done: int, total: int, of_what: str) -> None:
        if what not in tasks:
            tasks[what] = shown.add_task(f"making {what}", total=total, latest=of_what)
        shown.update(tasks[what], completed=done, total=total, refresh=True)

    return show


def _on_lines() -> Progress:
    steps: dict[str, int] = {}

    def show(what: str, done: int, total: int, of_what: str) -> None:
        step = done * _PLAIN_STEPS // max(total, 1)
        if step > steps.get(what, -1):
            steps[what] = step
            say(f"making {what}: {done} of {total} {of_what}")

    return show
