"""A storage of a known speed, made as `python -m campaign testbed` makes it; needs root."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from campaign.testbed import apply
from campaign.testbed.spec import GB, Speed, StorageRequest

# Chien et al. 2018, Table I.
HDD = Speed(163.00, 133.14)
OPTANE = Speed(1603.06, 511.78)


def _have(image: Path, size: int) -> None:
    """Allocate all blocks of an image, and its pages where it lies in memory: no write waits for them later."""
    with image.open("rb+") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        with mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as memory:
            _ = memory[:: mmap.PAGESIZE]  # only what is touched is there


@contextlib.contextmanager
def throttled(place: Path, speed: Speed, size_gb: float = 2.0) -> Iterator[Path]:
    """Make a storage under `place` (a new folder) and remove it at the end; yields its root."""
    seen = apply.bring_up(place, {"throttled": StorageRequest(speed, round(size_gb * GB))}, apply.find_owner())
    try:
        _have(seen.storages["throttled"].image, round(size_gb * GB))
        yield seen.storages["throttled"].root
    finally:
        apply.take_down(place)
