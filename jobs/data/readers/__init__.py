"""HDF5 files read in four ways, all giving the same bytes: what HDF5's lock costs, and what is there without it.

::

    with opened("offsets", [Part("climate/data", rows=(0, 1, 2, 10)), Part("climate/labels")], paths) as reader:
        fields, labels = reader.read(paths[0])
"""

from __future__ import annotations

from jobs.data.readers.library import Part
from jobs.data.readers.reader import READERS, Reader, opened

__all__ = ["READERS", "Part", "Reader", "opened"]
