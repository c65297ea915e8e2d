"""Make synthetic executables with the sizes, and about the entropy, of the Microsoft Malware dataset (BIG 2015).

Published facts (tf-Darshan, CLUSTER 2020; Kaggle BIG 2015): the dataset has 10,868 files of 9 classes with 48 GB in
all. The median size is about 4 MB. 4,420 files are smaller than 2 MB and have 3.7 GB together.

The sizes, in multiples of the median, follow a distribution that is fitted to the published facts:

- Sizes below 1/2 of the median are a power of the quantile, so that the small files have 3.7 GB together.
- Sizes from 1/2 of the median to the median are uniformly distributed.
- Sizes above the median are an exponential tail, so that all files have 48 GB together.

Equal arguments and equal versions of numpy give equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from jobs.data.scene import item_generator

_MEDIAN_BYTES = 4e6
_SMALL, _HALF = 4_420 / 10_868, 0.5  # share of the files that are smaller than _HALF of the median
_SMALL_MEAN = 3.7e9 / 4_420 / _MEDIAN_BYTES
_POWER = _HALF / _SMALL_MEAN - 1  # for uniform u from 0 to 1, the mean of u ** p is 1 / (p + 1)
_TAIL_MEAN = 2 * (48e9 / 10_868 / _MEDIAN_BYTES - _SMALL * _SMALL_MEAN - (0.5 - _SMALL) * 0.75) - 1
_LEAST_BYTES = 64
_PAGE, _TABLE = 4096, 4096
# Shares of pages, in the order of a file's sections: code, tables of numbers, text, packed resources.
_SHARES = (0.6, 0.15, 0.1, 0.15)
# In each section, the frequency of the n-th byte value is proportional to n ** -slope. A whole file has 6.3 bits of
# entropy per byte.
_SLOPES = (0.9, 1.5, 1.1, 0.0)
_VALUES = (256, 256, 96, 256)  # number of byte values that occur in each section


@dataclass(frozen=True)
class ExecutableSpec:
    """The specification of synthetic executables; `median_bytes` scales all sizes."""

    files: int
    median_bytes: int
    classes: int  # each class has other frequent byte values
    seed: int

    version: ClassVar[int] = 1

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the size of each file in bytes: evenly spaced quantiles of the fitted sizes, in random order."""
        quantiles = (np.arange(self.files) + 0.5) / self.files
        small = _HALF * (quantiles / _SMALL) ** _POWER
        middle = np.interp(quantiles, (_SMALL, 0.5), (_HALF, 1.0))
        tail = 1 - _TAIL_MEAN * np.log(np.minimum(1.0, 2 * (1 - quantiles)))
        parts = np.select([quantiles < _SMALL, quantiles < 0.5], [small, middle], tail)  # noqa: PLR2004 - the median
        sizes = np.maximum(_LEAST_BYTES, np.rint(self.median_bytes * parts)).astype(np.int64)
        return item_generator(self.seed, 0).permutation(sizes)

    def label(self, index: int) -> int:
        """Return the class of a file."""
        return index % self.classes

    def name(self, index: int) -> str:
        """Return the path of a file relative to its dataset."""
        return f"class_{self.label(index):03d}/file_{index:06d}.bin"

    def content(self, index: int, size: int) -> bytes:
        """Return the bytes of a file."""
        rng = item_generator(self.seed, 1, index)
        kinds = np.sort(rng.choice(len(_SHARES), -(-size // _PAGE), p=_SHARES))
        drawn = rng.integers(0, _TABLE, (len(kinds), _PAGE), dtype=np.uint16)
        return self._tables(self.label(index))[kinds[:, None], drawn].tobytes()[:size]

    def _tables(self, label: int) -> npt.NDArray[np.uint8]:
        """Return, for each kind of section, a table that maps a uniform random number to a byte value.

        The shape is (kinds, _TABLE).
        """
        rng = item_generator(self.seed, 2, label)
        tables = []
        for slope, values in zip(_SLOPES, _VALUES, strict=True):
            weights = np.arange(1, values + 1) ** -slope
            edges = np.cumsum(weights) / weights.sum()
            tables.append(rng.permutation(values)[np.searchsorted(edges, (np.arange(_TABLE) + 0.5) / _TABLE)])
        return np.array(tables, np.uint8)
