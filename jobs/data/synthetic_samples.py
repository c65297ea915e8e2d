"""Synthetic files of random bytes whose samples have the sizes that the definition of an accelerator states.

Files of one sample have sizes of the given mean and standard deviation: a normal distribution, which is cut on both
sides so that no size is below zero and the mean stays exact. Equal arguments give equal bytes with equal versions of
numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from jobs.data.scene import item_generator

_LEAST = 0.05  # of the mean: the smallest size, and so far below twice the mean the largest
_ROUNDS = 32  # of widening what is cut, until the standard deviation is the one that is asked for
_MOST_SD = 0.5  # of the mean


@dataclass(frozen=True)
class SampleSpec:
    """The specification of files with `samples_per_file` samples each."""

    files: int
    sample_bytes: int  # the mean
    sample_sd: int  # standard deviation of the sizes; only for files of one sample
    samples_per_file: int
    seed: int

    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.sample_sd and self.samples_per_file > 1:
            raise ValueError(f"samples_per_file={self.samples_per_file} with sample_sd: samples of one file are equal")
        if self.sample_sd > _MOST_SD * self.sample_bytes:
            raise ValueError(f"sample_sd={self.sample_sd} is more than half of sample_bytes={self.sample_bytes}")

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the size in bytes of each file: even quantiles of the distribution, ordered by the seed."""
        normal = NormalDist()
        quantiles = np.array([normal.inv_cdf((index + 0.5) / self.files) for index in range(self.files)])
        wanted, most = self.sample_sd / self.sample_bytes, 1 - _LEAST
        parts = wide = wanted * quantiles
        for _ in range(_ROUNDS if wanted and self.files > 1 else 0):
            parts = np.clip(wide, -most, most)
            wide = wide * (wanted / parts.std())
        sizes = np.rint(self.samples_per_file * self.sample_bytes * (1 + parts)).astype(np.int64)
        return item_generator(self.seed, 0).permutation(np.maximum(1, sizes))

    def label(self, _index: int) -> int:
        """Return the class of a file; there is one."""
        return 0

    def name(self, index: int) -> str:
        """Return the path of a file relative to its dataset."""
        return f"samples/file_{index:06d}.bin"

    def content(self, index: int, size: int) -> bytes:
        """Return the bytes of a file."""
        return item_generator(self.seed, 1, index).bytes(size)
