"""Files that appear whole or not at all, and stay after a power cut."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


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
