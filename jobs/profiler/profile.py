"""Profile this process between a start and a stop: all POSIX and STDIO calls of all libraries in the process."""

from __future__ import annotations

import atexit
import ctypes
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from jobs.events import posix_window
from jobs.events.perfetto import chrome_json
from jobs.events.posix_window import MODES, FileCounters, Window
from jobs.profiler import saved_profiles
from jobs.profiler.hook_library import (
    HEAD_BYTES,
    AttachAnswer,
    ProfilerError,
    Totals,
    WindowCapacity,
    WindowRequest,
    load_library,
    raise_errno,
    spare,
    window_content,
)
from jobs.system import files

P = ParamSpec("P")
T = TypeVar("T")
_GREATEST = {"events": 1 << 30, "files": 1 << 22}
# Libraries of other profilers. The hook library leaves the calls of these libraries alone (`skipped` in slots.c).
_OTHER_PROFILERS = ("brahma", "darshan", "dftracer", "gotcha", "recorder", "scorep")
_NO_ROOM = (errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OPEN_PROFILES: list[Profile] = []  # the open profile; the list prevents its garbage collection
_STUCK: list[mmap.mmap] = []  # memory that is never reused, because a stuck thread may still write to it
LOCK = threading.RLock()  # protects attaching, detaching, and opening and ending a window


def _renew_lock() -> None:
    global LOCK  # noqa: PLW0603 - the thread that has the lock does not exist in a forked child
    LOCK = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _exclusive(function: Callable[P, T]) -> Callable[P, T]:
    @wraps(function)
    def exclusive(*arguments: P.args, **options: P.kwargs) -> T:
        with LOCK:
            return function(*arguments, **options)

    return exclusive


def _open_profiles() -> list[Profile]:
    """Return a list with the open profile of this process, or an empty list.

    A profile that the parent process had opened before a fork does not count.
    """
    return [profile for profile in _OPEN_PROFILES if profile._process == os.getpid()]  # noqa: SLF001


@_exclusive
def attach() -> tuple[int, int]:
    """Install the hooks in this process; return the number of patched slots and the number of patched modules.

    A slot is an entry of a global offset table (GOT), through which a module calls a function of another module. The
    first `Profile.start` calls this function. Raises ProfilerError if the hook library or memory is missing, or if
    another profiler has put its own functions into the slots.
    """
    answer = AttachAnswer()
    for _ in range(2):  # the second attempt finds functions of a profiler that was loaded after the first `attach`
        raise_errno(load_library().profiler_attach(ctypes.byref(answer)), "attach to this process")
        name, answer.foreign = answer.foreign, b""
        if not name:
            return answer.slots, answer.modules
        if not _open_profiles():
            detach()
    raise ProfilerError(
        f"{os.fsdecode(name)} has its own functions in this process",
        "use one profiler at a time; only preloaded profilers and dftracer can run at the same time",
    )


@_exclusive
def detach() -> None:
    """Remove the hooks from this process; the library stays loaded, because a thread may still be in a hook."""
    raise_errno(load_library().profiler_detach(), "detach")
    spare.clear()


class Profile:
    """A profile of the calls of this process; only one profile can be open at a time.

    The mode ``trace`` records every call, up to `events` calls of 56 bytes. The mode ``counters`` records sums per
    file, for up to `max_files` files of 448 bytes. `dropped` counts the calls and files that do not fit. If `only` has
    folders or files, only the calls on these files are recorded. `spill` is a new file that contains the window from
    the start, so that `jobs.profiler.saved_profiles.read_profile` can read the calls of a killed process.
    """

    def __init__(
        self,
        mode: str = "trace",
        only: str | Path | Sequence[str | Path] = (),
        events: int = 4_000_000,
        max_files: int = 1 << 20,
        spill: str | Path | None = None,
    ) -> None:
        if mode not in MODES:
            raise ProfilerError(f"mode is {mode!r}", f"take one of: {', '.join(MODES)}")
        for name, value in (("events", events), ("files", max_files)):
            if not 1 <= value <= _GREATEST[name]:
                raise ProfilerError(f"the largest number of {name} is {value}", f"use 1 to {_GREATEST[name]}")
        self._room = WindowCapacity(mode, events, max_files)
        paths = [only] if isinstance(only, str | os.PathLike) else only
        self._only = b"".join(os.fsencode(name) + b"\0" for path in paths for name in _names(Path(path)))
        self._spill = files.resolve_user_path(spill) if spill else None
        if spill and self._room.size_bytes > posix_window.LARGEST_BYTES:
            raise ProfilerError(
                f"a spill of {self._room.size_bytes / 1e6:,.0f} MB could not be read again",
                f"use fewer events or files; the limit is {posix_window.LARGEST_BYTES / 1e6:,.0f} MB",
            )
        self._memory: mmap.mmap | None = None
        self._process = 0
        self._window: Window | None = None
        self._marks: list[int] = []

    @_exclusive
    def start(self) -> None:
        """Start recording calls (open the window).

        Raises ProfilerError if another window is open, if memory is missing, or if `attach` raises ProfilerError.
        """
        if _open_profiles():
            raise ProfilerError("a window is open already; a process can have only one", "stop the window first")
        attach()
        room = self._room
        try:
            memory = room.map_memory(self._spill)
        except FileExistsError as error:
            raise ProfilerError(f"the spill {self._spill} exists already", "name a new file") from error
        except OSError as error:
            if error.errno in _NO_ROOM or not self._spill:
                message = f"there is no space for {room.size_bytes / 1e6:.0f} MB: {error}"
                raise ProfilerError(message, "use fewer events or files") from error
            hint = "name a file in an existing folder where you may write"
            raise ProfilerError(f"the spill {self._spill} cannot be made: {error.strerror}", hint) from error
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        is_trace = room.mode == "trace"
        request = WindowRequest(
            events=address + HEAD_BYTES if is_trace else None,
            event_capacity=room.events if is_trace else 0,
            counters=None if is_trace else address + HEAD_BYTES,
            file_capacity=room.files,
            names=address + room.names_at,
            name_capacity=room.size_bytes - room.names_at,
            only=self._only + b"\0" if self._only else None,
        )
        if self._spill:
            memory[:HEAD_BYTES] = room.head({"process": os.getpid(), "started_ns": time.time_ns()})
        self._process, self._window, self._marks = os.getpid(), None, []
        self._before = process_bytes()
        try:
            raise_errno(load_library().profiler_start(ctypes.byref(request)), "open a window")
        except ProfilerError:
            if self._spill:
                files.remove(self._spill, missing_ok=True)
            raise
        self._memory = memory
        _OPEN_PROFILES[:] = [self]

    def mark(self) -> None:
        """Begin the next part of the open window; a call belongs to the part in which it ends."""
        self._marks.append(time.time_ns())

    @_exclusive
    def stop(self) -> Window:
        """Stop recording calls, and return the window; raise ProfilerError if no window is open in this process."""
        memory, self._memory = self._memory, None
        if memory is None or self._process != os.getpid():
            raise ProfilerError("no window is open in this process", "start one; a window does not outlive a fork")
        totals = Totals()
        stuck = load_library().profiler_stop(ctypes.byref(totals))
        _OPEN_PROFILES.clear()
        after = process_bytes()
        content = window_content(self._room, memory, totals.events)
        if stuck:
            _STUCK.append(memory)
        elif not self._spill:
            rows = "counters" if content["events"] is None else "events"
            content[rows] = self._room.keep_memory(memory, content[rows], totals.name_bytes)
        self._window = Window(
            mode=self._room.mode,
            started_ns=totals.started,
            ended_ns=totals.ended,
            process=self._process,
            dropped=totals.dropped + bool(stuck),
            read_bytes=totals.read_bytes,
            kernel_read_bytes=after.read - self._before.read - self._before.own if after and self._before else None,
            device_bytes=after.fetched - self._before.fetched if after and self._before else None,
            beside=", ".join(_other_profilers()),
            marks=tuple(self._marks),
            **content,
        )
        if self._spill:
            memory[:HEAD_BYTES] = self._room.head(posix_window.window_head(self._window))
        return self._window

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop recording if the window is still open and this process is not a forked child."""
        if self._memory is not None and self._process == os.getpid():
            self.stop()

    @property
    def window(self) -> Window:
        """Return the ended window; raise ProfilerError if the window has not ended."""
        if self._window is None:
            raise ProfilerError("the window has not ended", "call stop() first")
        return self._window

    def save(self, path: str | Path) -> None:
        """Write the window to a file for `python -m analysis profile` or `jobs.events.posix_window.read_window`."""
        posix_window.write_window(files.resolve_user_path(path), self.window)

    def darshan(self, path: str | Path) -> None:
        """Write the counters as a Darshan log for PyDarshan; in mode trace, also write each read and write."""
        saved_profiles.write_darshan(files.resolve_user_path(path), self.window)

    def chrome(self, path: str | Path) -> None:
        """Write the calls as a trace for Perfetto; raise EventsError if the mode was `counters`."""
        write_chrome(files.resolve_user_path(path), self.window)

    @property
    def files(self) -> FileCounters:
        """Return a mapping from each path to the counters of the file, with Darshan's names."""
        return self.window.files

    @property
    def events(self) -> np.ndarray[Any, Any] | None:
        """Return the array of calls (`jobs.events.posix_window.EVENT`), or None in mode counters."""
        return self.window.events

    @property
    def dropped(self) -> int:
        """Return the number of calls and files that did not fit into the memory of the window."""
        return self.window.dropped


def write_chrome(path: Path, window: Window) -> None:
    """Write the calls of a window as a trace for Perfetto; raise EventsError if the mode was `counters`."""
    arguments = ("offset", "length", "returned", "thread_id", "errno")
    with files.write_whole(path, durable=False) as file:
        file.writelines(chrome_json([window.chrome_process()], window.started_ns, arguments, "name"))


@atexit.register
def _end_open_profile() -> None:
    """End the open window before the process exits."""
    for profile in _open_profiles():
        profile.stop()


def _names(path: Path) -> set[Path]:
    """Return the absolute and the resolved name of a path, because a program may use any of the two names."""
    return {path.absolute(), path.resolve()}


def _other_profilers() -> list[str]:
    """Return the names of I/O profilers that are loaded into this process."""
    mappings = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    libraries = {line.rpartition("/")[2] for line in mappings if "/lib" in line}
    return [name for name in _OTHER_PROFILERS if any(library.startswith(f"lib{name}") for library in libraries)]


class ProcessBytes(NamedTuple):
    """The numbers of bytes that the kernel counts for this process (/proc/self/io)."""

    read: int  # bytes that all reads returned (rchar)
    own: int  # size of /proc/self/io itself; `read` will include these bytes at the next reading
    fetched: int  # bytes fetched from devices (read_bytes)


def process_bytes() -> ProcessBytes | None:
    """Return the numbers of bytes that the kernel counts for this process, or None if they cannot be read."""
    try:
        with open("/proc/self/io", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            text = file.read(1024)
    except OSError:
        return None
    counts = dict(line.split(b": ") for line in text.splitlines())
    return ProcessBytes(int(counts[b"rchar"]), len(text), int(counts[b"read_bytes"]))
