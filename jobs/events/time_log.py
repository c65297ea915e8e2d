"""Write time logs: one file (stream) per process with the actions of the process and their times.

The command `python -m analysis timelog` reads the logs. A stream consists of JSON Lines: a head with facts about the
process and the clock, blocks of packed events in base64, and an end. A block is written when the block is full, when a
step begins at least half a second after the last block, and at the end. A killed process loses all events after the
last block.
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
"""The actions in order of priority.

If the threads of a rank have several actions at the same time, `analysis timelog` counts only the first action.
"""
PHASES = ("none", "train", "validation")
UNKNOWN = -1
_SCHEMA = 1
_CODES = {name: code for code, name in enumerate(ACTIONS)}
# Fields of a packed event: thread, start in ns, duration in ns, requested bytes, place, file (0 for no file), action.
_pack = struct.Struct("<QqqqiiB").pack
# Largest number of events, places and file names (of up to PATH_MAX bytes) per line, because the reader allows only
# 16 MiB per line.
_BLOCK = 4096
_NAMES = 512
_FLUSH_NS = 500_000_000
_TRIES = 5
_MOST = 1 << 31


class TimeLogError(JobError):
    """Raised if a program uses a time log in a wrong way."""


class TimeLogExistsError(TimeLogError, FileExistsError):
    """Raised if the file of a new time log already exists."""


class Event:
    """One event, which a ``with`` block logs; `size_bytes`, the requested bytes, may be set until the block ends."""

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
            if kind is None:  # otherwise the error of the ``with`` block is more important
                raise
        except struct.error as fault:
            if kind is None:
                raise TimeLogError(f"size_bytes is {self.size_bytes!r}", "give a whole number") from fault
            self.size_bytes = UNKNOWN
            self.__exit__(kind, error, trace)


class TimeLog:
    """The time log of this process, written to a new file; a rank may have several processes.

    Any thread may log. A forked child process must open its own log. Ranks are numbered from 0 to `ranks` - 1. All logs
    with the same name of the `run` belong together. Without a ``with`` statement, the log ends with the process, except
    after `os._exit` or a signal. A signal handler may log events while the log is open. If a signal handler interrupts
    a write, its calls of `flush` and `close` do nothing, and the log stays open.

    Raises TimeLogError if the rank is invalid, if the folder is missing, or if the name of the run is not text. Raises
    TimeLogExistsError if the file exists, and OSError if the file cannot be written.
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
        self._lock = threading.RLock()  # reentrant, for a signal handler in the thread that has the lock
        self._writing = False
        self._path = files.resolve_user_path(path)
        self.beside = {"path": str(self._path), "rank": int(rank), "ranks": int(ranks), "run": run}
        """The arguments of this log. Another process of the rank uses these arguments with another path."""
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
        """Return a context that logs one event: the ``with`` block of the context.

        `action` is one of `ACTIONS`, `file` is the file of the action, and `size_bytes` is the number of requested
        bytes. A thread that works for a later step than the current step of the run passes the place of the later step
        as `at` (see `place`).
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
        """Log an event that began at `start_ns` (of `time.monotonic_ns`) and ends now."""
        if not self._started_ns <= start_ns <= monotonic_ns():
            raise TimeLogError(f"{start_ns!r} is no time within this log", "give a value of time.monotonic_ns()")
        event = self.event(action, file, size_bytes, at)
        event.start_ns = start_ns
        event.__exit__(None, None, None)

    def place(self, phase: str = "none", epoch: int = UNKNOWN, step: int = UNKNOWN) -> int:
        """Return a number for a place in the run (phase, epoch and step), for the parameter `at` of `event` and `add`.

        Epochs and steps are numbered from 0.
        """
        if phase not in PHASES:
            _refuse("phase", phase, PHASES)
        if not (UNKNOWN <= epoch < _MOST and UNKNOWN <= step < _MOST):
            raise TimeLogError(f"there is no epoch {epoch!r} with a step {step!r}", "both count from 0")
        place = PHASES.index(phase), int(epoch), int(step)
        with self._lock:
            self._require_open()
            # There is no function call before `append`, so that no signal handler can run in between.
            number = self._place_count
            self._place_count = number + 1
            self._places.append(place)
            return number

    def at(self, phase: str = "none", epoch: int = UNKNOWN, step: int = UNKNOWN) -> None:
        """Set the current place of the run (phase, epoch and step); the program calls this when a step begins."""
        self._at = self.place(phase, epoch, step)
        if monotonic_ns() - self._flushed_ns >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Write all logged events to the file, without fsync. After an OSError the next flush tries again."""
        with self._lock:
            self._require_open()
            self._write_blocks(self._events)

    def close(self) -> None:
        """Write the remaining events and the end of the log, and close the file; unfinished events are lost."""
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
        """Write the events in blocks; the places and file names that events refer to are written first."""
        if self._writing:  # a signal handler interrupted a write and called this method again
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
                # The packed events are appended to the JSON text, because json.dumps would copy the events.
                self._write({"written_ns": monotonic_ns(), **references}, b',"events":"%b"' % packed)
                del events[:number], self._places[:place_count], self._new_files[:name_count]
                self._count += number
                remaining -= number
            self._flushed_ns = monotonic_ns()
        finally:
            self._writing = False

    def _write(self, value: Any, suffix: bytes = b"") -> None:
        """Append a whole line to the file; after an error, remove the incomplete line from the file."""
        remaining = b"%b%b}\n" % (json.dumps(value, separators=(",", ":")).encode()[:-1], suffix)
        size = self._size + len(remaining)
        try:
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining) :]
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            if isinstance(error, OSError):  # add the path, because the error of a full disk has no path
                raise OSError(error.errno, error.strerror, str(self._path)) from error
            raise
        self._size = size

    def leave(self) -> None:
        """Discard the log in a forked child process, because the log belongs to the parent process."""
        self._events, self._lock = _EndedEvents(), threading.RLock()
        os.close(self._descriptor)


class _EndedEvents(list[bytes]):
    """The event list of an ended log; the method `append` raises TimeLogError."""

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
    with contextlib.ExitStack() as logs:  # closes every log, even after an error with another log
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
    """Return the current time in ns of the monotonic clock, and as Unix time.

    The clocks are read a few times; the fastest reading is returned, because it is the most exact.
    """
    tries = [(monotonic_ns(), time.time_ns(), monotonic_ns()) for _ in range(_TRIES)]
    before_ns, realtime_ns, after_ns = min(tries, key=lambda readings: readings[2] - readings[0])
    return (before_ns + after_ns) // 2, realtime_ns
