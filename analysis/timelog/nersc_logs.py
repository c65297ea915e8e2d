"""Read what NERSC's TimeLogger left: CSV of seven or nine columns, and the sheet `output` of their workbooks.

Their CSV quotes nothing, and the last column, a thread, has commas in it. Ranks that printed at once garbled rows:
those are named and left out. Durations were written in full, and in Python 2 stamps to 10 ms: a sum is of durations, a
union of stamps.
"""

from __future__ import annotations

import csv
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from analysis.errors import AnalysisError
from analysis.text.plain import one_line
from analysis.timelog.log import MOST_EVENTS, UNKNOWN, Events, Stream, misread

COLUMNS = (
    "Epoch", "Rank", "Action Name", "Action Description", "Start Time", "End Time", "Time Taken", "Process ID",
    "Current Thread",
)  # fmt: skip
SHORT = 7
SHEET = "output"
LONGEST_LINE = 1 << 16
MOST_ROWS = 1 << 20  # of a sheet; for rows that a file leaves out, openpyxl makes empty ones
MOST_WORKBOOK_BYTES = 1 << 28
MOST_WORDS = {"caller": 1000, "action": 1000, "thread": 100_000}
MOST_LETTERS = 200
MOST_SKIPPED = 1000
# Seconds until the year 2096; and any rank, epoch (a global step, of a checkpoint) and process.
LATEST_S, MOST_NUMBER = 4e9, 2**31
_NUMBERS = ("epoch", "rank", "caller", "action", "start_ns", "end_ns", "taken_ns", "process", "thread")


class OddRowError(ValueError):
    """A row is no event; the message says why."""


