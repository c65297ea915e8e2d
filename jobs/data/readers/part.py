"""What is read of HDF5 files, and by what; without numpy, for who only wants to know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

READERS = ("h5py_threads", "h5py_pool", "h5py_shared", "offsets")
Driver = Literal["sec2", "core"]
At = tuple[str, int, int]
"""Phase, epoch and step."""


class Reader:
    """Reads parts of files."""

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Any]:
        """Return the parts of a file, each an array of its own; may be called by any number of threads."""
        raise NotImplementedError

    def processes(self) -> list[int]:
        """Return the numbers of the processes that read for this one; none where it reads by itself."""
        return []


class Part(NamedTuple):
    """What is read of each file: a data set by its path in there, or the rows of it with these numbers."""

    name: str
    rows: tuple[int, ...] | None = None

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the part of a data set of this shape; ValueError where it has no such rows."""
        if self.rows is None:
            return shape
        if not shape or not all(0 <= row < shape[0] for row in self.rows):
            raise ValueError(f"{self.name} of shape {shape} does not have the rows {list(self.rows)}")
        return (len(self.rows), *shape[1:])

    def runs(self, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield the rows as runs of neighbours: place in the part, first row, number of rows; `length`: of all rows."""
        rows = range(length) if self.rows is None else self.rows
        place = 0
        while place < len(rows):
            end = place + 1 if self.rows is not None else len(rows)
            while end < len(rows) and rows[end] == rows[end - 1] + 1:
                end += 1
            yield place, rows[place], end - place
            place = end
