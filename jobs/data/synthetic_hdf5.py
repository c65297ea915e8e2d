"""Make HDF5 files like NERSC's datasets: the published layout, types and chunks, with similar random contents.

``HepSpec`` makes files like HEPCNNB's: contiguous data sets without a filter, 709 jet images of 224 x 224 per file.
``ClimateSpec`` makes files like CDB's: 16 fields of 768 x 1152 in one chunk without a filter. The types of the HDF5
data sets ``eid``, ``jz``, ``mg`` and ``mn`` are not published; the benchmarks never read these data sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt

from jobs.data.scene import item_generator
from jobs.lazy_imports import h5py

_OVERHEAD_BYTES = 16_384  # upper bound per file for HDF5's description of the data sets
_MOST_SIDE = 16_384


class Hdf5Spec:
    """The common base of the specifications of synthetic HDF5 files."""

    version: ClassVar[int] = 1

    @staticmethod
    def libraries() -> dict[str, str]:
        """Return the versions of the libraries, except numpy, that determine the bytes of a file."""
        return {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}

    def write(self, file: IO[bytes], index: int) -> None:
        """Write an HDF5 file in pieces, because a file of the published size has 427 MB."""
        # HDF5 opens the file by its descriptor, because the file has only a temporary name.
        with h5py.File(f"/proc/self/fd/{file.fileno()}", "w", libver="earliest", locking=False) as contents:
            self._write_data(contents, index)

    def _write_data(self, file: h5py.File, index: int) -> None:
        """Write the data sets of a file with `track_times=False`: times would make equal specs give different bytes."""
        raise NotImplementedError


@dataclass(frozen=True)
class HepSpec(Hdf5Spec):
    """The specification of synthetic files for HEPCNNB; raises ValueError for impossible parameters."""

    train_files: int
    validation_files: int
    samples: int  # number of samples in a training file; a validation file has 94/709 of this number
    image_size: int
    seed: int

    CHANNELS: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if min(self.train_files, self.samples) < 1 or self.validation_files < 0 or self.seed < 0:
            raise ValueError("train_files and samples must be at least 1, validation_files and seed at least 0")
        if not 1 <= self.image_size <= _MOST_SIDE:
            raise ValueError(f"image_size {self.image_size} is not between 1 and {_MOST_SIDE} pixels")

    @property
    def files(self) -> int:
        """Return the number of training and validation files."""
        return self.train_files + self.validation_files

    def label(self, index: int) -> int:
        """Return 0 for a training file and 1 for a validation file; training files have the lower indices."""
        return int(index >= self.train_files)

    def name(self, index: int) -> str:
        """Return the path of a file relative to its dataset, as in `train/train_0003.h5`."""
        kind = ("train", "validation")[self.label(index)]
        return f"{kind}/{kind}_{index - self.train_files * self.label(index):04d}.h5"

    def samples_of(self, index: int) -> int:
        """Return the number of samples in a file."""
        return max(1, round(self.samples * 94 / 709)) if self.label(index) else self.samples

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the approximate size of each file in bytes, shape (files,)."""
        sample = 4 * (self.CHANNELS * self.image_size**2 + 8)
        return np.array([self.samples_of(index) * sample + _OVERHEAD_BYTES for index in range(self.files)])

    def _write_data(self, file: h5py.File, index: int) -> None:
        rng, samples = item_generator(self.seed, 3, index), self.samples_of(index)
        shape = (samples, self.CHANNELS, self.image_size, self.image_size)
        data = file.create_dataset("data", shape, "<f4", track_times=False)
        for sample in range(samples):
            hits = rng.random(shape[1:], dtype=np.float32)
            data[sample] = np.where(hits > 0.9, (hits - np.float32(0.9)) * np.float32(10), np.float32(0))  # noqa: PLR2004 - few cells have hits
        for name in ("label", "psr", "eid", "jz"):
            limit = 2 if name == "label" else 1000
            file.create_dataset(name, data=rng.integers(0, limit, samples, dtype="<i4"), track_times=False)
        for name in ("normweight", "weight", "mg", "mn"):
            file.create_dataset(name, data=rng.random(samples, dtype=np.float32), track_times=False)


@dataclass(frozen=True)
class ClimateSpec(Hdf5Spec):
    """The specification of synthetic files for CDB; the last file is `stats.h5`.

    Raises ValueError for impossible parameters.
    """

    files: int
    height: int
    width: int
    seed: int

    CHANNELS: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if self.files < 1 or self.seed < 0:
            raise ValueError("files must be at least 1, and seed at least 0")
        if not 1 <= min(self.height, self.width) <= max(self.height, self.width) <= _MOST_SIDE:
            raise ValueError(f"width {self.width} and height {self.height} are not both between 1 and {_MOST_SIDE}")
        if self.CHANNELS * self.height * self.width >= 1 << 30:
            raise ValueError(f"{self.width} x {self.height} is too large: a chunk of HDF5 must have less than 4 GiB")

    def label(self, _index: int) -> int:
        """Return 0: all files have one class."""
        return 0

    def name(self, index: int) -> str:
        """Return a file's path relative to its dataset, as in `data-1996-01-01-03-1.h5`: one file per three hours."""
        moment = datetime(1996, 1, 1) + timedelta(hours=3 * index)  # noqa: DTZ001 - a name
        return "stats.h5" if index == self.files - 1 else f"{moment:data-%Y-%m-%d-%H}-1.h5"

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the approximate size of each file in bytes, shape (files,)."""
        data = 4 * ((self.CHANNELS + 1) * self.height * self.width + 4 * self.CHANNELS)
        return np.array([data] * (self.files - 1) + [0]) + _OVERHEAD_BYTES

    def _write_data(self, file: h5py.File, index: int) -> None:
        rng, group = item_generator(self.seed, 4, index), file.create_group("climate")
        if index == self.files - 1:
            group.create_dataset(
                "stats", data=_stats([np.array([-4, 4], np.float32)] * self.CHANNELS), track_times=False
            )
            return
        shape = (self.CHANNELS, self.height, self.width)
        data = rng.standard_normal(shape, dtype=np.float32)
        labels = rng.choice(np.arange(3, dtype="<f4"), shape[1:], p=(0.982, 0.017, 0.001))
        for name, values in (("data", data), ("labels", labels)):
            group.create_dataset(name, data=values, chunks=values.shape, track_times=False)
        group.create_dataset("stats", data=_stats(data), track_times=False)


def _stats(channels: Iterable[Any]) -> Any:
    """Return mean, maximum, minimum and standard deviation of each channel, shape (channels, 4)."""
    rows = [(channel.mean(), channel.max(), channel.min(), channel.std()) for channel in channels]
    return np.array(rows, dtype="<f4")
