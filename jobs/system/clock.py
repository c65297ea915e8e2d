"""The time of day, and the kernel's own clocks; durations are measured with `time.perf_counter`."""

from __future__ import annotations

import ctypes
import platform
import threading
import time
from datetime import UTC, datetime, timedelta

_libc = ctypes.CDLL(None)

_CLOCK_MONOTONIC_RAW, _CLOCK_BOOTTIME = 4, 7  # include/uapi/linux/time.h
_TRIES = 3
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}.get(platform.machine())  # asm/unistd.h


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def kernel_s(clock: int = _CLOCK_BOOTTIME) -> float | None:
    """Return seconds since boot as the kernel itself counts them; None where its number is not known here.

    `time.perf_counter` is what the C library says, and a preloaded library can replace that.
    """
    now = _Time()
    if _CLOCK_GETTIME is None or _libc.syscall(_CLOCK_GETTIME, clock, ctypes.byref(now)) != 0:
        return None
    return float(now.seconds + now.nanoseconds / 1e9)


def moment() -> tuple[float, float | None, float | None]:
    """Return one moment by `time.perf_counter`, by the kernel's clock, and by that of the hardware.

    Of a few tries it is the least interrupted one. The first two clocks go as fast as adjtimex(2) says, the third one
    (``CLOCK_MONOTONIC_RAW``, which stands still while the machine is suspended) as the hardware does.
    """
    tries = [
        (time.perf_counter(), kernel_s(), kernel_s(_CLOCK_MONOTONIC_RAW), time.perf_counter()) for _ in range(_TRIES)
    ]
    at_s, kernel, raw, _ = min(tries, key=lambda each: each[3] - each[0])
    return at_s, kernel, raw


def wait(seconds: float) -> None:
    """Wait as for a lock: a thread that is in nanosleep(2) meanwhile counts as kept from working."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


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
