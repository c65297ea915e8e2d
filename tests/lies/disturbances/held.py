"""What holds a program back in the kernel: limits of its control groups, a virus scanner, signals, the freezer."""

import contextlib
import ctypes
import os
import select
import signal
import struct
import time

from tests.lies import groups
from tests.lies.disturbances.disturbance import FLASH, PLAIN, Start, beside, disturbance
from tests.lies.lie import MissingError

_MB_PER_S = 2
_MEMORY_MIB = 600
_SCAN_S, _HALF_S = 0.003, 0.05
_FAN_CLASS_CONTENT, _FAN_MARK_ADD, _FAN_MARK_MOUNT, _FAN_OPEN_PERM, _FAN_ALLOW = 0x4, 0x1, 0x10, 0x10000, 0x1
_EVENT, _RESPONSE = struct.Struct("IBBHQii"), struct.Struct("iI")  # fanotify(7)


def _group(place, controller):
    return groups.made(place.stack, f"{place.scratch.name}-{controller}", controller)


@disturbance(f"A control group lets the program read {_MB_PER_S} MB/s.")
def io_limit(place):
    group = _group(place, "blkio")
    limit = group / "blkio.throttle.read_bps_device"
    if limit.exists():
        limit.write_text(f"{place.number} {_MB_PER_S * 10**6}")
    else:
        (group / "io.max").write_text(f"{place.number} rbps={_MB_PER_S * 10**6}")
    yield Start({}, groups.joining(group), lambda: (True, f"the limit is that of {group.parent}"))


@disturbance(f"A control group leaves the program {_MEMORY_MIB} MiB of memory, page cache included.")
def memory_limit(place):
    group = _group(place, "memory")
    limit = group / "memory.limit_in_bytes"
    (limit if limit.exists() else group / "memory.max").write_text(str(_MEMORY_MIB << 20))
    met = group / "memory.failcnt"
    yield Start(
        {}, groups.joining(group), lambda: (True, f"it was met {met.read_text().strip()} times" if met.exists() else "")
    )


@disturbance("A virus scanner (fanotify) holds each open of a file for 3 ms.", device=FLASH)
def scanner(place):
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.fanotify_init(_FAN_CLASS_CONTENT, os.O_RDONLY)
    mark = (_FAN_MARK_ADD | _FAN_MARK_MOUNT, ctypes.c_uint64(_FAN_OPEN_PERM), -1, os.fsencode(place.paths[0]))
    if fd < 0 or libc.fanotify_mark(fd, *mark):
        raise MissingError(f"fanotify holds no opens here: {os.strerror(ctypes.get_errno())}")
    place.stack.callback(os.close, fd)
    times = []

    def scan(end):
        while not end.is_set():
            if not select.select([fd], [], [], 0.1)[0]:
                continue
            for _, _, _, _, _, opened, _ in _EVENT.iter_unpack(os.read(fd, 64 * _EVENT.size)):
                time.sleep(_SCAN_S)
                times.append(time.monotonic())
                os.write(fd, _RESPONSE.pack(opened, _FAN_ALLOW))
                os.close(opened)

    with beside(scan):
        yield Start(happened=lambda: (times, f"{len(times)} opens were held"))


@contextlib.contextmanager
def _alternating(first, then):
    """Do the one and the other in turn, each half of the time; yields the list of when it began anew."""
    times = []

    def work(end):
        while not end.wait(_HALF_S):
            times.append(time.monotonic())
            first()
            end.wait(_HALF_S)
            then()
        then()

    with beside(work):
        yield times


@disturbance("SIGSTOP and SIGCONT: the program stands still for 50 of every 100 ms.", device=PLAIN)
def stops(place):
    group = _group(place, "freezer")

    def send(number):
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), number)

    with _alternating(lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)) as times:
        yield Start({}, groups.joining(group), lambda: (times, f"it was stopped {len(times)} times"))


@disturbance("The freezer of its control group: the program stands still for 50 of every 100 ms.", device=PLAIN)
def freezer(place):
    group = _group(place, "freezer")
    state, words = group / "freezer.state", ("FROZEN", "THAWED")
    if not state.exists():
        state, words = group / "cgroup.freeze", ("1", "0")
    with _alternating(*(lambda word=word: state.write_text(word) for word in words)) as times:
        yield Start({}, groups.joining(group), lambda: (times, f"it was frozen {len(times)} times"))
