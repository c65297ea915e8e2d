"""Read parts of HDF5 files with one of four readers; the readers return equal bytes, and differ in the use of locks.

::

    with open_reader("offsets", [Part("climate/data", rows=(0, 1, 2, 10)), Part("climate/labels")], paths) as reader:
        fields, labels = reader.read(paths[0])
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jobs.data.readers.part import READERS, Part, Reader

__all__ = ["READERS", "Part", "Reader", "open_reader"]


def open_reader(*arguments: Any, **options: Any) -> AbstractContextManager[Reader]:
    """Open a reader with `jobs.data.readers.reader.open_reader`; this function delays the slow import of numpy."""
    from jobs.data.readers import reader  # noqa: PLC0415

    return reader.open_reader(*arguments, **options)
