"""Run a user's program once: fill in its arguments and environment, read its output, and measure its duration."""

from __future__ import annotations

import math
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
_OWN_VARIABLES = ("PYTHONSAFEPATH",)  # variables for the processes of this project, which the program must not get
_STDERR = 2
_CHUNK = 1 << 16
_SEARCHED_BYTES = 1 << 26  # bytes at the end of the output in which `benchmark.metric` is searched
_LOGGED_BYTES = 1 << 16  # bytes at the end of the output that the log of a run keeps
_LINE_BYTES = 1 << 16  # bytes at the start of a line in which `benchmark.begins` is searched
_LINE_END = re.compile(rb"[\r\n]")
_SHOWN = 300  # characters of the program's last line that an error message shows


def fill_placeholders(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with each placeholder replaced by its value; other words in braces stay unchanged."""
    return WORD.sub(lambda match: str(values[match[1]]) if match[1] in values else match[0], text)


def read_printed_number(text: str, metric: str, matches: str) -> float:
    """Return the number that the regular expression `metric` finds in a program's output.

    If there are several numbers, `matches` (``last`` or ``median``) determines the result. Raises ProgramError if there
    is no number, or if the result is not a finite number above 0: rates are divided by it.
    """
    groups = re.findall(metric, text, re.MULTILINE)
    words = [group[0] if isinstance(group, tuple) else group for group in groups]
    try:
        numbers = [float(word.replace(",", "")) for word in words]
    except ValueError as error:
        raise ProgramError(f"benchmark.metric={metric} matches a text that is no number: {error}") from error
    if not numbers:
        raise ProgramError(f"no text in the program's output matches benchmark.metric={metric}")
    number = numbers[-1] if matches == "last" else statistics.median(numbers)
    if not 0 < number < math.inf:
        raise ProgramError(
            f"benchmark.metric={metric} found the number {number:g}, but a metric must be a finite number above 0;"
            " correct the expression or the program"
        )
    return number


class BeginLine:
    """The search for the printed line that marks the begin of the timed part.

    A line ends with a line feed, with a carriage return (progress bars), or at the end of the output. The time of the
    line is the time since which the text printed so far matches. The line counts only if it also matches when it is
    complete, because ``epoch 1`` may be the first half of ``epoch 10``.
    """

    printed_s: float | None = None  # time of the line on the clock of `time.perf_counter`

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._line = b""
        self._matches_since_s: float | None = None  # of the current line

    def search(self, chunk: bytes) -> None:
        """Search the next chunk of the output; an empty chunk is the end of the output."""
        now_s = time.perf_counter()
        lines = _LINE_END.split(self._line + chunk)
        for index, line in enumerate(lines):
            is_complete = index < len(lines) - 1 or not chunk
            matches = self._pattern.search(line[:_LINE_BYTES].decode(errors="replace"))
            self._matches_since_s = (self._matches_since_s or now_s) if matches else None
            if matches and is_complete:
                self.printed_s = self._matches_since_s
                return
        self._line = lines[-1][:_LINE_BYTES]


class ProgramRun:
    """One run of a user's program under a supervising process; `run` sets the results."""

    ended: ProgramEnd
    wall_s: float  # seconds until the last process of the program had ended
    edges_ns: tuple[int, int]  # Unix times at which the program began and ended

    def __init__(
        self, own: Node, values: Mapping[str, Any], limit_s: float | None, mark_file: Path, **environment: str
    ) -> None:
        """Start the supervising process, which starts the program later.

        Parameters
        ----------
        own
            The keys of the benchmark ``command``.
        values
            The values of the placeholders, by name.
        limit_s
            The time limit in seconds from now, which includes reading data into memory for a warm run; None without a
            limit.
        mark_file
            The file in which `jobs.mark` notes the time.
        environment
            Variables that the program gets in addition to the variables of this process.
        """
        self.argv = [fill_placeholders(word, values) for word in own["argv"]]
        self._own, self._limit_s, self._mark_file = own, limit_s, mark_file
        self._deadline_s = time.perf_counter() + limit_s if limit_s else float("inf")
        own_variables = {name: fill_placeholders(str(text), values) for name, text in own["environment"].items()}
        inherited = {name: text for name, text in os.environ.items() if name not in _OWN_VARIABLES}
        self._printed = bytearray()  # the end of the output
        self._kept_bytes = _SEARCHED_BYTES if own["metric"] else _LOGGED_BYTES
        unread = not own["metric"] and not own["begins"]
        self._begin_line = BeginLine(own["begins"]) if own["begins"] else None
        self._read, write = os.pipe()
        try:
            variables = {**inherited, **environment, **own_variables, MARK: str(mark_file)}
            folder = own["workdir"] or str(Path.cwd())
            self._keeper = ProgramKeeper(self.argv, folder, variables, write, errors_only=unread)
        finally:
            os.close(write)

    def close(self) -> None:
        """End all remaining processes of the program."""
        self._keeper.close()
        os.close(self._read)

    def run(self) -> None:
        """Run the program and wait until all of its processes have ended; then copy the end of what was read of it."""
        self._start_s, start_ns = time.perf_counter(), time.time_ns()
        self._keeper.begin()
        self._in_time = self._read_output()
        self.wall_s = time.perf_counter() - self._start_s
        os.write(_STDERR, self._printed[-_LOGGED_BYTES:])
        self.edges_ns = (start_ns, start_ns + round(self.wall_s * 1e9))
        self.ended = self._keeper.wait()

    def raise_failure(self, *, worked: bool = False) -> None:
        """Raise ProgramError if the program could not be started, failed, was stopped, or took too long.

        `worked` says that the program read its data: an exit code other than 0 is then its answer (``grep -c``).
        """
        name, ended = self.argv[0], self.ended
        lines = [line.strip() for line in self._text.splitlines() if line.strip()]
        last_line = f": {lines[-1][:_SHOWN]}" if lines else ""
        if ended.error:
            raise ProgramError(f"{name} cannot be started: {ended.error}")
        if ended.alive:
            names = ", ".join(ended.alive)
            raise ProgramError(f"these processes cannot be killed, because a storage does not answer: {names}")
        if not self._in_time:
            end_text = "" if ended.exit is None else f" (its first process had ended after {ended.program_s:.1f} s)"
            raise ProgramError(
                f"{name} was still running after run_timeout_s={self._limit_s:g}; all of its processes were"
                f" ended{end_text}"
            )
        if ended.stopped:
            raise ProgramError(f"{name} was stopped from outside")
        if ended.signal is not None:
            raise ProgramError(f"{name} was killed by signal {ended.signal}{last_line}")
        if ended.exit != 0 and not worked:
            raise ProgramError(f"{name} ended with exit code {ended.exit}{last_line}")

    @property
    def marked_s(self) -> float | None:
        """Return the duration of the timed part in seconds, or None if the program did not mark its begin.

        The timed part lasts until the end of the program. Raises ProgramError if no printed line matches the setting
        ``benchmark.begins``.
        """
        mark_s = self._begin_line.printed_s if self._begin_line else _first_mark_s(self._mark_file)
        if self._begin_line and mark_s is None:
            raise ProgramError(
                f"no printed line matches benchmark.begins={self._own['begins']}, so the begin of the timed part is"
                " unknown; correct the expression, or turn off the program's output buffer (PYTHONUNBUFFERED=1)"
            )
        return None if mark_s is None else max(0.0, self._start_s + self.wall_s - mark_s)

    def printed(self) -> dict[str, float]:
        """Return the metric ``printed``: the number that ``benchmark.metric`` finds in the program's output.

        The dictionary is empty if ``benchmark.metric`` is not set. Raises ProgramError if there is no such number.
        """
        metric = self._own["metric"]
        return {"printed": read_printed_number(self._text, metric, self._own["matches"])} if metric else {}

    @property
    def _text(self) -> str:
        return self._printed.decode(errors="replace")

    def _read_output(self) -> bool:
        """Read the program's output until all of its processes have ended.

        If the time limit is exceeded, stop the processes, and return False.
        """
        descriptors, in_time = [self._read, self._keeper.end_fd], True
        while self._keeper.end_fd in descriptors:
            remaining_s = self._deadline_s - time.perf_counter() if in_time else float("inf")
            if remaining_s <= 0:
                self._keeper.stop()
                in_time = False
                continue
            ready, _, _ = select.select(descriptors, [], [], None if remaining_s == float("inf") else remaining_s)
            if self._read in ready and not self._read_chunk():
                descriptors.remove(self._read)
            elif self._keeper.end_fd in ready:
                break
        while self._read in descriptors and select.select([self._read], [], [], 0)[0] and self._read_chunk():
            pass
        return in_time

    def _read_chunk(self) -> bool:
        """Read one chunk of output, and search it for the line that marks the begin of the timed part.

        Return False if the output has ended.
        """
        chunk = os.read(self._read, _CHUNK)
        self._printed += chunk
        if len(self._printed) > 2 * self._kept_bytes:
            del self._printed[: -self._kept_bytes]
        if self._begin_line and self._begin_line.printed_s is None:
            self._begin_line.search(chunk)
        return bool(chunk)


def _first_mark_s(path: Path) -> float | None:
    """Return the time of the first mark in the file of `jobs.mark`, or None if the file has no mark.

    The time is on the clock of `time.perf_counter`.
    """
    try:
        words = path.read_text(encoding="ascii").split()
    except (FileNotFoundError, ValueError):
        return None
    return int(words[0]) / 1e9 if words and words[0].isdecimal() else None
