"""Writing to a storage that is full, read-only or away for a while: free space, and retries."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_Made = TypeVar("_Made")


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder, quotas apart."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def lack_of_room(folder: Path, size: int) -> str:
    """Say that `size` bytes more do not fit on the file system of a folder; empty where they do, quotas apart."""
    free = free_bytes(folder)
    return (
        ""
        if size <= free
        else f"{folder} needs {size / 1e6:,.0f} MB more, and its device has {free / 1e6:,.0f} MB free"
    )


def is_full(error: Exception) -> bool:
    """Return whether an error means a full storage; TensorFlow's errors say so only in their text."""
    return getattr(error, "errno", None) in _FULL or any(os.strerror(code) in str(error) for code in _FULL)


def keep_trying(write: Callable[[], _Made], timeout_s: float) -> _Made:
    """Call what writes; where that fails (disk full, read-only, away), call it again, for at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return write()
        except OSError as error:
            if time.monotonic() + pause_s > deadline:
                raise
            with contextlib.suppress(OSError):  # the log lies on a full disk, too
                print(f"cannot write {error.filename} ({error.strerror}); waiting for it", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
