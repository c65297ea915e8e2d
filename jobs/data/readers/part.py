"""The parts of HDF5 files, the interface of their readers, and their log events; imported without numpy."""

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
"""Phase, epoch and step."""


class Reader:
    """The interface of a reader of parts of files."""

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Any]:
        """Return the parts of a file, one array per part; thread safe."""
        raise NotImplementedError

    def processes(self) -> list[int]:
        """Return the ids of the processes that read for this reader; empty if it reads in this process."""
        return []


class Part(NamedTuple):
    """A part of each HDF5 file: a data set, by its path in the file, or only the rows with these numbers."""

    name: str
    rows: tuple[int, ...] | None = None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of this part of a data set of `shape`; raise ValueError if it lacks the rows."""
        if self.rows is None:
            return shape
        if not shape or not all(0 <= row < shape[0] for row in self.rows):
            raise ValueError(f"{self.name} of shape {shape} does not have the rows {list(self.rows)}")
        return (len(self.rows), *shape[1:])

    def runs(self, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield runs of neighbouring rows (index in the part, first row, row count); the data set has `length` rows."""
        rows = range(length) if self.rows is None else self.rows
        index = 0
        while index < len(rows):
            end = index + 1 if self.rows is not None else len(rows)
            while end < len(rows) and rows[end] == rows[end - 1] + 1:
                end += 1
            yield index, rows[index], end - index
            index = end


Note = Callable[[str, At | None, str], AbstractContextManager[Any]]
"""A function that returns the log event for a file, a place and an action; its ``size_bytes`` may be set."""


def event_maker(log: TimeLog | None) -> Note:
    """Return a function that makes events in this log; without a log the events do nothing."""
    if log is None:
        return lambda *_: nullcontext(SimpleNamespace())
    return lambda path, at, action: log.event(action, path, at=log.place(*at) if at else None)
