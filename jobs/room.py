"""Room on a storage: how much is free, whether one snapshot fits, whether an error means that it is full."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from jobs import snapshots
from jobs.snapshots import RoomError

if TYPE_CHECKING:
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def free(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder, quotas apart."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def is_full(error: Exception) -> bool:
    """Tell whether an error means a full storage; TensorFlow's errors say so in words alone."""
    return getattr(error, "errno", None) in _FULL or any(os.strerror(code) in str(error) for code in _FULL)


def check(folder: Path, size: int, copies: int = 1) -> None:
    """Raise RoomError where so many snapshots of `size` bytes do not fit, though older ones of ours made way."""
    ours = sum(path.stat().st_size for name in snapshots.names(folder) for path in (folder / name).rglob("*"))
    room = free(folder) + ours
    if room < size * copies:
        what = "a snapshot of {:.0f} MB does" if copies == 1 else f"{copies} snapshots of {{:.0f}} MB do"
        raise RoomError(
            f"{what.format(size / 1e6)} not fit on {folder}: {room / 1e6:.0f} MB are free",
            "free some room, " + ("or name another folder" if copies == 1 else "keep fewer, or name another folder"),
        )
