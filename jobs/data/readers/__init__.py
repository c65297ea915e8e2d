"""HDF5 files read in four ways, all giving the same bytes: what HDF5's lock costs, and what is there without it.

::

    with opened("offsets", [Part("climate/data", rows=(0, 1, 2, 10)), Part("climate/labels")], paths) as reader:
        fields, labels = reader.read(paths[0])
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from jobs.data.readers.part import READERS, Part, Reader

__all__ = ["READERS", "Part", "Reader", "opened"]


def opened(*words: Any, **how: Any) -> AbstractContextManager[Reader]:
    """Make a reader ready, as `jobs.data.readers.reader.opened` says; numpy is imported here and not before."""
    from jobs.data.readers import reader  # noqa: PLC0415

    return reader.opened(*words, **how)
