"""One run of a user's program: its arguments and environment, its output, its duration and its end."""

from __future__ import annotations

import os
import re
import select
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs import MARK
from jobs.errors import ProgramError
from jobs.model.settings import Node
from jobs.system.programs import ProgramEnd, ProgramKeeper

WORD = re.compile(r"\{([a-z_]+)\}")
"""The pattern of a placeholder such as ``{threads}``."""
_OWN_VARIABLES = ("PYTHONSAFEPATH",)  # set by this project for its own processes
_STDERR = 2
_CHUNK = 1 << 16
_KEPT_BYTES = 1 << 26  # end of the output, in which `benchmark.metric` is searched
_LINE_BYTES = 1 << 16  # longest line that can mark the begin of the timed part
_SHOWN = 300  # shown characters of the last line


def fill_placeholders(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with values in place of placeholders; other words in braces stay unchanged."""
    return WORD.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], text)


def read_printed_number(text: str, metric: str, matches: str) -> float:
    """Return the number that `metric` finds in a program's output; raise ProgramError if there is none."""
    groups = re.findall(metric, text, re.MULTILINE)
    words = [group[0] if isinstance(group, tuple) else group for group in groups]
    try:
        numbers = [float(word.replace(",", "")) for word in words]
    except ValueError as error:
        raise ProgramError(f"benchmark.metric={metric} found a text that is no number: {error}") from error
    if not numbers:
        raise ProgramError(f"benchmark.metric={metric} was not found in the output of the program")
    return numbers[-1] if matches == "last" else statistics.median(numbers)


class ProgramRun:
    """One run of a program: its supervising process, its output, and, after `run`, its results."""

    ended: ProgramEnd
    wall_s: float  # until its last process had ended
    edges_ns: tuple[int, int]  # Unix times of its begin and its end

    def __init__(
        self, own: Node, values: Mapping[str, Any], limit_s: float | None, mark_file: Path, **environment: str
    ) -> None:
        """Start the supervising process; `own` has the benchmark's keys, `values` has those of the placeholders.

        `limit_s` is the time limit in seconds from now, None without a limit; `mark_file` is the file of `jobs.mark`;
        `environment` is added to that of this process.
        """
        self.argv = [fill_placeholders(word, values) for word in own["argv"]]
        self._own, self._limit_s, self._mark_file = own, limit_s, mark_file
        self._deadline_s = (
            time.perf_counter() + limit_s if limit_s else float("inf")
        )  # reading warm data into memory takes time
        own_variables = {name: fill_placeholders(str(text), values) for name, text in own["environment"].items()}
        inherited = {name: text for name, text in os.environ.items() if name not in _OWN_VARIABLES}
        self._printed, self._line = bytearray(), bytearray()  # the end of the output, and of its current line
        self._begins = re.compile(own["begins"]) if own["begins"] else None
        self._timed_from_s: float | None = None  # by `time.perf_counter`
        self._read, write = os.pipe()
        try:
            variables = {**inherited, **environment, **own_variables, MARK: str(mark_file)}
            self._keeper = ProgramKeeper(self.argv, own["workdir"] or str(Path.cwd()), variables, write)
        finally:
            os.close(write)

    def close(self) -> None:
        """End all remaining processes of the program."""
        self._keeper.close()
        os.close(self._read)

    def run(self) -> None:
        """Run the program and wait for all of its processes; its output goes to standard error."""
        self._start_s, start_ns = time.perf_counter(), time.time_ns()
        self._keeper.begin()
        self._in_time = self._copy_output()
        self.wall_s = time.perf_counter() - self._start_s
        self.edges_ns = (start_ns, start_ns + round(self.wall_s * 1e9))
        self.ended = self._keeper.wait()

    def require_well(self) -> None:
        """Raise ProgramError if the program could not be started, failed, or was ended."""
        name, ended = self.argv[0], self.ended
        lines = [line.strip() for line in self._text.splitlines() if line.strip()]
        last_line = f": {lines[-1][:_SHOWN]}" if lines else ""
        if ended.error:
            raise ProgramError(f"{name} cannot be started: {ended.error}")
        if ended.alive:
            names = ", ".join(ended.alive)
            raise ProgramError(f"these processes cannot be ended, because a storage does not answer: {names}")
        if not self._in_time:
            end_text = "" if ended.exit is None else f" (the program itself had ended after {ended.program_s:.1f} s)"
            raise ProgramError(
                f"still running after run_timeout_s={self._limit_s:g}, ended with all of its processes{end_text}"
            )
        if ended.stopped:
            raise ProgramError(f"{name} was ended from outside")
        if ended.signal is not None:
            raise ProgramError(f"{name} was killed by signal {ended.signal}{last_line}")
        if ended.exit != 0:
            raise ProgramError(f"{name} ended with exit code {ended.exit}{last_line}")

    @property
    def marked_s(self) -> float | None:
        """Return the seconds from the begin of the timed part to the end; None if the begin is not marked.

        Raises ProgramError if the program did not print the line that marks the begin.
        """
        mark_s = self._timed_from_s if self._begins else _first_mark_s(self._mark_file)
        if self._begins and mark_s is None:
            raise ProgramError(
                f"no printed line matches benchmark.begins={self._begins.pattern}: the begin of the timed part is"
                " unknown; does the program write its lines at once? (PYTHONUNBUFFERED=1, python -u)"
            )
        return None if mark_s is None else max(0.0, self._start_s + self.wall_s - mark_s)

    def printed(self) -> dict[str, float]:
        """Return the printed number as a metric, empty without `metric`; raise ProgramError if it is not found."""
        metric = self._own["metric"]
        return {"printed": read_printed_number(self._text, metric, self._own["matches"])} if metric else {}

    @property
    def _text(self) -> str:
        return self._printed.decode(errors="replace")

    def _copy_output(self) -> bool:
        """Copy the output to standard error until all processes have ended; return False if the time was up before."""
        descriptors, in_time = [self._read, self._keeper.answer], True
        while self._keeper.answer in descriptors:
            remaining_s = self._deadline_s - time.perf_counter() if in_time else float("inf")
            if remaining_s <= 0:
                self._keeper.stop()
                in_time = False
                continue
            ready, _, _ = select.select(descriptors, [], [], None if remaining_s == float("inf") else remaining_s)
            if self._read in ready and not self._copy_chunk():
                descriptors.remove(self._read)
            elif self._keeper.answer in ready:
                break
        while self._read in descriptors and select.select([self._read], [], [], 0)[0] and self._copy_chunk():
            pass
        return in_time

    def _copy_chunk(self) -> bool:
        """Copy one chunk of output, and search the line that begins the timed part; return False at the end."""
        chunk = os.read(self._read, _CHUNK)
        os.write(_STDERR, chunk)
        self._printed += chunk
        if len(self._printed) > 2 * _KEPT_BYTES:
            del self._printed[:-_KEPT_BYTES]
        if self._begins and self._timed_from_s is None:
            self._line += chunk
            lines = bytes(self._line).split(b"\n")
            if any(self._begins.search(line.decode(errors="replace")) for line in lines):
                self._timed_from_s = time.perf_counter()
            self._line = bytearray(lines[-1][-_LINE_BYTES:])
        return bool(chunk)


def _first_mark_s(path: Path) -> float | None:
    """Return the time of the first mark, on the clock of `time.perf_counter`; None if there is no mark."""
    try:
        words = path.read_text(encoding="ascii").split()
    except (FileNotFoundError, ValueError):
        return None
    return int(words[0]) / 1e9 if words and words[0].isdecimal() else None
