"""A table of events in columns: start, end, kind, thread, file and others."""

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
_ROWS_AT_ONCE = 10_000  # rows that are converted to Python's numbers at a time, because these take much memory


class EventsError(JobError):
    """Raised if a file of events is missing, damaged or too large."""


class Events:
    """A table of events: each column is an array with one value per event; unknown values are `UNKNOWN`.

    Every table has `COLUMNS`: start and end in ns of one clock, numbers of kind, thread, rank and file, and bytes.
    `words` maps a column whose numbers are indices to its list of words.
    """

    def __init__(self, words: Mapping[str, Sequence[str]], **columns: Column) -> None:
        self.words, self.columns = words, columns

    def __len__(self) -> int:
        return len(self.columns["start"])

    def __getitem__(self, name: str) -> Column:
        """Return a column; all `UNKNOWN` if it is one of `COLUMNS` that the table does not have."""
        if name in COLUMNS and name not in self.columns:
            return np.broadcast_to(np.int64(UNKNOWN), len(self))
        return self.columns[name]

    @property
    def spans(self) -> Spans:
        """Return the spans of time with at least one event."""
        return union(self["start"], self["end"])

    def at(self, indices: Column | slice) -> Events:
        """Return a table of some events, given as indices, a mask or a slice."""
        return Events(self.words, **{name: column[indices] for name, column in self.columns.items()})

    def changed(self, columns: Mapping[str, Column]) -> Events:
        """Return the table with some columns replaced or added."""
        return Events(self.words, **{**self.columns, **columns})

    def of(self, column: str, *words: str) -> Events:
        """Return the events that have one of these words in a column."""
        return self.at(np.isin(self[column], [self.words[column].index(word) for word in words]))

    def texts(self, name: str) -> list[str | None]:
        """Return the word of each event in a column; None if unknown."""
        return [self.words[name][index] if index >= 0 else None for index in self[name].tolist()]

    def by(self, name: str) -> Iterator[tuple[int, Events]]:
        """Yield each value of a column with a table of its events, in their order."""
        order = np.argsort(self[name], kind="stable")
        values, first = np.unique(self[name][order], return_index=True)
        for value, indices in zip(values.tolist(), np.split(order, first[1:]), strict=False):
            yield value, self.at(indices)

    def rows(self, *names: str) -> Iterator[tuple[int, ...]]:
        """Yield these columns event by event, as Python's numbers."""
        for first in range(0, len(self), _ROWS_AT_ONCE):
            yield from zip(*(self[name][first : first + _ROWS_AT_ONCE].tolist() for name in names), strict=True)
