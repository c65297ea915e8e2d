"""Print messages to stderr and data to stdout; show progress as bars on a terminal, and elsewhere as plain lines."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from jobs import checks
from jobs.model.results import Run
from jobs.terminal import visible

Progress = Callable[[str, int, int, str], None]

_WIDE = 200  # assumed width in columns if stderr is no terminal
_LINES_SHOWN = 5  # lines that are printed of a list of similar messages; further lines are only counted
_TERMINAL = "/dev/tty"  # the controlling terminal of this process, see tty(4)
_LONGEST_ANSWER = 4096  # bytes; one read from a terminal returns at most one line
_PROGRESS_AFTER_S = 1.0  # shorter work shows no progress
_DRAW_EACH_S, _LINE_EACH_S = 0.1, 5.0  # seconds between two drawings on a terminal, and between two lines elsewhere

_Item = TypeVar("_Item")
stderr = Console(stderr=True, highlight=False, width=None if sys.stderr and sys.stderr.isatty() else _WIDE)


def say(text: str) -> None:
    """Print a message for the user on stderr, in one line."""
    stderr.print(visible(text), markup=False, soft_wrap=True)


def say_first(lines: Sequence[str]) -> None:
    """Print the first five lines with `say`, and then the number of lines that are left out."""
    for line in lines[:_LINES_SHOWN]:
        say(line)
    if len(lines) > _LINES_SHOWN:
        say(f"… and {len(lines) - _LINES_SHOWN} more")


def show(text: str, *, flush: bool = False) -> None:
    """Print data on stdout, in one line."""
    print(visible(text), flush=flush)


def show_json(value: Any) -> None:
    """Print a value as JSON on stdout; a command with ``--json`` prints nothing else on stdout."""
    print(json.dumps(value, indent=1))


def show_lines(text: str) -> None:
    """Print a text of several lines on stdout, such as a help text or a script of this program."""
    for line in text.split("\n"):
        show(line)


def show_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print rows on stdout as a table, formatted by `format_table`."""
    for line in format_table(rows, right):
        show(line)


def format_table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines with aligned columns; the columns with an index in `right` are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if index in right else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    if number == 1:
        return f"{number} {noun}"
    ends_in_consonant_y = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{number} {noun[:-1]}ies" if ends_in_consonant_y else f"{number} {noun}s"


def print_error(message: str, hint: str) -> None:
    """Print an error on stderr: the message, a blank line, and the hint."""
    stderr.print("error:", style="bold red", end=" ")
    say(message)
    if hint:
        say("")
        stderr.print("hint:", style="bold", end=" ")
        say(hint)


def ask_for_yes(question: str, *, by_variable: bool = True) -> bool | None:
    """Ask the user on the controlling terminal; return whether the answer is yes, or None if there is no terminal.

    With `by_variable`, CAMPAIGN_YES=1 in the environment answers yes. A background process gets None, because a
    question would stop the process.
    """
    if by_variable and os.environ.get("CAMPAIGN_YES") == "1":
        return True
    try:
        with open(_TERMINAL, "rb", buffering=0) as keyboard, open(_TERMINAL, "wb", buffering=0) as screen:  # noqa: PTH123
            if os.tcgetpgrp(keyboard.fileno()) != os.getpgrp():
                return None
            screen.write(f"{visible(question)} [y/N] ".encode())
            return keyboard.read(_LONGEST_ANSWER).strip().lower() in (b"y", b"yes")
    except OSError:
        return None


def make_bar(last_column: ProgressColumn | None = None) -> Bars:
    """Return a progress bar for stderr that is drawn only when it is refreshed, and so needs little CPU time.

    `last_column` is shown behind "ETA". By default it is the remaining time, estimated from the finished part.
    """
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[latest]}", markup=False),
        TextColumn("ETA"),
        last_column or TimeRemainingColumn(),
        console=stderr,
        auto_refresh=False,
        transient=True,
        speed_estimate_period=3600,
    )


def format_rate(run: Run, digits: int = 1) -> str:
    """Return the rate of a run with its unit, or an empty string if the run has no rate."""
    rate = checks.judged_rate(run)
    return "" if rate is None else f"{rate:.{digits}f} {checks.rate_unit(run)}"


def iterate_with_progress(items: Collection[_Item], what: str) -> Iterator[_Item]:
    """Yield the items one by one, and show as progress how many items the caller has processed."""
    with progress() as report:
        for done, item in enumerate(items):
            report(what, done, len(items), "")
            yield item


@contextmanager
def progress() -> Iterator[Progress]:
    """Yield a function ``report(what, done, total, detail)``, which shows the progress of work.

    Nothing is shown in the first second. On a terminal each `what` has its own bar; elsewhere each report is a line.
    """
    pause_s = _DRAW_EACH_S if stderr.is_terminal else _LINE_EACH_S
    next_s = time.monotonic() + _PROGRESS_AFTER_S
    tasks: dict[str, TaskID] = {}
    with ExitStack() as stack:
        bars = make_bar()

        def report(what: str, done: int, total: int, detail: str) -> None:
            nonlocal next_s
            # The last step is always drawn, so that a finished bar is full.
            if (now := time.monotonic()) < next_s and not (done == total and what in tasks):
                return
            next_s = now + pause_s
            if not stderr.is_terminal:
                say(f"{what}: {done} of {total} {detail}".rstrip())
                return
            if what not in tasks:
                if not tasks:
                    stack.enter_context(bars)
                tasks[what] = bars.add_task(what, total=total, latest=detail)
            bars.update(tasks[what], completed=done, total=total, refresh=True)

        yield report


@contextmanager
def interrupt_on_kill() -> Iterator[None]:
    """Treat SIGTERM (`kill`) and SIGHUP (a closed terminal) as Ctrl-C."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # nohup makes a process ignore SIGHUP, and that must stay so
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
