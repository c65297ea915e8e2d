"""A program of the user's in one run: what it is told, what it prints, how long it takes and how it ends."""

from __future__ import annotations

import os
import re
import select
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jobs import marks
from jobs.errors import ProgramError
from jobs.model.settings import Node
from jobs.system.process_tree import Ended, Keeper

WORD = re.compile(r"\{([a-z_]+)\}")
"""A placeholder."""
_OURS = ("PYTHONSAFEPATH",)  # what this project sets for its own processes
_STDERR = 2
_CHUNK = 1 << 16
_KEPT_BYTES = 1 << 26  # of the output, in which `benchmark.metric` is looked for
_LINE_BYTES = 1 << 16  # of a line that marks where the timed part begins
_SHOWN = 300  # characters of the last line, in a reason


@dataclass
class _Output:
    """What a program prints: passed on as it comes, the end of it kept, and watched for a line."""

    begins: re.Pattern[str] | None
    kept: bytearray = field(default_factory=bytearray)
    marked_s: float | None = None  # when the line that `begins` the timed part came, by `time.perf_counter`
    _line: bytearray = field(default_factory=bytearray)

    def take(self, chunk: bytes) -> None:
        """Take what was printed now."""
        os.write(_STDERR, chunk)
        self.kept += chunk
        if len(self.kept) > 2 * _KEPT_BYTES:
            del self.kept[:-_KEPT_BYTES]
        if self.begins and self.marked_s is None:
            self._line += chunk
            *lines, rest = bytes(self._line).split(b"\n")
            if any(self.begins.search(line.decode(errors="replace")) for line in (*lines, rest)):
                self.marked_s = time.perf_counter()
            self._line = bytearray(rest[-_LINE_BYTES:])

    @property
    def text(self) -> str:
        """The end of what was printed."""
        return self.kept.decode(errors="replace")


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with the values in the place of their placeholders; other words in braces stay as they are."""
    return WORD.sub(lambda found: str(values[found[1]]) if found[1] in values else found[0], text)


def printed(text: str, metric: str, matches: str) -> float:
    """Return the number that a program printed. Raises ProgramError where `metric` finds none."""
    found = re.findall(metric, text, re.MULTILINE)
    words = [each[0] if isinstance(each, tuple) else each for each in found]
    try:
        numbers = [float(word.replace(",", "")) for word in words]
    except ValueError as error:
        raise ProgramError(f"benchmark.metric={metric} found a word that is no number: {error}") from error
    if not numbers:
        raise ProgramError(f"benchmark.metric={metric} was not found in what the program printed")
    return numbers[-1] if matches == "last" else statistics.median(numbers)


class Outcome(NamedTuple):
    """How one run of a program went."""

    began_s: float  # by `time.perf_counter`
    wall_s: float  # until the last process that it started had ended
    ended: Ended
    in_time: bool  # False: its time was up, and it was ended


class Program:
    """One run of a program: its keeper, and what it prints."""

    def __init__(
        self, own: Node, values: Mapping[str, Any], limit_s: float | None, marked: Path, **environment: str
    ) -> None:
        """Start the keeper of a program; `own` are the keys of the benchmark, `values` stand for placeholders.

        `limit_s` are the seconds from now in which it must have ended, None for any; `marked` is the file of
        `jobs.mark`; `environment` is added to that of this process.
        """
        self.argv = [filled(word, values) for word in own["argv"]]
        self._own, self._limit_s, self._marked = own, limit_s, marked
        self._deadline_s = time.perf_counter() + limit_s if limit_s else float("inf")  # data that are warmed take time
        added = {name: filled(str(text), values) for name, text in own["environment"].items()}
        inherited = {name: text for name, text in os.environ.items() if name not in _OURS}
        self._output = _Output(re.compile(own["begins"]) if own["begins"] else None)
        self._read, write = os.pipe()
        try:
            told = {**inherited, **environment, **added, marks.VARIABLE: str(marked)}
            self._keeper = Keeper(self.argv, own["workdir"] or str(Path.cwd()), told, write)
        finally:
            os.close(write)

    def close(self) -> None:
        """End what is left of the program."""
        self._keeper.close()
        os.close(self._read)

    def run(self) -> Outcome:
        """Run the program and wait for all that it starts; what it prints goes to standard error."""
        began_s = time.perf_counter()
        self._keeper.begin()
        in_time = self._follow()
        wall_s = time.perf_counter() - began_s
        return Outcome(began_s, wall_s, self._keeper.wait(), in_time)

    def require_well(self, outcome: Outcome) -> None:
        """Raise ProgramError where the program could not be started, failed or was ended."""
        name, ended = self.argv[0], outcome.ended
        last = _last(self._output.text)
        if ended.error:
            raise ProgramError(f"{name} cannot be started: {ended.error}")
        if ended.alive:
            names = ", ".join(ended.alive)
            raise ProgramError(f"cannot be ended, they wait for a storage that does not answer: {names}")
        if not outcome.in_time:
            begun = "" if ended.exit is None else f" (the program itself had ended after {ended.program_s:.1f} s)"
            raise ProgramError(f"still running after run_timeout_s={self._limit_s:g}, ended with all it started{begun}")
        if ended.stopped:
            raise ProgramError(f"{name} was ended from outside")
        if ended.signal is not None:
            raise ProgramError(f"{name} was killed by signal {ended.signal}{last}")
        if ended.exit:
            raise ProgramError(f"{name} ended with exit code {ended.exit}{last}")

    def marked_s(self, outcome: Outcome) -> float | None:
        """Return the seconds from where the timed part begins to the end; None where nothing marks that.

        Raises ProgramError where a line was to mark it, and was not printed.
        """
        begins = self._own["begins"]
        at_s = self._output.marked_s if begins else marks.first(self._marked)
        if begins and at_s is None:
            raise ProgramError(
                f"no line that the program printed fits benchmark.begins={begins}: nothing marks where the timed part"
                " begins; does it write its lines at once? (PYTHONUNBUFFERED=1, python -u)"
            )
        return None if at_s is None else max(0.0, outcome.began_s + outcome.wall_s - at_s)

    def printed(self) -> dict[str, float]:
        """Return the number that was to be found in what the program printed. Raises ProgramError."""
        metric = self._own["metric"]
        return {"printed": printed(self._output.text, metric, self._own["matches"])} if metric else {}

    def _follow(self) -> bool:
        """Pass on what the program prints until all is over; returns False where its time was up before."""
        reads, in_time = [self._read, self._keeper.answer], True
        while self._keeper.answer in reads:
            left_s = self._deadline_s - time.perf_counter() if in_time else float("inf")
            if left_s <= 0:
                self._keeper.stop()
                in_time = False
                continue
            ready, _, _ = select.select(reads, [], [], None if left_s == float("inf") else left_s)
            if self._read in ready and not self._take():
                reads.remove(self._read)
            elif self._keeper.answer in ready:
                break
        while self._read in reads and select.select([self._read], [], [], 0)[0] and self._take():
            pass
        return in_time

    def _take(self) -> bool:
        chunk = os.read(self._read, _CHUNK)
        self._output.take(chunk)
        return bool(chunk)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:_SHOWN]}" if lines else ""
