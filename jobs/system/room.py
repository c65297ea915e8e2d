"""Room on a storage: how much is free, and whether an error means that it is full."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

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
