"""Read the time of day and the kernel's clocks; sleep with a timer that measures how late the sleep ended.

A duration within one process is measured with `time.perf_counter`. A duration that begins in one process and ends in
another process is measured with `current_moment`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

_libc = ctypes.CDLL(None, use_errno=True)

_CLOCK_MONOTONIC_RAW, _CLOCK_BOOTTIME = 4, 7  # include/uapi/linux/time.h
_TRIES = 3
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}.get(platform.machine())  # asm/unistd.h


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def kernel_s(clock: int = _CLOCK_BOOTTIME) -> float | None:
    """Return the seconds since boot by a direct system call, or None if the number of the system call is unknown.

    `time.perf_counter` calls the C library, and a preloaded library can replace this call.
    """
    value = _Time()
    if _CLOCK_GETTIME is None or _libc.syscall(_CLOCK_GETTIME, clock, ctypes.byref(value)) != 0:
        return None
    return float(value.seconds + value.nanoseconds / 1e9)


def read_clocks() -> tuple[float, float | None, float | None]:
    """Read three clocks at one moment: `time.perf_counter`, the kernel's clock, and the hardware's clock.

    The clocks are read three times, and the fastest reading is returned. adjtimex(2) changes the speed of the first two
    clocks, but not of the hardware's clock (``CLOCK_MONOTONIC_RAW``), which stops while the machine is suspended.
    """
    tries = [
        (time.perf_counter(), kernel_s(), kernel_s(_CLOCK_MONOTONIC_RAW), time.perf_counter()) for _ in range(_TRIES)
    ]
    at_s, kernel, raw, _ = min(tries, key=lambda readings: readings[3] - readings[0])
    return at_s, kernel, raw


class Moment(TypedDict):
    """A time that processes of one machine can compare: the name of a monotonic clock, and the seconds of this clock.

    A user can set the time of day, but a monotonic clock runs evenly until the machine reboots.
    """

    clock: str
    seconds: float


def current_moment() -> Moment:
    """Return the current time of the monotonic clock."""
    return {"clock": clock_name(), "seconds": time.monotonic()}


def seconds_between(start: Moment, end: Moment) -> float | None:
    """Return the seconds from `start` to `end`, or None if the two moments have different or unknown clocks."""
    return end["seconds"] - start["seconds"] if start["clock"] == end["clock"] != "" else None


def clock_name() -> str:
    """Return the name of the monotonic clock, or "" if unknown. Processes with equal names have the same clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"  # proc_pid_ns(5), time_namespaces(7)
    except OSError:
        return ""


def wait(seconds: float) -> None:
    """Wait on a lock with a timeout, because `jobs.system.threads` counts a thread in nanosleep(2) as asleep."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


def utc_now() -> str:
    """Return the current time as ISO 8601, UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_utc(stamp: str) -> bool:
    """Return whether a text is a UTC time in the format of `utc_now`; a time on the last possible day is invalid."""
    try:
        moment = datetime.fromisoformat(stamp.removesuffix("Z")) + timedelta(days=1)
    except (ValueError, OverflowError):
        return False
    return stamp.endswith("Z") and moment.tzinfo is None


_STEP_NS, _NS_PER_S = 1_000_000, 10**9
_EXPIRATIONS = struct.Struct("Q")
_LONGEST = 256  # bytes to read from a schedstat file


class Alarm:
    """A sleep with a timer of the kernel (timerfd_create(2)), which measures how late the sleep ended.

    After the requested time, the timer expires every millisecond. The read(2) that ends the sleep returns the number of
    expirations, before the thread waits for Python's interpreter lock. So the wait for this lock is not part of the
    measured delay.
    """

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_BOOTTIME, os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._schedstat: int | None = None

    def wait(self, seconds: float) -> float:
        """Sleep, and return how many seconds too late the sleep ended, in whole milliseconds.

        The time in which the thread was ready to run but the processors were busy is not part of this delay.
        """
        ready_s = self._ready_s()
        self._set_timer(max(1, round(seconds * _NS_PER_S)))
        late_ms: int = _EXPIRATIONS.unpack(os.read(self._fd, _EXPIRATIONS.size))[0] - 1
        return max(0.0, late_ms / 1e3 - (self._ready_s() - ready_s))

    def ring(self) -> None:
        """Wake the thread that sleeps in `wait`."""
        self._set_timer(1)

    def _set_timer(self, first_ns: int) -> None:
        times = (ctypes.c_long * 4)(0, _STEP_NS, *divmod(first_ns, _NS_PER_S))  # struct itimerspec
        _libc.timerfd_settime(self._fd, 0, times, None)

    def close(self) -> None:
        """Close the timer."""
        for fd in (self._fd, self._schedstat):
            if fd is not None:
                os.close(fd)

    def _ready_s(self) -> float:
        """Return the total seconds in which the calling thread was ready to run but did not run."""
        if self._schedstat is None:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return int(os.pread(self._schedstat, _LONGEST, 0).split()[1]) / _NS_PER_S
