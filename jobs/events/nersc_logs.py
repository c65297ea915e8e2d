"""Read the logs of NERSC's TimeLogger: CSV files with seven or nine columns, and the sheet `output` of Excel workbooks.

The CSV has no quotes, although the last column, the name of a thread, contains commas. Rows are damaged where several
ranks printed at the same time; damaged rows are listed and left out. Durations are exact, but Python 2 printed start
and end times only with a resolution of 10 ms. So sums are calculated from durations, and unions of intervals from start
and end times.
"""

from __future__ import annotations

import csv
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from jobs.events.run_log import MOST_EVENTS, ProcessLog, damaged_line_error
from jobs.events.table import Events, EventsError
from jobs.events.time_log import PHASES, UNKNOWN
from jobs.terminal import visible

COLUMNS = (
    "Epoch", "Rank", "Action Name", "Action Description", "Start Time", "End Time", "Time Taken", "Process ID",
    "Current Thread",
)  # fmt: skip
SHORT = 7
SHEET = "output"
LONGEST_LINE = 1 << 16
MOST_ROWS = 1 << 20  # largest number of rows in a sheet; openpyxl also returns empty rows for missing row numbers
MOST_WORKBOOK_BYTES = 1 << 28
MOST_WORDS = {"caller": 1000, "action": 1000, "thread": 100_000}
MOST_LETTERS = 200
MOST_SKIPPED = 1000
# The latest time in Unix seconds (in the year 2096), and the largest rank, process id and epoch. In the row of a
# checkpoint, the column of the epoch has the global step.
LATEST_S, MOST_NUMBER = 4e9, 2**31
_NUMBERS = ("epoch", "rank", "caller", "kind", "start", "end", "taken", "process", "thread")


class OddRowError(ValueError):
    """Raised for a row that is not a valid event; the message has the reason."""


class NerscEvents:
    """Collects the events of one run from one file, or from one file per rank."""

    def __init__(self) -> None:
        self._columns = {name: array("q") for name in _NUMBERS}
        self._words: dict[str, dict[str, int]] = {name: {} for name in MOST_WORDS}
        self.skipped: list[str] = []

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._columns["rank"])

    def csv(self, file: BinaryIO, name: str) -> None:
        """Add the events of a CSV file; raise EventsError if the file has too many events or too many damaged rows."""
        width = len(column_names(file.readline(LONGEST_LINE)))
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=2):
            if line.strip():
                self._add_row(cells_of_line(line), width, name, number)

    def workbook(self, file: BinaryIO, name: str) -> None:
        """Add the events of an Excel workbook.

        Raises EventsError if the workbook has no sheet with events, or if the package openpyxl is not installed.
        """
        for number, row in enumerate(_read_sheet(file, name), start=1):
            if number > MOST_ROWS:
                raise damaged_line_error(name, number, f"a sheet has {MOST_ROWS} rows at most", "save its sheet as CSV")
            cells = ["" if cell is None else str(cell) for cell in row]
            if any(cells) and not (number == 1 and _is_heading(cells)):
                self._add_row(cells, SHORT, name, number)

    def events(self) -> tuple[Events, list[ProcessLog]]:
        """Return all events as a table, and the processes that logged the events.

        Only the rank, the id, the start and the end of a process are known.
        """
        columns: dict[str, Any] = {name: np.array(column, np.int64) for name, column in self._columns.items()}
        process = columns.pop("process")
        processes, stream = np.unique([columns["rank"], process], axis=1, return_inverse=True)
        columns |= {"stream": stream.reshape(-1), "phase": np.zeros(len(self), np.int8)}
        columns["step"] = np.full(len(self), UNKNOWN)
        actions, callers = (list(self._words[name]) for name in ("action", "caller"))
        events = Events({"kind": actions, "caller": callers, "phase": PHASES, "file": []}, **columns)
        spans = [(int(part["start"].min()), int(part["end"].max())) for _, part in events.grouped_by("stream")]
        facts = zip(*processes.tolist(), spans, strict=True)
        return events, [ProcessLog(rank, start, end, process=process) for rank, process, (start, end) in facts]

    def _add_row(self, row: Sequence[str], width: int, name: str, number: int) -> None:
        try:
            values = self._values(row, width)
        except ValueError as error:
            reason = str(error) if isinstance(error, OddRowError) else "is no event"
            remark = _one_line(f"{reason}: {','.join(row)}")[:MOST_LETTERS]
            self.skipped.append(f"{name}, line {number}: {remark}")
            if len(self.skipped) > MOST_SKIPPED:
                raise damaged_line_error(name, number, f"more than {MOST_SKIPPED} rows are no events") from None
            return
        if len(self) >= MOST_EVENTS:
            raise damaged_line_error(
                name, number, f"there are more than {MOST_EVENTS} events", "give the files in parts"
            )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def _values(self, row: Sequence[str], width: int) -> Sequence[int]:
        """Return the values of a row in the order of `_NUMBERS`; raise ValueError if the row is not a valid event."""
        if len(row) < width or (width == SHORT and any(row[SHORT:])):
            raise OddRowError(f"has {len(row)} fields")
        cells = [cell.strip() for cell in row]
        epoch, rank = (_whole(cell) for cell in cells[:2])
        start_ns, end_ns, duration_ns = (_ns(cell) for cell in cells[4:SHORT])
        if end_ns < start_ns or duration_ns < 0:
            raise OddRowError("ends before it begins")
        process = _whole(cells[SHORT]) if width > SHORT else UNKNOWN
        thread = self._word_number("thread", ",".join(cells[SHORT + 1 : len(row)]))
        words = self._word_number("caller", cells[2]), self._word_number("action", cells[3])
        return epoch, rank, *words, start_ns, end_ns, duration_ns, process, thread

    def _word_number(self, column: str, word: str) -> int:
        numbers, word = self._words[column], word[:MOST_LETTERS]
        if word not in numbers and len(numbers) >= MOST_WORDS[column]:
            raise OddRowError(f"has a {column} beyond the first {MOST_WORDS[column]}")
        return numbers.setdefault(word, len(numbers))


