"""Profiles this process between a start and a stop: every POSIX and STDIO call, wherever in it the call is made."""

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

from jobs.profiler import chrome, darshan_log, table
from jobs.profiler.hook_library import Asked, Attached, ProfilerError, Totals, library, must, seen
from jobs.profiler.memory import HEAD_BYTES, Room, spare
from jobs.profiler.window import MODES, Files, Window
from jobs.system import files

P = ParamSpec("P")
T = TypeVar("T")
_GREATEST = {"events": 1 << 30, "files": 1 << 22}
_OTHERS = ("brahma", "darshan", "dftracer", "gotcha", "recorder", "scorep")  # left alone, too: `skipped` of slots.c
_NO_ROOM = (errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OPEN: list[Profile] = []  # the window that is open: it may not go away when nobody else holds it
_STUCK: list[mmap.mmap] = []  # memory of windows in which a thread was stopped while it recorded
LOCK = threading.RLock()  # held by the thread that attaches, detaches, opens or ends a window


def _renew_lock() -> None:
    global LOCK  # noqa: PLW0603 - the thread that held it is not in the child
    LOCK = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _alone(act: Callable[P, T]) -> Callable[P, T]:
    @wraps(act)
    def acts(*words: P.args, **named: P.kwargs) -> T:
        with LOCK:
            return act(*words, **named)

    return acts


def _open() -> list[Profile]:
    """Return the window that is open in this process, if one is: a parent's is not open in its child."""
    return [each for each in _OPEN if each._process == os.getpid()]  # noqa: SLF001


@_alone
def attach() -> tuple[int, int]:
    """Let the calls of this process be seen; returns how many slots are patched, and in how many modules.

    The first `Profile.start` does it. Raises ProfilerError: no library, no memory, or somebody else's functions stand
    in the slots.
    """
    found = Attached()
    for _ in range(2):  # who came after us may be whom a look-up of the functions finds now, and can be called in turn
        must(library().profiler_attach(ctypes.byref(found)), "attach to this process")
        name, found.foreign = found.foreign, b""
        if not name:
            return found.slots, found.modules
        if not _open():
            detach()
    raise ProfilerError(
        f"{os.fsdecode(name)} has put its own functions into this process",
        "use one profiler at a time; those that are preloaded can share, as can dftracer",
    )


@_alone
def detach() -> None:
    """Give the process its own calls back; the library stays, for a thread may be inside."""
    must(library().profiler_detach(), "detach")
    spare.clear()


class Profile:
    """A window on the calls of this process; one at a time, as many as you like one after the other.

    Modes: ``trace`` keeps every call, at most `events` of them, 56 bytes each; ``counters`` keeps sums for each of at
    most `max_files` files, 448 bytes each. What finds no room is counted in `dropped`. `only`: folders or files, or
    one; calls on others are not kept. `spill`: a file, not there yet, that holds all of it while it happens, so that
    what was seen by then is left when the process is killed (`jobs.profiler.table.read`).
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
                raise ProfilerError(f"room for {value} {name}", f"ask for 1 to {_GREATEST[name]}")
        self._room = Room(mode, events, max_files)
        paths = [only] if isinstance(only, str | os.PathLike) else only
        self._only = b"".join(os.fsencode(each) + b"\0" for path in paths for each in _names(Path(path)))
        self._spill = files.named(spill) if spill else None
        if spill and self._room.size_bytes > table.LARGEST_BYTES:
            raise ProfilerError(
                f"a spill of {self._room.size_bytes / 1e6:,.0f} MB could not be read again",
                f"ask for fewer events or files: {table.LARGEST_BYTES / 1e6:,.0f} MB is the most",
            )
        self._memory: mmap.mmap | None = None
        self._process = 0
        self._window: Window | None = None
        self._marks: list[int] = []

    @_alone
    def start(self) -> None:
        """Open the window. Raises ProfilerError: another one is open, there is no memory, or see `attach`."""
        if _open():
            raise ProfilerError("a window is open already; only one can be open in a process", "stop it first")
        attach()
        room = self._room
        try:
            memory = room.mapped(self._spill)
        except FileExistsError as error:
            raise ProfilerError(f"the spill {self._spill} is there already", "name a file that is not") from error
        except OSError as error:
            if error.errno in _NO_ROOM or not self._spill:
                raise ProfilerError(f"no room for {room.size_bytes / 1e6:.0f} MB: {error}", "ask for less") from error
            hint = "name a file in a folder that is there, where you may write"
            raise ProfilerError(f"the spill {self._spill} cannot be made: {error.strerror}", hint) from error
        here = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        trace = room.mode == "trace"
        asked = Asked(
            events=here + HEAD_BYTES if trace else None,
            event_capacity=room.events if trace else 0,
            counters=None if trace else here + HEAD_BYTES,
            file_capacity=room.files,
            names=here + room.names_at,
            name_capacity=room.size_bytes - room.names_at,
            only=self._only + b"\0" if self._only else None,
        )
        if self._spill:
            memory[:HEAD_BYTES] = room.head({"process": os.getpid(), "started_ns": time.time_ns()})
        self._process, self._window, self._marks = os.getpid(), None, []
        self._before = process_bytes()
        try:
            must(library().profiler_start(ctypes.byref(asked)), "open a window")
        except ProfilerError:
            if self._spill:
                files.remove(self._spill, missing_ok=True)
            raise
        self._memory = memory
        _OPEN[:] = [self]

    def mark(self) -> None:
        """Begin another part of the open window now; a call belongs to the part in which it ends."""
        self._marks.append(time.time_ns())

    @_alone
    def stop(self) -> Window:
        """End the window and return what it has seen. Raises ProfilerError: it is not open in this process."""
        memory, self._memory = self._memory, None
        if memory is None or self._process != os.getpid():
            raise ProfilerError("no window is open in this process", "start one; a window does not outlive a fork")
        totals = Totals()
        stuck = library().profiler_stop(ctypes.byref(totals))
        _OPEN.clear()
        after = process_bytes()
        found = seen(self._room, memory, totals.events)
        if stuck:
            _STUCK.append(memory)
        elif not self._spill:
            kept = "counters" if found["events"] is None else "events"
            found[kept] = self._room.given_back(memory, found[kept], totals.name_bytes)
        self._window = Window(
            mode=self._room.mode,
            started_ns=totals.started,
            ended_ns=totals.ended,
            process=self._process,
            dropped=totals.dropped + bool(stuck),
            read_bytes=totals.read_bytes,
            kernel_read_bytes=after.read - self._before.read - self._before.own if after and self._before else None,
            device_bytes=after.fetched - self._before.fetched if after and self._before else None,
            beside=", ".join(_others()),
            marks=tuple(self._marks),
            **found,
        )
        if self._spill:
            memory[:HEAD_BYTES] = self._room.head(table.head(self._window))
        return self._window

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it, unless the block has, or a fork."""
        if self._memory is not None and self._process == os.getpid():
            self.stop()

    @property
    def window(self) -> Window:
        """Return all that was seen; ProfilerError before the window has ended."""
        if self._window is None:
            raise ProfilerError("the window has not ended", "call stop() first")
        return self._window

    def save(self, path: str | Path) -> None:
        """Write all of it to a file that `python -m jobs.profiler report` and `jobs.profiler.table.read` read."""
        table.write(files.named(path), self.window)

    def darshan(self, path: str | Path) -> None:
        """Write the counters, and a trace's reads and writes, as a Darshan log that PyDarshan reads."""
        darshan_log.write(files.named(path), self.window)

    def chrome(self, path: str | Path) -> None:
        """Write the calls as a trace that chrome://tracing and Perfetto show; ProfilerError in the mode counters."""
        chrome.write(files.named(path), self.window)

    @property
    def files(self) -> Files:
        """Return path to counters by Darshan's names."""
        return self.window.files

    @property
    def events(self) -> np.ndarray[Any, Any] | None:
        """Return every call (`jobs.profiler.window.EVENT`); None in the mode counters."""
        return self.window.events

    @property
    def dropped(self) -> int:
        """Return how many calls found no room."""
        return self.window.dropped


@atexit.register
def _end() -> None:
    """Close the window before the process takes itself apart."""
    for each in _open():
        each.stop()


def _names(path: Path) -> set[Path]:
    """Return a folder's name and what it resolves to: a program may open it by either."""
    return {path.absolute(), path.resolve()}


def _others() -> list[str]:
    """Return the profilers of I/O that are loaded into this process, by name."""
    loaded = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    libraries = {line.rpartition("/")[2] for line in loaded if "/lib" in line}
    return [name for name in _OTHERS if any(each.startswith(f"lib{name}") for each in libraries)]


class ProcessBytes(NamedTuple):
    """What the kernel counts of this process, bytes."""

    read: int  # what its reads returned (rchar)
    own: int  # what reading this count adds to it
    fetched: int  # brought into memory for it (read_bytes)


def process_bytes() -> ProcessBytes | None:
    """Return the kernel's counts of this process; None where it keeps none."""
    try:
        with open("/proc/self/io", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered
            text = file.read(1024)
    except OSError:
        return None
    counts = dict(line.split(b": ") for line in text.splitlines())
    return ProcessBytes(int(counts[b"rchar"]), len(text), int(counts[b"read_bytes"]))
