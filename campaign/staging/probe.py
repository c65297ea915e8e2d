"""What files cost one reader, measured: files that are there, or new ones that are written, read and removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock

from campaign.staging.cost import Cost, fitted
from campaign.staging.observed import Floats
from jobs.system import files, page_cache, transfer

_PROBES, _MOST_BYTES = 48, 256 << 20
_READ_BYTES = 1 << 20  # of one call, as TensorFlow reads
_ROUNDS, _DRAWS, _SEED = 3, 100, 0


def costs_of_new(folder: Path, sizes: Floats) -> list[Cost]:
    """Return what files of such sizes cost below `folder`, which is ours: by all probes, then by draws of them."""
    wanted = np.quantile(sizes, (np.arange(_PROBES) + 0.5) / _PROBES).astype(int)
    wanted = np.minimum(wanted, _MOST_BYTES // _PROBES)
    with _written(folder, np.random.default_rng(_SEED).permutation(wanted).tolist()) as paths:
        return costs(paths)


def costs(paths: Sequence[Path]) -> list[Cost]:
    """Return what these files cost one reader, cold: by all of them, then by draws of them.

    Of each the median of three reads counts: what else the machine did during one is not the storage's.
    """
    rounds = []
    for _ in range(_ROUNDS):
        page_cache.cooled(paths, paths, paths[0].parent)
        rounds.append([_read(path) for path in paths])
    sizes, seconds = np.median(rounds, axis=0).T
    rng, ones = np.random.default_rng(_SEED), np.ones(len(paths))
    draws = [np.arange(len(paths)), *rng.integers(len(paths), size=(_DRAWS, len(paths)))]
    return [fitted(ones, sizes[drawn], seconds[drawn]) for drawn in draws]


def sample(number: int) -> list[int]:
    """Return which of so many things are probed, each once at most, in an order that is not theirs."""
    return list(np.random.default_rng(_SEED).permutation(number)[:_PROBES].tolist())


@contextmanager
def _written(folder: Path, sizes: Sequence[int]) -> Iterator[list[Path]]:
    """Write files of random bytes, durably; they go at the end."""
    home = folder / ".probe"
    with FileLock(folder / ".tfio-lock"):
        if home.exists():  # of one that was cut
            files.remove_tree(home)
        files.make_folder(home)
        try:
            paths = [home / str(number) for number in range(len(sizes))]
            for path, size in zip(paths, sizes, strict=True):
                with files.whole(path, durable=False) as file:
                    file.write(os.urandom(size))
            transfer.sync(paths, [home])
            yield paths
        finally:
            files.remove_tree(home)


def _read(path: Path) -> tuple[int, float]:
    """Open a file and read it to its end; returns its bytes and the seconds that took."""
    buffer, at = bytearray(_READ_BYTES), 0
    began = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while got := os.preadv(descriptor, [buffer], at):
            at += got
    finally:
        os.close(descriptor)
    return at, time.perf_counter() - began
