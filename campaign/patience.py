"""Wait for a disk that is full, read-only or away for a while."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_Made = TypeVar("_Made")


def patiently(deed: Callable[[], _Made], patience_s: float) -> _Made:
    """Do what needs the disk; where it fails, wait and do it again, at most for `patience_s`.

    Raises
    ------
    OSError
        It still fails.
    """
    deadline = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return deed()
        except OSError as error:  # noqa: PERF203 - a retry
            if time.monotonic() + pause_s > deadline:
                raise
            with contextlib.suppress(OSError):  # the log lies on a full disk, too
                print(f"cannot write {error.filename} ({error.strerror}); waiting for it", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
