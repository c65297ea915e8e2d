"""Define a table of events with the columns start, end, kind, thread, file and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.errors import JobError
from jobs.events.intervals import Spans, union
from jobs.events.time_log import UNKNOWN

Column = NDArray[Any]

NS = 1e9
COLUMNS = ("start", "end", "kind", "thread", "rank", "file", "bytes")
_ROWS_AT_ONCE = 10_000  # number of rows to convert at a time, because Python's numbers take much memory


class EventsError(JobError):
    """Raised if a file with events is missing, damaged or too large."""


class Events:
    """A table of events. Each column is an array with one value per event; an unknown value is `UNKNOWN`.

    Every table has the columns in `COLUMNS`: start and end in ns of one clock, the numbers of kind, thread, rank and
    file, and bytes. If the numbers of a column stand for words, `words` has the list of words of this column.
    """

    def __init__(self, words: Mapping[str, Sequence[str]], **columns: Column) -> None:
        self.words, self.columns = words, columns

    def __len__(self) -> int:
        return len(self.columns["start"])

    def __getitem__(self, name: str) -> Column:
        """Return a column. If a column of `COLUMNS` is missing in the table, return `UNKNOWN` for all events."""
        if name in COLUMNS and name not in self.columns:
            return np.broadcast_to(np.int64(UNKNOWN), len(self))
        return self.columns[name]

    @property
    def spans(self) -> Spans:
        """Return the spans of time with at least one event."""
        return union(self["start"], self["end"])

    def selected(self, indices: Column | slice) -> Events:
        """Return a table of selected events; `indices` is an array of indices, a boolean array or a slice."""
        return Events(self.words, **{name: column[indices] for name, column in self.columns.items()})

    def with_columns(self, columns: Mapping[str, Column]) -> Events:
        """Return a table in which `columns` are replaced or added."""
        return Events(self.words, **{**self.columns, **columns})

    def with_words(self, column: str, *words: str) -> Events:
        """Return a table of the events that have one of the words in a column."""
        return self.selected(np.isin(self[column], [self.words[column].index(word) for word in words]))

    def texts(self, name: str) -> list[str | None]:
        """Return the word of each event in a column; an unknown word is None."""
        return [self.words[name][index] if index >= 0 else None for index in self[name].tolist()]

    def grouped_by(self, name: str) -> Iterator[tuple[int, Events]]:
        """Yield each distinct value of a column, with a table of the events that have this value."""
        order = np.argsort(self[name], kind="stable")
        values, first = np.unique(self[name][order], return_index=True)
        for value, indices in zip(values.tolist(), np.split(order, first[1:]), strict=False):
            yield value, self.selected(indices)

    def rows(self, *names: str) -> Iterator[tuple[int, ...]]:
        """Yield for each event a tuple with the values of the columns `names`, as Python numbers."""
        for first in range(0, len(self), _ROWS_AT_ONCE):
            yield from zip(*(self[name][first : first + _ROWS_AT_ONCE].tolist() for name in names), strict=True)
