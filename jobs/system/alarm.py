"""A thread's sleep that says how late it ended: late by itself where the process stood still meanwhile."""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_CLOCK_BOOTTIME = 7  # goes on while the machine is suspended
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
        """Sleep; returns by how many seconds it ended late, in whole milliseconds, and for no reason that is known.

        That the processors were busy is one: the thread was ready to run, and the kernel counted for how long.
        """
        ready_s = self._ready_s()
        self._set(max(1, round(seconds * _NS_PER_S)))
        late_ms: int = _EXPIRATIONS.unpack(os.read(self._fd, _EXPIRATIONS.size))[0] - 1
        return max(0.0, late_ms / 1e3 - (self._ready_s() - ready_s))

    def ring(self) -> None:
        """Wake who waits."""
        self._set(1)

    def _set(self, first_ns: int) -> None:
        times = (ctypes.c_long * 4)(0, _STEP_NS, *divmod(first_ns, _NS_PER_S))  # struct itimerspec
        _libc.timerfd_settime(self._fd, 0, times, None)

    def close(self) -> None:
        """Give it back."""
        for fd in (self._fd, self._of_waiter):
            if fd is not None:
                os.close(fd)

    def _ready_s(self) -> float:
        """Return for how long the one thread that waits has been ready to run and did not."""
        if self._of_waiter is None:
            self._of_waiter = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        return int(os.pread(self._of_waiter, _LONGEST, 0).split()[1]) / _NS_PER_S
