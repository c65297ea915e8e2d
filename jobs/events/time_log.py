"""Writer of time logs: one file (stream) per process with its actions and their times, for `analysis timelog`.

A stream is JSON Lines: a head (process and clock), blocks of events (packed, in base64), an end. A block is written
when it is full, when a step begins at least half a second after the last block, and at the end. A killed process loses
the events since the last block.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import json
import os
import socket
import struct
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Any, NoReturn, Self

from jobs.errors import JobError
from jobs.system import clock, files

File = str | os.PathLike[str]

ACTIONS = (
    "compute", "validate", "communicate", "checkpoint", "barrier", "read", "open", "load", "shuffle", "stage", "next",
    "wait", "step",
)  # fmt: skip
"""In order of priority: if threads of a rank have several actions at once, `analysis timelog` counts the first one."""
PHASES = ("none", "train", "validation")
UNKNOWN = -1
_SCHEMA = 1
_CODES = {name: code for code, name in enumerate(ACTIONS)}
# Thread; start and duration in ns; requested bytes; place; file (0: none); action.
_pack = struct.Struct("<QqqqiiB").pack
# Most events or places, and most names of files (up to PATH_MAX each), per line: the reader allows 16 MiB per line.
_BLOCK = 4096
_NAMES = 512
_FLUSH_NS = 500_000_000
_TRIES = 5
_MOST = 1 << 31


class TimeLogError(JobError):
    """Raised if a time log is used wrongly."""


class TimeLogExistsError(TimeLogError, FileExistsError):
    """Raised if there is already a file of this name."""


class Event:
    """One event, logged by a ``with`` block; its `size_bytes`, the requested bytes, may be set until the block ends."""

    __slots__ = ("action", "events", "file", "place", "size_bytes", "start_ns")
    action: int
    events: list[bytes]
    file: int
    place: int
    size_bytes: int
    start_ns: int

    def __enter__(self) -> Self:
        self.start_ns = monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Add the event to the log, even if the block failed."""
        taken_ns = monotonic_ns() - self.start_ns
        try:
            self.events.append(
                _pack(get_ident(), self.start_ns, taken_ns, self.size_bytes, self.place, self.file, self.action)
            )
        except TimeLogError:
            if kind is None:  # otherwise the block's own error is more important
                raise
        except struct.error as fault:
            if kind is None:
                raise TimeLogError(f"{self.size_bytes!r} bytes", "give a whole number") from fault
            self.size_bytes = UNKNOWN
            self.__exit__(kind, error, trace)


