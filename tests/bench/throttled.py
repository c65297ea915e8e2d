"""A storage of a known speed: one of a testbed (`python -m campaign testbed`), which needs root."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from campaign.testbed import work
from campaign.testbed.wanted import GB, Speed, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Chien et al. 2018, Table I.
HDD = Speed(163.00, 133.14)
SSD = Speed(280.55, 195.05)
OPTANE = Speed(1603.06, 511.78)


@contextlib.contextmanager
def throttled(place: Path, speed: Speed, size_gb: float = 2.0) -> Iterator[Path]:
    """Make a storage under `place` (a new folder) and take it away at the end; yields its root."""
    seen = work.up(place, {"throttled": Wanted(speed, round(size_gb * GB))}, work.owner())
    try:
        with seen.storages["throttled"].image.open("rb+") as image:  # a device does not look for room as it writes
            os.posix_fallocate(image.fileno(), 0, round(size_gb * GB))
        yield seen.storages["throttled"].root
    finally:
        work.down(place)
