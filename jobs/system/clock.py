"""Read the time of day and the kernel's own clocks, and sleep with a timer that tells how late it ended.

Durations are measured with `time.perf_counter`; those that begin in one process and end in another by `moment`.
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
    """Return seconds since boot as the kernel itself counts them; None where its number is not known here.

    `time.perf_counter` is what the C library says, and a preloaded library can replace that.
    """
    now = _Time()
    if _CLOCK_GETTIME is None or _libc.syscall(_CLOCK_GETTIME, clock, ctypes.byref(now)) != 0:
        return None
    return float(now.seconds + now.nanoseconds / 1e9)


def read_clocks() -> tuple[float, float | None, float | None]:
    """Return one moment by `time.perf_counter`, by the kernel's clock, and by that of the hardware.

    Of a few tries it is the least interrupted one. The first two clocks go as fast as adjtimex(2) says, the third one
    (``CLOCK_MONOTONIC_RAW``, which stands still while the machine is suspended) as the hardware does.
    """
    tries = [
        (time.perf_counter(), kernel_s(), kernel_s(_CLOCK_MONOTONIC_RAW), time.perf_counter()) for _ in range(_TRIES)
    ]
    at_s, kernel, raw, _ = min(tries, key=lambda each: each[3] - each[0])
    return at_s, kernel, raw


class Moment(TypedDict):
    """A moment that another process can compare with its own: the name of its monotonic clock, and the seconds there.

    Unlike the time of day, which somebody may set, that clock goes evenly, until the machine starts anew.
    """

    clock: str
    seconds: float


def moment() -> Moment:
    """Return this moment."""
    return {"clock": clock_name(), "seconds": time.monotonic()}


def seconds_between(start: Moment, end: Moment) -> float | None:
    """Return the seconds from one moment to another; None if they are of two clocks, or of an unknown one."""
    return end["seconds"] - start["seconds"] if start["clock"] == end["clock"] != "" else None


def clock_name() -> str:
    """Return a name that all processes with the same monotonic clock have in common; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"  # proc_pid_ns(5), time_namespaces(7)
    except OSError:
        return ""


def wait(seconds: float) -> None:
    """Wait as a thread waits for a lock: a thread in nanosleep(2) counts as kept from working."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)


def utc_now() -> str:
    """Return the time as ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_utc(stamp: str) -> bool:
    """Return whether a text is a time in UTC as `utc_now` writes it, with a day after it left."""
    try:
        moment = datetime.fromisoformat(stamp.removesuffix("Z")) + timedelta(days=1)
    except (ValueError, OverflowError):
        return False
    return stamp.endswith("Z") and moment.tzinfo is None


_STEP_NS, _NS_PER_S = 1_000_000, 10**9
_EXPIRATIONS = struct.Struct("Q")
_LONGEST = 256  # bytes


class Alarm:
    """A timer of the kernel (timerfd_create(2)).

    It goes off again each millisecond, and how often it has is read in the call that ends the wait: so the wait for the
    interpreter, which follows, does not count as being late.
    """

    def __init__(self) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_BOOTTIME, os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._of_waiter: int | None = None

    def wait(self, seconds: float) -> float:
        """Sleep; return by how many seconds it ended late, in whole milliseconds, without a known reason.

        That the processors were busy is one: the thread was ready to run, and the kernel counted for how long.
        """
        ready_s = self._ready_s()
        self._set_timer(max(1, round(seconds * _NS_PER_S)))
        late_ms: int = _EXPIRATIONS.unpack(os.read(self._fd, _EXPIRATIONS.size))[0] - 1
        return max(0.0, late_ms / 1e3 - (self._ready_s() - ready_s))

    def ring(self) -> None:
        """Wake the thread that waits."""
        self._set_timer(1)

    def _set_timer(self, first_ns: int) -> None:
        times = (ctypes.c_long * 4)(0, _STEP_NS, *divmod(first_ns, _NS_PER_S))  # struct itimerspec
        _libc.timerfd_settime(self._fd, 0, times, None)

    def close(self) -> None:
        """Close the timer."""
        for fd in (self._fd, self._of_waiter):
            if fd is not None:
                os.close(fd)

    def _ready_s(self) -> float:
        """Return for how many seconds the only waiting thread was ready to run and did not run."""
        if self._of_waiter is None:
            self._of_waiter = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return int(os.pread(self._of_waiter, _LONGEST, 0).split()[1]) / _NS_PER_S