class TimeLog:
    """The time log of this process, written to a new file; a rank may have several processes.

    Any thread may log. A forked child must open its own log. Ranks count from 0 to `ranks` - 1, and all logs of one
    `run` belong together. Without ``with`` the log ends with the process, but not after `os._exit` or a
    signal. A signal handler may log while the log is open; if it interrupts a write, its `flush` and `close` do
    nothing, and the log stays open.

    Raises TimeLogError if there is no such rank or folder, the run's name is no text, or the file exists (then the
    error is also a FileExistsError), and OSError if the file cannot be written.
    """

    def __init__(self, path: File, *, rank: int = 0, ranks: int = 1, run: str = "") -> None:
        if not 0 <= rank < ranks:
            raise TimeLogError(f"there is no rank {rank} of {ranks}", "ranks count from 0")
        if not isinstance(run, str):
            raise TimeLogError(f"{run!r} is no name of a run", "give text")
        self._events: list[bytes] = []
        self._places: list[tuple[int, int, int]] = []
        self._files: dict[File, int] = {}
        self._new_files: list[str] = []
        self._place_count = self._file_count = self._count = self._size = 0
        self._lock = threading.RLock()  # a signal handler may run in the thread that holds it
        self._writing = False
        self._path = files.resolve_user_path(path)
        self.beside = {"path": str(self._path), "rank": int(rank), "ranks": int(ranks), "run": run}
        """The arguments for the log of another process of the same rank, which needs another path."""
        self._descriptor = _new_file(self._path)
        self._started_ns, realtime_ns = _read_clocks()
        self._flushed_ns = self._started_ns
        head = {"timelog": _SCHEMA, "id": uuid.uuid4().hex, "run": run, "rank": int(rank), "ranks": int(ranks)}
        process = {"host": socket.gethostname(), "pid": os.getpid(), "clock": clock.clock_name()}
        stamps = {"started_ns": self._started_ns, "realtime_ns": realtime_ns}
        try:
            self._write({**head, **process, **stamps, "actions": ACTIONS, "phases": PHASES})
        except BaseException:
            os.close(self._descriptor)
            files.remove(self._path)
            raise
        _OPEN.add(self)
        self._at = self.place()

    def event(self, action: str, file: File | None = None, size_bytes: int = UNKNOWN, at: int | None = None) -> Event:
        """Return a context that logs its ``with`` block: an action of `ACTIONS`, its file, its requested bytes.

        A thread that works ahead of the run's current step passes its own place as `at` (see `place`).
        """
        event = Event()
        try:
            event.action = _CODES[action]
        except KeyError:
            _refuse("action", action, ACTIONS)
        if at is None:
            event.place = self._at
        elif 0 <= at < self._place_count:
            event.place = at
        else:
            raise TimeLogError(f"there is no place {at!r}", "give a number that `place` returned")
        event.file = 0 if file is None else self._files.get(file) or self._file_number(file)
        event.size_bytes = size_bytes
        event.events = events = self._events
        if len(events) >= _BLOCK:
            self.flush()
        return event

    def add(
        self, action: str, start_ns: int, file: File | None = None, size_bytes: int = UNKNOWN, at: int | None = None
    ) -> None:
        """Log an event from `start_ns` (of `time.monotonic_ns`) until now."""
        if not self._started_ns <= start_ns <= monotonic_ns():
            raise TimeLogError(f"{start_ns!r} is no time within this log", "give a value of time.monotonic_ns()")
        event = self.event(action, file, size_bytes, at)
        event.start_ns = start_ns
        event.__exit__(None, None, None)

    def place(self, phase: str = "none", epoch: int = UNKNOWN, step: int = UNKNOWN) -> int:
        """Return the number of a place in the run (phase, epoch, step), for the parameter `at`; both count from 0."""
        if phase not in PHASES:
            _refuse("phase", phase, PHASES)
        if not (UNKNOWN <= epoch < _MOST and UNKNOWN <= step < _MOST):
            raise TimeLogError(f"there is no epoch {epoch!r} with a step {step!r}", "both count from 0")
        place = PHASES.index(phase), int(epoch), int(step)
        with self._lock:
            self._require_open()
            number = self._place_count  # no call until the place is added, so that no signal handler runs in between
            self._place_count = number + 1
            self._places.append(place)
            return number

    def at(self, phase: str = "none", epoch: int = UNKNOWN, step: int = UNKNOWN) -> None:
        """Set the current place of the run: a phase of `PHASES`, epoch and step. Called when a step begins."""
        self._at = self.place(phase, epoch, step)
        if monotonic_ns() - self._flushed_ns >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Write all logged events to the file, without fsync. After an OSError the next flush tries again."""
        with self._lock:
            self._require_open()
            self._write_blocks(self._events)

    def close(self) -> None:
        """Write the remaining events and the end of the log, and close it; events that have not ended are lost."""
        with self._lock:
            if self not in _OPEN or self._writing:
                return
            _OPEN.discard(self)
            events, self._events = self._events, _EndedEvents()
            try:
                self._write_blocks(events)
                ended_ns, realtime_ns = _read_clocks()
                self._write({"ended_ns": ended_ns, "realtime_ns": realtime_ns, "count": self._count})
            finally:
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file_number(self, file: File) -> int:
        name = os.fsdecode(file)
        with self._lock:
            self._require_open()
            if name not in self._files:
                self._files[name] = self._file_count = self._file_count + 1
                self._new_files.append(name)
            self._files[file] = self._files[name]
            return self._files[name]

    def _require_open(self) -> None:
        if self not in _OPEN:
            raise TimeLogError(*_ENDED_ERROR)

    def _write_blocks(self, events: list[bytes]) -> None:
        """Write blocks of events; the places and files of a block are written before it."""
        if self._writing:  # a signal handler interrupted a write and called this
            return
        self._writing = True
        try:
            remaining = len(events)
            while remaining or self._places or self._new_files:
                places, names = self._places[:_BLOCK], self._new_files[:_NAMES]
                others_remain = len(self._places) > _BLOCK or len(self._new_files) > _NAMES
                number, place_count, name_count = (
                    0 if others_remain else min(remaining, _BLOCK),
                    len(places),
                    len(names),
                )
                references = {"first": self._count, "places": places, "files": names}
                packed = base64.b64encode(b"".join(events[:number]))
                # json.dumps would copy the events
                self._write({"written_ns": monotonic_ns(), **references}, b',"events":"%b"' % packed)
                del events[:number], self._places[:place_count], self._new_files[:name_count]
                self._count += number
                remaining -= number
            self._flushed_ns = monotonic_ns()
        finally:
            self._writing = False

    def _write(self, value: Any, suffix: bytes = b"") -> None:
        """Append a whole line to the file, or nothing if that fails."""
        remaining = b"%b%b}\n" % (json.dumps(value, separators=(",", ":")).encode()[:-1], suffix)
        size = self._size + len(remaining)
        try:
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining) :]
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            if isinstance(error, OSError):  # the error of a full disk names no file
                raise OSError(error.errno, error.strerror, str(self._path)) from error
            raise
        self._size = size

    def leave(self) -> None:
        """Discard the log in a forked child: it belongs to the parent process."""
        self._events, self._lock = _EndedEvents(), threading.RLock()
        os.close(self._descriptor)


class _EndedEvents(list[bytes]):
    """The event list of an ended log: `append` raises TimeLogError."""

    def append(self, _: bytes) -> NoReturn:
        raise TimeLogError(*_ENDED_ERROR)


_ENDED_ERROR = "this log has ended, or belongs to the parent process", "open another one"
_OPEN: set[TimeLog] = set()


def _leave_logs() -> None:
    for log in _OPEN:
        log.leave()
    _OPEN.clear()


@atexit.register
def _close_logs() -> None:
    with contextlib.ExitStack() as logs:  # every log, even after the disk of another one was full
        for log in _OPEN:
            logs.callback(log.close)


os.register_at_fork(after_in_child=_leave_logs)


def _new_file(path: Path) -> int:
    try:
        return files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
    except FileExistsError as error:
        raise TimeLogExistsError(f"{path} exists already", "remove it, or name a new file") from error
    except FileNotFoundError as error:
        raise TimeLogError(f"there is no folder {path.parent}", "make it first") from error


def _refuse(kind: str, word: object, words: Sequence[str]) -> NoReturn:
    raise TimeLogError(f"there is no {kind} {word!r}", f"take one of: {', '.join(words)}")


def _read_clocks() -> tuple[int, int]:
    """Return one time in ns, by the monotonic clock and as Unix time: the pair that was read fastest of a few."""
    tries = [(monotonic_ns(), time.time_ns(), monotonic_ns()) for _ in range(_TRIES)]
    before_ns, realtime_ns, after_ns = min(tries, key=lambda readings: readings[2] - readings[0])
    return (before_ns + after_ns) // 2, realtime_ns
