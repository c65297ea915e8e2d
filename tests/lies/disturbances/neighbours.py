"""Neighbours on the device that move few bytes."""

import contextlib
import mmap
import os
import random
import time

from tests.lies.disturbances.disturbance import DISK, Start, beside, disturbance
from tests.lies.neighbours.racer import Racer

_BLOCK, _LOADED = 4096, 0.085
_TURN_S = 0.01  # from one request to the next: 100 a second, 0.4 MB/s


@contextlib.contextmanager
def _repeated(act):
    """Do something over and over in a thread of this process; yields the list of when it was done."""
    times = []

    def work(end):
        while not end.wait(max(0.0, _TURN_S - act())):
            times.append(time.monotonic())

    with beside(work):
        yield times


def _timed(act):
    def timed():
        began = time.monotonic()
        act()
        return time.monotonic() - began

    return timed


def _often(times, what):
    rate = len(times) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    return rate > 1, f"{rate:.0f} {what} a second, {rate * _BLOCK / 1e6:.2f} MB/s"


@disturbance("A neighbour reads 4 KiB at random from the same disk, 0.4 MB/s.", device=DISK)
def seeks(place):
    fd = os.open(f"/dev/{place.device}", os.O_RDONLY | os.O_DIRECT)
    place.stack.callback(os.close, fd)
    room, draw = mmap.mmap(-1, _BLOCK), random.Random(0)  # noqa: S311 - blocks of a disk are no secret
    blocks = os.lseek(fd, 0, os.SEEK_END) // _BLOCK
    with _repeated(_timed(lambda: os.preadv(fd, [room], draw.randrange(blocks) * _BLOCK))) as times:
        yield Start(happened=lambda: _often(times, "reads"))


@disturbance("A neighbour writes one block and flushes it, in a loop, on the same disk.", device=DISK)
def flushes(place):
    file = place.paths[0].parent.parent / "neighbour"
    fd = os.open(file, os.O_CREAT | os.O_WRONLY)
    place.stack.callback(os.close, fd)

    def flush():
        os.pwrite(fd, os.urandom(_BLOCK), 0)
        os.fsync(fd)

    with _repeated(_timed(flush)) as times:
        yield Start(happened=lambda: _often(times, "flushes"))


@disturbance("A neighbour loads 8.5 % of the files into memory once the run has begun.", device=DISK)
def loader(place):
    last = place.paths[-round(len(place.paths) * _LOADED) :]
    with Racer(place.paths, last, during=True) as racer:
        yield Start(
            happened=lambda: (racer.times, f"it read {len(last)} of {len(place.paths)} files {racer.times} times")
        )