class Rows:
    """The events of one run, from one file or a file of each rank."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in _NUMBERS}
        self._words: dict[str, dict[str, int]] = {name: {} for name in MOST_WORDS}
        self.skipped: list[str] = []

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._columns["rank"])

    def csv(self, file: BinaryIO, name: str) -> None:
        """Take in a file of comma-separated values. Raises AnalysisError: it has no header, or too many rows."""
        width = len(heading(file.readline(LONGEST_LINE)))
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=2):
            if line.strip():
                self._take(fields(line), width, name, number)

    def workbook(self, file: BinaryIO, name: str) -> None:
        """Take in a workbook. Raises AnalysisError: it has no sheet of events, or openpyxl is not there to read it."""
        for number, row in enumerate(_sheet(file, name), start=1):
            if number > MOST_ROWS:
                raise misread(name, number, f"a sheet has {MOST_ROWS} rows at most", "save its sheet as CSV")
            cells = ["" if cell is None else str(cell) for cell in row]
            if any(cells) and not (number == 1 and _is_heading(cells)):
                self._take(cells, SHORT, name, number)

    def events(self) -> tuple[Events, list[Stream]]:
        """Return them, and the processes that they are of; of these nothing else is known."""
        columns = {name: np.array(column, dtype=np.int64) for name, column in self._columns.items()}
        process = columns.pop("process")
        found, stream = np.unique([columns["rank"], process], axis=1, return_inverse=True)
        unknown = np.full(len(self), UNKNOWN)
        events = Events(
            **columns,
            stream=stream.reshape(-1),
            phase=np.zeros(len(self), dtype=np.int8),
            step=unknown,
            size_bytes=unknown,
            file=unknown,
        )
        spans = [(int(own.start_ns.min()), int(own.end_ns.max())) for _, own in events.by("stream")]
        who = zip(*found.tolist(), spans, strict=True)
        return events, [Stream(rank, start, end, process=process) for rank, process, (start, end) in who]

    def words(self, name: str) -> list[str]:
        """Return the texts of a column, in the order of their numbers."""
        return list(self._words[name])

    def _take(self, row: Sequence[str], width: int, name: str, number: int) -> None:
        try:
            values = self._values(row, width)
        except ValueError as error:
            why = str(error) if isinstance(error, OddRowError) else "is no event"
            said = one_line(f"{why}: {','.join(row)}")[:MOST_LETTERS]
            self.skipped.append(f"{name}, line {number}: {said}")
            if len(self.skipped) > MOST_SKIPPED:
                raise misread(name, number, f"more than {MOST_SKIPPED} rows are no events") from None
            return
        if len(self) >= MOST_EVENTS:
            raise misread(name, number, f"there are more than {MOST_EVENTS} events", "give them in parts")
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def _values(self, row: Sequence[str], width: int) -> Sequence[int]:
        """Return a row by `_NUMBERS`."""
        if len(row) < width or (width == SHORT and any(row[SHORT:])):
            raise OddRowError(f"has {len(row)} fields")
        cells = [cell.strip() for cell in row]
        epoch, rank = (_whole(cell) for cell in cells[:2])
        start_ns, end_ns, taken_ns = (_ns(cell) for cell in cells[4:SHORT])
        if end_ns < start_ns or taken_ns < 0:
            raise OddRowError("ends before it begins")
        process = _whole(cells[SHORT]) if width > SHORT else UNKNOWN
        thread = self._number("thread", ",".join(cells[SHORT + 1 : len(row)]))
        words = self._number("caller", cells[2]), self._number("action", cells[3])
        return epoch, rank, *words, start_ns, end_ns, taken_ns, process, thread

    def _number(self, column: str, word: str) -> int:
        known, word = self._words[column], word[:MOST_LETTERS]
        if word not in known and len(known) >= MOST_WORDS[column]:
            raise OddRowError(f"is of one {column} more than {MOST_WORDS[column]}")
        return known.setdefault(word, len(known))


def begins(line: bytes) -> bool:
    """Return whether these are the first bytes of a workbook."""
    return line.startswith(b"PK\x03\x04")


def heading(line: bytes) -> list[str]:
    """Return the names of the columns; none where the line is not a header of theirs."""
    cells = [cell for cell in fields(line) if cell]
    return cells if _is_heading(cells) else []


def fields(line: bytes) -> list[str]:
    """Return the cells of a line."""
    text = line.decode(errors="replace").translate(dict.fromkeys(map(ord, "\0\r\n\ufeff")))
    return next(csv.reader([text], skipinitialspace=True), [])


def _is_heading(cells: Sequence[str]) -> bool:
    return tuple(cell.strip() for cell in cells if cell) in (COLUMNS, COLUMNS[:SHORT])


def _whole(cell: str) -> int:
    value = float(cell)
    if not (abs(value) < MOST_NUMBER and value == int(value) and value >= UNKNOWN):
        raise OddRowError(f"has {cell} where a number from -1 belongs")
    return int(value)


def _ns(cell: str) -> int:
    value = float(cell)
    if not abs(value) < LATEST_S:
        raise OddRowError(f"has {cell} where seconds belong")
    return round(value * 1e9)


def _sheet(file: BinaryIO, name: str) -> Iterator[Sequence[Any]]:
    """Yield the rows of the sheet of events, without the file being read as a whole."""
    try:
        import openpyxl  # noqa: PLC0415 - an extra
    except ImportError:
        why = f"{name} is a workbook, and openpyxl is not installed"
        raise AnalysisError(why, "pip install 'tfio-campaign[xlsx]', or save its sheet as CSV") from None
    try:
        with zipfile.ZipFile(file) as parts:
            if sum(part.file_size for part in parts.infolist()) > MOST_WORKBOOK_BYTES:
                raise OverflowError(f"more than {MOST_WORKBOOK_BYTES} bytes unpacked")  # noqa: TRY301
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        yield from book[SHEET].iter_rows(max_col=SHORT, values_only=True)
    except Exception as error:  # what a damaged file makes of openpyxl has no end
        why = one_line(f"{type(error).__name__}: {error}")[:MOST_LETTERS]
        raise AnalysisError(f"{name} is no workbook with a sheet {SHEET} ({why})", "save its sheet as CSV") from error
