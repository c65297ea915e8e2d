"""The speed and the size of an emulated storage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.settings import Node

GB = 10**9
DATA = "data"
"""Folder at the top of each storage that is a campaign's root: where nothing is mounted, there is none."""
FOLDER_VARIABLE = "CAMPAIGN_TESTBED"
DEFAULT_FOLDER = "/var/lib/tfio-testbed"


@dataclass(frozen=True)
class Speed:
    """What a device does at most: MB/s and requests a second, read and written; None: what lies beneath does it."""

    read_mb_per_s: float | None
    write_mb_per_s: float | None
    read_iops: int | None = None
    write_iops: int | None = None

    def limits(self) -> dict[str, int]:
        """Return the bounds in bytes and requests a second, by the kernel's names for them; only those there are."""
        limits = {
            "read_bps": _bytes(self.read_mb_per_s),
            "write_bps": _bytes(self.write_mb_per_s),
            "read_iops": self.read_iops,
            "write_iops": self.write_iops,
        }
        return {kind: limit for kind, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Wanted:
    """An emulated storage: its speed, and its size; None: an equal share of what is free beneath, at most 12 GB."""

    speed: Speed
    size_bytes: int | None = None

    def facts(self, name: str) -> Node:
        """Return what its file system says of itself (`jobs.system.emulated`)."""
        return {"name": name, **asdict(self.speed)}


def _bytes(mb_per_s: float | None) -> int | None:
    return None if mb_per_s is None else round(mb_per_s * 1e6)
