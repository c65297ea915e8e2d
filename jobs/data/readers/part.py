"""Describe parts of HDF5 files, the interface of a reader of parts, and its log events, without the import of numpy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from jobs.events.time_log import TimeLog

READERS = ("h5py_threads", "h5py_pool", "h5py_shared", "offsets")
Driver = Literal["sec2", "core"]
At = tuple[str, int, int]
"""The phase, the epoch and the step of the training in which a file is read."""


class Reader:
    """The interface of a reader that reads the same parts of many HDF5 files."""

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Any]:
        """Read the parts of a file, and return one array for each part; thread safe."""
        raise NotImplementedError

    def processes(self) -> list[int]:
        """Return the process ids of this reader's processes; empty if the reader reads in the calling process."""
        return []


class Part(NamedTuple):
    """A part to read from each HDF5 file: a data set, or only some rows of a data set."""

    name: str  # path of the data set in the file
    rows: tuple[int, ...] | None = None  # numbers of the rows; None: all rows

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of this part, if the data set has the shape `shape`.

        Raises ValueError if the data set does not have the rows.
        """
        if self.rows is None:
            return shape
        if not shape or not all(0 <= row < shape[0] for row in self.rows):
            raise ValueError(f"{self.name} of shape {shape} does not have the rows {list(self.rows)}")
        return (len(self.rows), *shape[1:])

    def runs(self, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield each series of neighbouring rows as (index in the part, first row, number of rows).

        `length` is the number of rows of the data set.
        """
        rows = range(length) if self.rows is None else self.rows
        index = 0
        while index < len(rows):
            end = index + 1 if self.rows is not None else len(rows)
            while end < len(rows) and rows[end] == rows[end - 1] + 1:
                end += 1
            yield index, rows[index], end - index
            index = end


Note = Callable[[str, At | None, str], AbstractContextManager[Any]]
"""A function that returns a log event for a file, a place and an action; the event has ``size_bytes`` to set."""


def event_maker(log: TimeLog | None) -> Note:
    """Return a function that makes events in a time log; without a log, the events do nothing."""
    if log is None:
        return lambda *_: nullcontext(SimpleNamespace())
    return lambda path, at, action: log.event(action, path, at=log.place(*at) if at else None)
