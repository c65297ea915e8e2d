"""Clocks of the machine that go wrong for every program."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.lies.disturbances.disturbance import Start, beside, disturbance
from tests.lies.lie import MissingError

_STOLEN = 0.3  # of each processor
_STEAL = 8  # field of the "cpu" lines of /proc/stat, their name included
_EVERY_S = 0.005
_ADJ_TICK, _TICK_US, _FAST_US = 0x4000, 10_000, 11_000
_TIMEX_LONGS = 26  # struct timex has 208 bytes; `modes` is its first word, `tick` its 11th long
_TICK_PLACE = 11


@disturbance(
    f"A hypervisor takes {_STOLEN:.0%} of each processor: so says /proc/stat, over which a file of ours is mounted.",
    needs=("unshare", "mount"),
)
def stolen(place):
    file = place.scratch / "stat"
    began = time.monotonic()
    tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def line(words):
        """Add to a line of /proc/stat what was stolen; that of all processors has all of theirs."""
        share = _STOLEN * (os.cpu_count() or 1 if words[0] == "cpu" else 1)
        words[_STEAL] = str(int(words[_STEAL]) + int((time.monotonic() - began) * share / tick_s))
        return " ".join(words)

    def write():
        lines = [each.split() for each in Path("/proc/stat").read_text().splitlines()]
        text = "\n".join(line(each) if each[0].startswith("cpu") else " ".join(each) for each in lines)
        os.pwrite(fd, f"{text}\n".encode(), 0)

    def work(end):
        while not end.wait(_EVERY_S):
            write()

    fd = os.open(file, os.O_CREAT | os.O_WRONLY)
    place.stack.callback(os.close, fd)
    write()
    command = 'mount --bind "$0" /proc/stat && exec "$@"'
    private = ("unshare", "--mount", "--propagation", "private", "sh", "-c", command, str(file))
    with beside(work):
        yield Start({}, private, lambda: (True, "no processor was taken: the file says so"))


def _set_tick(tick_us):
    words = (ctypes.c_long * _TIMEX_LONGS)()
    words[0], words[_TICK_PLACE] = _ADJ_TICK, tick_us
    if ctypes.CDLL(None, use_errno=True).adjtimex(words) < 0:
        raise MissingError(f"the clock cannot be slewed: {os.strerror(ctypes.get_errno())}")


@disturbance("The clock of the machine is slewed: it goes 10 % too fast (adjtimex).")
def slewed(place):
    # Whoever kills this process must not leave the machine's clock so: a child of ours puts it right when our end of
    # its pipe is gone.
    right = f"import sys; sys.stdin.read(); from {__name__} import _set_tick; _set_tick({_TICK_US})"
    with (
        subprocess.Popen([sys.executable, "-c", right], stdin=subprocess.PIPE) as guard,
        contextlib.ExitStack() as at_end,
    ):
        at_end.callback(guard.stdin.close)
        _set_tick(_FAST_US)
        at_end.callback(_set_tick, _TICK_US)
        began = time.monotonic(), time.clock_gettime(time.CLOCK_MONOTONIC_RAW)

        def happened():
            passed, real = time.monotonic() - began[0], time.clock_gettime(time.CLOCK_MONOTONIC_RAW) - began[1]
            return passed > 1.05 * real, f"{passed:.2f} s went by on the clock in {real:.2f} s of the raw one"

        yield Start(happened=happened)
