"""Make files of random bytes; the definition of an accelerator states the sizes of the samples in the files.

The sizes of files with one sample follow a normal distribution with the stated mean and standard deviation. The
distribution is cut on both sides, so that no size is below zero and the mean stays exact. Equal arguments and equal
versions of numpy give equal bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from jobs.data.scene import item_generator

_LEAST = 0.05  # smallest size as a share of the mean; the largest size is 2 - 0.05 times the mean
_ROUNDS = 32  # rounds that widen the cut distribution until its standard deviation is the requested value
_MOST_SD = 0.5  # largest standard deviation as a share of the mean


@dataclass(frozen=True)
class SampleSpec:
    """The specification of files with `samples_per_file` samples each."""

    files: int
    sample_bytes: int  # mean size of a sample
    sample_sd: int  # standard deviation of the sizes in bytes; must be 0 if a file has several samples
    samples_per_file: int
    seed: int

    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.sample_sd and self.samples_per_file > 1:
            raise ValueError(
                f"samples_per_file={self.samples_per_file} with sample_sd={self.sample_sd}: sample_sd must be 0 if a"
                " file has several samples, because samples of one file have equal sizes"
            )
        if self.sample_sd > _MOST_SD * self.sample_bytes:
            raise ValueError(f"sample_sd={self.sample_sd} is more than half of sample_bytes={self.sample_bytes}")

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the size of each file in bytes: evenly spaced quantiles of the distribution, in random order."""
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
        """Return 0: all files have one class."""
        return 0

    def name(self, index: int) -> str:
        """Return the path of a file relative to its dataset."""
        return f"samples/file_{index:06d}.bin"

    def content(self, index: int, size: int) -> bytes:
        """Return the bytes of a file."""
        return item_generator(self.seed, 1, index).bytes(size)
