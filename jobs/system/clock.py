"""Read the time of day and the kernel's own clocks; sleep with a timer that measures how late it ended.

Durations are measured with `time.perf_counter`, or with `current_moment` if they begin and end in different processes.
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
    """Return the seconds since boot by the kernel's own count; None on a machine whose system call is unknown.

    `time.perf_counter` comes from the C library, which a preloaded library can replace.
    """
    value = _Time()
    if _CLOCK_GETTIME is None or _libc.syscall(_CLOCK_GETTIME, clock, ctypes.byref(value)) != 0:
        return None
    return float(value.seconds + value.nanoseconds / 1e9)


def read_clocks() -> tuple[float, float | None, float | None]:
    """Return the same time by `time.perf_counter`, by the kernel's clock, and by the hardware's clock.

    It is read a few times, and the fastest reading counts. adjtimex(2) changes the speed of the first two clocks, not
    of the third one (``CLOCK_MONOTONIC_RAW``, which stops while the machine is suspended).
    """
    tries = [
        (time.perf_counter(), kernel_s(), kernel_s(_CLOCK_MONOTONIC_RAW), time.perf_counter()) for _ in range(_TRIES)
    ]
    at_s, kernel, raw, _ = min(tries, key=lambda readings: readings[3] - readings[0])
    return at_s, kernel, raw


class Moment(TypedDict):
    """A time that another process can compare with its own: the name of a monotonic clock, and its seconds.

    Unlike the time of day, which can be set, this clock runs evenly until the machine reboots.
    """

    clock: str
    seconds: float


def current_moment() -> Moment:
    """Return the current time."""
    return {"clock": clock_name(), "seconds": time.monotonic()}


def seconds_between(start: Moment, end: Moment) -> float | None:
    """Return the seconds from one time to another; None if they have different or unknown clocks."""
    return end["seconds"] - start["seconds"] if start["clock"] == end["clock"] != "" else None


def clock_name() -> str:
    """Return a name that all processes with the same monotonic clock share; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"  # proc_pid_ns(5), time_namespaces(7)
    except OSError:
        return ""


def wait(seconds: float) -> None:
    """Wait as a thread waits for a lock; a thread in nanosleep(2) would count as delayed."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


def utc_now() -> str:
    """Return the current time as ISO 8601, UTC, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_utc(stamp: str) -> bool:
    """Return whether a text is a time in UTC in the form of `utc_now`, at least a day before the last possible one."""
    try:
        moment = datetime.fromisoformat(stamp.removesuffix("Z")) + timedelta(days=1)
    except (ValueError, OverflowError):
        return False
    return stamp.endswith("Z") and moment.tzinfo is None


_STEP_NS, _NS_PER_S = 1_000_000, 10**9
_EXPIRATIONS = struct.Struct("Q")
_LONGEST = 256  # bytes of schedstat


class Alarm:
    """A timer of the kernel (timerfd_create(2)).

    It expires again each millisecond, and the call that ends the wait returns the number of expirations. So the wait
    for Python's interpreter lock, which follows, does not count as a delay.
    """

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_BOOTTIME, os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._schedstat: int | None = None

    def wait(self, seconds: float) -> float:
        """Sleep; return how many seconds too late it ended, in whole milliseconds, without the known part.

        The known part is the time for which the thread was ready to run but the processors were busy.
        """
        ready_s = self._ready_s()
        self._set_timer(max(1, round(seconds * _NS_PER_S)))
        late_ms: int = _EXPIRATIONS.unpack(os.read(self._fd, _EXPIRATIONS.size))[0] - 1
        return max(0.0, late_ms / 1e3 - (self._ready_s() - ready_s))

    def ring(self) -> None:
        """Wake the waiting thread."""
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
        """Return for how many seconds the waiting thread was ready to run and did not run."""
        if self._schedstat is None:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return int(os.pread(self._schedstat, _LONGEST, 0).split()[1]) / _NS_PER_S
