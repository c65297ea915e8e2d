"""Find the state of each thread of this process: the thread runs, waits for storage, or waits for something else.

The kernel shows the state of a thread in files below ``/proc/self/task/*/`` (proc(5)). ``syscall`` has the system call
in which the thread waits. ``wchan`` has the kernel's function in which the thread waits, if the kernel shows this to
the user. A change of ``schedstat`` shows that the thread has run.
"""

from __future__ import annotations

import os
import platform
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jobs.system.device import devices_behind, mount_of, read_kernel

RUNNING, STORAGE, IDLE_DEVICE, ASLEEP, STOPPED_BY_OTHER, WORK = (
    "running",
    "storage",
    "idle_device",
    "asleep",
    "held",
    "work",
)
"""The states of a thread.

- `RUNNING`: the thread runs or is ready to run.
- `STORAGE`: the thread waits in a system call on files.
- `IDLE_DEVICE`: the thread waits in a system call on files, although no device of the run has a request.
- `ASLEEP`: the thread sleeps on purpose.
- `STOPPED_BY_OTHER`: another program stops the thread.
- `WORK`: the thread waits for work, for another thread or for a message.
"""

_TASKS = "/proc/self/task"
# Beginnings of the names of kernel functions in which another program stops a thread: a virus scanner, a supervisor of
# system calls or page faults, a debugger, SIGSTOP, the freezer, the holder of a lease, a limit of memory or of I/O.
_HOLDERS = (
    "fanotify_", "seccomp_", "__seccomp_", "handle_userfault", "ptrace_", "do_signal_stop", "do_freezer_trap",
    "__refrigerator", "__break_lease", "mem_cgroup_", "__mem_cgroup_", "blkcg_", "blk_cgroup_",
)  # fmt: skip
# On these file systems, a reader gets a page as soon as the device has delivered the page. On other file systems, the
# page may have to be decompressed first, or the mount does not show all devices.
_DIRECT_FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs")


class _Calls(NamedTuple):
    """The numbers of system calls by kind, from asm/unistd.h."""

    reading: frozenset[int]  # calls that read an open file
    opening: frozenset[int]  # calls that open or look up a path
    writing: frozenset[int]
    sleeping: frozenset[int]
    polling: dict[int, int]  # calls that wait for files, with the index of the argument for the number of files


_CALLS = {
    "x86_64": _Calls(
        frozenset({0, 17, 19, 295, 187, 217, 40}), frozenset({2, 257, 437, 4, 6, 262, 332, 21}),
        frozenset({1, 18, 20, 3, 74, 75, 296}), frozenset({35, 230}), {7: 1, 271: 1, 23: 0, 270: 0},
    ),
    "aarch64": _Calls(
        frozenset({63, 67, 65, 69, 213, 61, 71}), frozenset({56, 437, 79, 291, 48}),
        frozenset({64, 68, 66, 57, 82, 83, 70}), frozenset({101, 115}), {73: 1, 72: 0},
    ),
}.get(platform.machine())  # fmt: skip
_FEW_BYTES = 1 << 16
_PAGE_FAULT = -1  # number in ``syscall`` if a thread waits outside a system call


class ThreadState(NamedTuple):
    """The state of a thread, and the kernel's function in which the thread waits ("": unknown)."""

    kind: str
    function: str = ""


class Threads:
    """The threads of this process, except the calling thread; `folders` contain the data of the run.

    `seen` is True if a thread that reads data waits only for devices that this machine shows. Only then can the state
    `IDLE_DEVICE` be found.
    """

    def __init__(self, folders: Sequence[Path], *, seen: bool = True) -> None:
        self._numbers = {folder.stat().st_dev for folder in folders}
        seen = seen and all(mount_of(folder).fstype in _DIRECT_FILE_SYSTEMS for folder in folders)
        devices = {device.name for folder in folders for device in devices_behind(folder)} if seen else ()
        self._in_flight = [f"/sys/block/{name}/inflight" for name in sorted(devices)]
        self._at_rest: dict[str, str] = {}  # `schedstat` of each thread that waited for work
        # Bytes that each thread has read before the run.
        self._bytes_before = {name: _read_bytes(name) for name in _thread_names()}

    def list_waits(self) -> Iterator[ThreadState]:
        """Yield the state of each thread; raise OSError if the kernel does not show the states to this user."""
        if _CALLS is None:
            raise PermissionError(0, f"system calls of {platform.machine()} are unknown")
        own = str(threading.get_native_id())
        for name in _thread_names():
            if name != own:
                try:
                    yield self._wait_of(name, _CALLS)
                except (FileNotFoundError, ProcessLookupError):
                    if Path(_TASKS, name).exists():  # the thread still runs, so this kernel does not have the file
                        raise

    def _wait_of(self, name: str, calls: _Calls) -> ThreadState:
        schedstat = _read_thread_file(name, "schedstat")
        if self._at_rest.get(name) == schedstat:
            return ThreadState(WORK)
        call = _read_thread_file(name, "syscall")
        if call == "running":
            return ThreadState(RUNNING)
        function = _read_thread_file(name, "wchan")
        if function.startswith(_HOLDERS):
            return ThreadState(STOPPED_BY_OTHER, function)
        kind = self._classify_wait(name, [int(word, 0) for word in call.split()], calls)
        if kind == WORK and not schedstat.startswith("0 0 "):  # zeros: this kernel does not count run times
            self._at_rest[name] = schedstat
        if kind == IDLE_DEVICE and not self._is_idle(name, call, schedstat):
            kind = STORAGE
        return ThreadState(kind, function)

    def _classify_wait(self, name: str, call: Sequence[int], calls: _Calls) -> str:
        """Return the state of a waiting thread.

        `IDLE_DEVICE` means that the thread reads the data of the run. The caller must still check that the devices are
        idle.
        """
        number, *arguments = call
        if number in calls.sleeping or (number in calls.polling and not arguments[calls.polling[number]]):
            return ASLEEP if self._has_read_data(name) else WORK
        if number in calls.opening:
            return IDLE_DEVICE
        if number in calls.reading or number in calls.writing:
            try:
                status = os.fstat(arguments[0])
            except OSError:  # the file was closed meanwhile
                return WORK
            if stat.S_ISREG(status.st_mode):
                return IDLE_DEVICE if number in calls.reading and status.st_dev in self._numbers else STORAGE
        return STORAGE if number == _PAGE_FAULT else WORK

    def _is_idle(self, name: str, call: str, schedstat: str) -> bool:
        """Return whether the thread still waits while no device of the run has a request."""
        is_busy = any(read_kernel(path).split() != ["0", "0"] for path in self._in_flight)
        is_unchanged = _read_thread_file(name, "syscall") == call and _read_thread_file(name, "schedstat") == schedstat
        return bool(self._in_flight) and not is_busy and is_unchanged

    def _has_read_data(self, name: str) -> bool:
        """Return whether a thread has read data during the run; the sleep of another thread delays no read."""
        return _read_bytes(name) - self._bytes_before.get(name, 0) > _FEW_BYTES


def _thread_names() -> list[str]:
    return os.listdir(_TASKS)  # noqa: PTH208 - `Path` objects would take longer than the reads of the files


def _read_thread_file(name: str, file: str) -> str:
    return read_kernel(f"{_TASKS}/{name}/{file}").strip()


def _read_bytes(name: str) -> int:
    with suppress(OSError, ValueError):
        return int(_read_thread_file(name, "io").split()[1])
    return 0
