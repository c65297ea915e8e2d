"""NERSC's HDF5 datasets, made from a seed: published layout, types and chunks, with similar random contents.

``HepSpec`` is for HEPCNNB: contiguous, no filter, 709 jet images of 224 x 224 per file. ``ClimateSpec`` is for
CDB: 16 fields of 768 x 1152 in one chunk, no filter. For data sets that are never read (``eid``, ``jz``, ``mg``,
``mn``) the types are not published.
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
    """The common part of both specifications."""

    version: ClassVar[int] = 1

    @staticmethod
    def libraries() -> dict[str, str]:
        """Return the versions of the libraries other than numpy that determine the bytes."""
        return {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version}

    def write(self, file: IO[bytes], index: int) -> None:
        """Write a file in pieces, because a published file has 427 MB."""
        # Opened by descriptor, because the name is temporary. The file has no times, so that equal specs give equal
        # bytes.
        with h5py.File(f"/proc/self/fd/{file.fileno()}", "w", libver="earliest", locking=False) as contents:
            self._write_data(contents, index)

    def _write_data(self, file: h5py.File, index: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class HepSpec(Hdf5Spec):
    """The specification of HEPCNNB's training and validation files; raises ValueError for impossible parameters."""

    train_files: int
    validation_files: int
    samples: int  # per training file; a validation file has 94/709 as many
    image_size: int
    seed: int

    CHANNELS: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if min(self.train_files, self.samples) < 1 or self.validation_files < 0 or self.seed < 0:
            raise ValueError("train_files and samples count from 1, validation_files and seed from 0")
        if not 1 <= self.image_size <= _MOST_SIDE:
            raise ValueError(f"image_size {self.image_size}: sides go from 1 to {_MOST_SIDE}")

    @property
    def files(self) -> int:
        """Return the number of files of both kinds."""
        return self.train_files + self.validation_files

    def label(self, index: int) -> int:
        """Return 0 for a training file, 1 for a validation file; training files come first."""
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
    """The specification of CDB's files, with `stats.h5` as the last; raises ValueError for impossible parameters."""

    files: int
    height: int
    width: int
    seed: int

    CHANNELS: ClassVar[int] = 16

    def __post_init__(self) -> None:
        if self.files < 1 or self.seed < 0:
            raise ValueError("files count from 1, and the seed from 0")
        if not 1 <= min(self.height, self.width) <= max(self.height, self.width) <= _MOST_SIDE:
            raise ValueError(f"{self.width} x {self.height}: sides go from 1 to {_MOST_SIDE}")
        if self.CHANNELS * self.height * self.width >= 1 << 30:
            raise ValueError(f"{self.width} x {self.height}: a chunk of HDF5 has less than 4 GiB")

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
