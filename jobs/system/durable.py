"""Writing: files that appear whole or not at all and stay after a power cut, free space, and retries."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_Made = TypeVar("_Made")


def write_whole(path: Path, text: str) -> None:
    """Write `text` to `path` durably: temporary file, fsync, rename, fsync of the folder.

    Raises
    ------
    OSError
        No space, no permission, …; then `path` is what it was before and nothing else is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk's error names no file
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole and durably."""
    write_whole(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder, quotas apart."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def is_full(error: Exception) -> bool:
    """Return whether an error means a full storage; TensorFlow's errors say so only in their text."""
    return getattr(error, "errno", None) in _FULL or any(os.strerror(code) in str(error) for code in _FULL)


def retry(write: Callable[[], _Made], timeout_s: float) -> _Made:
    """Call what writes; where the disk is full, read-only or away, call it again, for at most `timeout_s`.

    Raises
    ------
    OSError
        It still fails.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return write()
        except OSError as error:  # noqa: PERF203 - a retry
            if time.monotonic() + pause_s > deadline:
                raise
            with contextlib.suppress(OSError):  # the log lies on a full disk, too
                print(f"cannot write {error.filename} ({error.strerror}); waiting for it", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
