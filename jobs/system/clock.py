"""The time of day, and the kernel's own clock; durations are measured with `time.perf_counter`."""

from __future__ import annotations

import ctypes
import platform
import time
from datetime import UTC, datetime, timedelta

_libc = ctypes.CDLL(None)

_CLOCK_BOOTTIME = 7  # include/uapi/linux/time.h
_TRIES = 3
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}.get(platform.machine())  # asm/unistd.h


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def kernel_s() -> float | None:
    """Return seconds since boot as the kernel itself counts them; None where its number is not known here.

    `time.perf_counter` is what the C library says, and a preloaded library can replace that.
    """
    now = _Time()
    if _CLOCK_GETTIME is None or _libc.syscall(_CLOCK_GETTIME, _CLOCK_BOOTTIME, ctypes.byref(now)) != 0:
        return None
    return float(now.seconds + now.nanoseconds / 1e9)


def moment() -> tuple[float, float | None]:
    """Return one moment by `time.perf_counter` and by the kernel's clock: of a few tries the least interrupted one."""
    tries = [(time.perf_counter(), kernel_s(), time.perf_counter()) for _ in range(_TRIES)]
    at_s, kernel, _ = min(tries, key=lambda each: each[2] - each[0])
    return at_s, kernel


def utc_now() -> str:
    """Return the time as ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_utc(stamp: str) -> bool:
    """Return whether a text is a time in UTC as `utc_now` writes it, which another one can follow."""
    try:
        moment = datetime.fromisoformat(stamp.removesuffix("Z")) + timedelta(days=1)
    except (ValueError, OverflowError):
        return False
    return stamp.endswith("Z") and moment.tzinfo is None