def is_workbook(line: bytes) -> bool:
    """Return whether a file that begins with the bytes `line` is an Excel workbook."""
    return line.startswith(b"PK\x03\x04")


def column_names(line: bytes) -> list[str]:
    """Return the names of the columns, or an empty list if the line is not a header of NERSC's CSV."""
    cells = [cell for cell in cells_of_line(line) if cell]
    return cells if _is_heading(cells) else []


def cells_of_line(line: bytes) -> list[str]:
    """Return the cells of a line of a CSV file."""
    text = line.decode(errors="replace").translate(dict.fromkeys(map(ord, "\0\r\n\ufeff")))
    return next(csv.reader([text], skipinitialspace=True), [])


def _is_heading(cells: Sequence[str]) -> bool:
    return tuple(cell.strip() for cell in cells if cell) in (COLUMNS, COLUMNS[:SHORT])


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _whole(cell: str) -> int:
    value = float(cell)
    if not (abs(value) < MOST_NUMBER and value == int(value) and value >= UNKNOWN):
        raise OddRowError(f"has {cell} instead of a whole number from -1")
    return int(value)


def _ns(cell: str) -> int:
    value = float(cell)
    if not abs(value) < LATEST_S:
        raise OddRowError(f"has {cell} instead of seconds")
    return round(value * 1e9)


def _read_sheet(file: BinaryIO, name: str) -> Iterator[Sequence[Any]]:
    """Yield the rows of the sheet of events one by one, without reading the whole file into memory."""
    try:
        import openpyxl  # noqa: PLC0415 - an optional package (extra `xlsx`)
    except ImportError:
        message = f"{name} is a workbook, and openpyxl is not installed"
        raise EventsError(message, "pip install 'tfio-campaign[xlsx]', or save the sheet as CSV") from None
    try:
        with zipfile.ZipFile(file) as parts:
            if sum(part.file_size for part in parts.infolist()) > MOST_WORKBOOK_BYTES:
                raise OverflowError(f"more than {MOST_WORKBOOK_BYTES} bytes unpacked")  # noqa: TRY301
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        yield from book[SHEET].iter_rows(max_col=SHORT, values_only=True)
    except Exception as error:  # a damaged file can make openpyxl raise almost any error
        reason = _one_line(f"{type(error).__name__}: {error}")[:MOST_LETTERS]
        raise EventsError(f"{name} is no workbook with a sheet {SHEET} ({reason})", "save its sheet as CSV") from error
