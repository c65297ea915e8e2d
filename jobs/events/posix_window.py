"""Store and read a window: the profile of the POSIX and STDIO calls of a process between two moments.

A window has either one event per call, or counters per file. A window is stored as .npz: NumPy arrays and a JSON head.
Times are Unix times, because TensorFlow's profiler uses Unix times. With another clock, a call would no longer lie
inside its TensorFlow operation after a correction of the time of day.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from jobs.events.intervals import union
from jobs.events.perfetto import TraceProcess
from jobs.events.table import NS, Events, EventsError
from jobs.events.time_log import UNKNOWN
from jobs.model import reading
from jobs.system import files, untrusted

SCHEMA = 3  # version of the file format; increase the number when COUNTERS, EVENT or the head changes
LARGEST_BYTES = 4 << 30
_LARGEST_HEAD_BYTES = 1 << 20
_LATEST_NS = 1 << 62
OPERATIONS = (
    "", "open", "close", "read", "pread", "readv", "preadv", "write", "pwrite", "writev", "pwritev", "lseek", "fsync",
    "fdatasync", "stat", "access", "unlink", "rename", "renamed", "mmap", "dup", "opendir", "sendfile",
    "copy_file_range", "fopen", "fdopen", "fread", "fwrite", "fseek", "fflush", "fclose",
)  # fmt: skip
"""The operations of events, in the order of hooks.c; `renamed` is the event for the new path of a rename."""
READS = ("read", "pread", "readv", "preadv", "fread")
WRITES = ("write", "pwrite", "writev", "pwritev", "fwrite")
KINDS = READ, END, WRITTEN, OTHER = "read", "read of nothing", "written", "open, close and others"
_KINDS = [READ if name in READS else WRITTEN if name in WRITES else OTHER for name in OPERATIONS]
EVENT = np.dtype(
    {
        "names": ["start", "end", "offset", "length", "returned", "thread", "file", "descriptor", "error", "operation"],
        "formats": ["<i8"] * 5 + ["<i4"] * 3 + ["<u2"] * 2,
    }
)
"""The type of one call.

Times are Unix times in ns, sizes are bytes, and `error` is errno. A missing `offset` or `length` is -1.
"""
TIMES = ("open_start", "read_start", "write_start", "close_start", "open_end", "read_end", "write_end", "close_end")
SPENT = ("read_time", "write_time", "meta_time", "max_read_time", "max_write_time")
_OTHER_CALLS = (
    "fdopens", "dups", "seeks", "stats", "mmaps", "fsyncs", "fdsyncs", "rename_sources", "rename_targets", "flushes",
)  # fmt: skip
_CALLS = (
    "opens", "reads", "writes", "consec_reads", "consec_writes", "seq_reads", "seq_writes", "rw_switches",
    *_OTHER_CALLS,
)  # fmt: skip
_BYTES = (
    "bytes_read", "bytes_written", "max_byte_read", "max_byte_written", "last_read", "last_written",
    "max_read_time_size", "max_write_time_size",
)  # fmt: skip


def _struct_side_fields(participle: str, verb: str) -> list[Any]:
    """Return the fields of ``struct side`` in hooks.h, for reads or for writes."""
    times = (f"{verb}_start", f"{verb}_end", f"{verb}_time", f"max_{verb}_time")
    longs = (f"bytes_{participle}", f"max_byte_{participle}", f"last_{participle}", f"max_{verb}_time_size", *times)
    calls = (f"{verb}s", f"consec_{verb}s", f"seq_{verb}s")
    counts = [*((name, "<u4") for name in calls), (f"size_{verb}", "<u4", 10), (f"spare_{verb}", "<u4")]
    return [*((name, "<i8") for name in longs), *counts]


COUNTERS = np.dtype(
    [
        *((name, "<u4") for name in ("lock", "last", "opens", "rw_switches")),
        *((name, "<i8") for name in ("open_start", "open_end", "close_start", "close_end", "meta_time", "meta_end")),
        *_struct_side_fields("read", "read"),
        *(("access_size", "<i8", 4), ("access_count", "<u4", 4), ("stride_count", "<u4", 4), ("stride", "<i8", 4)),
        *_struct_side_fields("written", "write"),
        *((name, "<u4") for name in _OTHER_CALLS),
        ("spare", "<u4", 2),
    ]
)
"""The type of the counters of one file, equal to ``struct counters`` in hooks.h; times are in ns."""
SIZES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
"""The names of Darshan's histogram bins for the number of bytes that one call read or wrote."""
SIZE_LIMITS = ("100 B", "1 KiB", "10 KiB", "100 KiB", "1 MiB", "4 MiB", "10 MiB", "100 MiB", "1 GiB")
"""The largest size in each bin as text; the last bin has no limit."""
_STDIO_COUNTERS = ("opens", "fdopens", "reads", "writes", "seeks", "flushes", *_BYTES[:4])
_STDIO_ONLY = ("flushes", "fdopens", "last_read", "last_written")
_NAMES_OF_FOUR = {
    "stride": "STRIDE{}_STRIDE",
    "stride_count": "STRIDE{}_COUNT",
    "access_size": "ACCESS{}_ACCESS",
    "access_count": "ACCESS{}_COUNT",
}
DARSHAN_NAMES: dict[str, list[tuple[str, int | None, str]]] = {
    "POSIX": [
        *((key, None, key.upper()) for key in (*_CALLS, *_BYTES) if key not in _STDIO_ONLY),
        *(
            (f"size_{kind}", n, f"SIZE_{kind.upper()}_{size}")
            for kind in ("read", "write")
            for n, size in enumerate(SIZES)
        ),
        *((key, index, name.format(index + 1)) for index in range(4) for key, name in _NAMES_OF_FOUR.items()),
    ],
    "STDIO": [(key, None, key.upper()) for key in _STDIO_COUNTERS],
}
DARSHAN_TIMES = {key: f"F_{key.upper()}_TIMESTAMP" for key in TIMES}
DARSHAN_SECONDS = {key: f"F_{key.upper()}" for key in SPENT}
MODULES = tuple(DARSHAN_NAMES)
MODES = ("trace", "counters")


class FileCounters(Mapping[str, "dict[str, float]"]):
    """A mapping from a path to the counters of the file, with Darshan's names: numbers of calls, bytes and seconds.

    Timestamps are seconds since the start of the window.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._indices: dict[str, list[int]] = {}
        for index, path in enumerate(window.paths):
            self._indices.setdefault(path, []).append(index)

    def __getitem__(self, path: str) -> dict[str, float]:
        """Return the counters of a file for POSIX and STDIO calls; a module without calls has no counters."""
        counters: dict[str, float] = {}
        for index in self._indices[path]:
            counters |= self._window.file_counters(index)
        return counters

    def __iter__(self) -> Iterator[str]:
        """Yield the paths in the order of their first call."""
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


@dataclass(frozen=True)
class Window:
    """The POSIX and STDIO calls of one process between a start and a stop of the profiler.

    The `file` of an event is an index into `paths`, `modules` and `counters`. A path with POSIX calls and STDIO calls
    has two indices. `read_bytes` counts the reads of all files, also of files that the profile leaves out.
    """

    mode: str
    started_ns: int  # Unix time
    ended_ns: int  # Unix time
    process: int
    paths: Sequence[str]  # decoded by os.fsdecode, which turns invalid UTF-8 into surrogates
    modules: Sequence[str]  # POSIX or STDIO, for each file
    counters: np.ndarray[Any, Any]  # elements of type COUNTERS, one per file
    events: np.ndarray[Any, Any] | None  # elements of type EVENT, in the order of the ends; None in mode counters
    dropped: int  # number of calls or files that did not fit into the buffer
    read_bytes: int  # bytes that all profiled read calls returned
    kernel_read_bytes: int | None  # rchar of /proc/self/io; None if the file is unreadable or the process died
    ended: bool = True  # False if the process ended before the stop, so that the window comes from a spill file
    beside: str = ""  # names of other profilers that were loaded at the same time
    marks: Sequence[int] = ()  # Unix times in ns at which a new part of the window began
    device_bytes: int | None = None  # read_bytes of /proc/self/io; None if unknown
    clock_s: float = 0.0  # how exactly start and end are known: 1.0 for a Darshan log with whole seconds
    ranks: int = 1  # processes of a Darshan log, whose counters are added up by file
    gaps: Sequence[str] = ()  # sentences on what a Darshan log has, or lacks, and this window lacks

    @cached_property
    def files(self) -> FileCounters:
        """Return the counters by path."""
        return FileCounters(self)

    @property
    def wall_s(self) -> float:
        """Return the seconds from start to stop."""
        return (self.ended_ns - self.started_ns) / 1e9

    @property
    def rate_s(self) -> float | None:
        """Return the seconds by which bytes may be divided, or None if they are not known to a tenth."""
        return self.wall_s if self.wall_s > 0 and self.wall_s >= 10 * self.clock_s else None

    @property
    def file_bytes(self) -> np.ndarray[Any, Any]:
        """Return an estimate of the size of each file: the largest offset that was read or written, in bytes."""
        rows = self.counters
        ends = [np.where(rows[f"bytes_{done}"] > 0, rows[f"max_byte_{done}"] + 1, 0) for done in ("read", "written")]
        return np.maximum(*ends)

    @property
    def read_order(self) -> tuple[int, int, int]:
        """Return the numbers of all, of sequential, and of consecutive POSIX reads, as Darshan defines these terms."""
        rows = self.counters[self.of_posix]
        reads, sequential, consecutive = (
            int(rows[name].sum(dtype=np.int64)) for name in ("reads", "seq_reads", "consec_reads")
        )
        return reads, sequential, consecutive

    def under_way_s(self, files: Sequence[int] | None = None) -> float | None:
        """Return the seconds in which at least one call was running, or None in mode counters.

        `files` are the indices of the files whose calls count; None means all files.
        """
        if self.events is None:
            return None
        events = self.events if files is None else self.events[np.isin(self.events["file"], files)]
        return union(events["start"], events["end"]).length / NS

    @cached_property
    def of_posix(self) -> np.ndarray[Any, Any]:
        """Return a boolean array over `paths`: true for POSIX calls, false for STDIO calls."""
        return np.array([module == "POSIX" for module in self.modules], bool)

    @cached_property
    def calls(self) -> Events | None:
        """Return the events as a table, or None in mode counters.

        The column ``kind`` has one of `KINDS`, ``name`` has the operation, and ``bytes`` has the bytes read or written.
        """
        if self.events is None:
            return None
        events, returned = self.events, self.events["returned"]
        kind = np.array([KINDS.index(name) for name in _KINDS], np.int8)[events["operation"]]
        moved_bytes = np.where(kind == KINDS.index(OTHER), 0, np.maximum(returned, 0))
        kind[(kind == KINDS.index(READ)) & (returned == 0)] = KINDS.index(END)
        words = {"kind": KINDS, "name": OPERATIONS, "file": self.paths}
        columns = {name: events[name] for name in ("start", "end", "thread", "file", "offset", "length", "returned")}
        errno = np.where(events["error"], events["error"], UNKNOWN)
        return Events(words, **columns, kind=kind, name=events["operation"], bytes=moved_bytes, errno=errno)

    def chrome_process(self) -> TraceProcess:
        """Return the calls as a process of a Perfetto trace, with one line per file and thread.

        Raises EventsError in mode counters.
        """
        calls = self.calls
        if calls is None:
            raise EventsError("a profile in mode counters has no events to draw", "profile in mode trace")
        lines, line = np.unique(np.stack([calls["file"], calls["thread"]]), axis=1, return_inverse=True)
        words = {**calls.words, "thread": [self.paths[file] for file in lines[0].tolist()]}
        events = Events(words, **calls.columns | {"thread": line.ravel(), "thread_id": calls["thread"]})
        return TraceProcess(self.process, f"process {self.process}", [events])

    def file_counters(self, file: int) -> dict[str, float]:
        """Return the counters at index `file` by Darshan's names."""
        module, row = self.modules[file], self.counters[file]
        counters: dict[str, float] = {}
        for key, index, name in DARSHAN_NAMES[module]:
            counters[f"{module}_{name}"] = int(row[key] if index is None else row[key][index])
        for key, name in DARSHAN_TIMES.items():
            counters[f"{module}_{name}"] = (int(row[key]) - self.started_ns) / 1e9 if row[key] else 0.0
        for key in SPENT if module == "POSIX" else SPENT[:3]:
            counters[f"{module}_{DARSHAN_SECONDS[key]}"] = int(row[key]) / 1e9
        return counters

    def blind_spot(self) -> str | None:
        """Return a sentence about the calls that this profile lacks, or None if the profile is complete.

        The profile is compared with the kernel's count of the bytes that this process and its ended children read
        (``rchar``, proc(5)). A small difference does not count, because STDIO reads more bytes than the program asks
        for.
        """
        if self.gaps or not self.ended:
            return "; ".join(self.gaps) or "the process ended within the window: its calls until then are unknown"
        if self.dropped:
            cure = "use a larger buffer"
            alternative = ", or use mode counters, which needs memory only for files" * (self.mode == "trace")
            return f"{self.dropped:,} calls or files were dropped, because the buffer was full: {cure}{alternative}"
        if self.kernel_read_bytes is None:
            return "it is unknown how many bytes the process read: the kernel's count is missing"
        missed_bytes = self.kernel_read_bytes - self.read_bytes
        if abs(missed_bytes) <= max(NEGLIGIBLE_BYTES, COMPLETE_WITHIN * self.kernel_read_bytes):
            return None
        if missed_bytes < 0:
            return f"{-missed_bytes:,} bytes more were seen than the kernel counted"
        return (
            f"{missed_bytes:,} bytes were read unseen: by direct system calls, fgets or getc, or by children that ended"
        )


COMPLETE_WITHIN = 0.01  # largest share of the read bytes that a complete profile may lack
NEGLIGIBLE_BYTES = 1 << 16  # about the size of the buffers of a few STDIO streams


class _Head(TypedDict):
    """The fields of a window that are stored as JSON; all other fields are stored as arrays."""

    mode: Literal["trace", "counters"]
    started_ns: int
    ended_ns: int
    process: int
    dropped: int
    read_bytes: int
    kernel_read_bytes: int | None
    ended: bool
    beside: str
    device_bytes: int | None
    clock_s: NotRequired[float]
    ranks: NotRequired[int]
    gaps: NotRequired[list[str]]


_MINIMA = {name for name in TIMES if name.endswith("_start")}
_MAXIMA = {name for name in COUNTERS.names or () if name.startswith(("max_", "last", "lock")) or name.endswith("_end")}
_PAIRS = (("access_size", "access_count"), ("stride", "stride_count"))
_NO_TIME = np.iinfo(np.int64).max


def add_rows(rows: np.ndarray[Any, Any], file_of_row: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return one row of counters per file, of the counters that several processes have of it.

    `file_of_row` has the index of the file of each row; rows with -1 are left out. Of the four most frequent sizes and
    strides, those of all processes are added up, and the four most frequent of them stay.
    """
    sums, rows, file_of_row = np.zeros(count, COUNTERS), rows[file_of_row >= 0], file_of_row[file_of_row >= 0]
    paired = {name for pair in _PAIRS for name in pair}
    for name in [name for name in COUNTERS.names or () if name not in paired]:
        if name in _MINIMA:
            sums[name] = _NO_TIME
            np.minimum.at(sums[name], file_of_row, np.where(rows[name] > 0, rows[name], _NO_TIME))
            sums[name] %= _NO_TIME
        else:
            (np.maximum if name in _MAXIMA else np.add).at(sums[name], file_of_row, rows[name])
    for values, counts in _PAIRS:
        frequent = [Counter[int]() for _ in range(count)]
        for file, row in zip(file_of_row.tolist(), rows, strict=True):
            frequent[file].update(dict(zip(row[values].tolist(), row[counts].tolist(), strict=True)))
        for counted, row in zip(frequent, sums, strict=True):
            for place, (value, number) in enumerate(counted.most_common(4)):
                row[values][place], row[counts][place] = value, number
    return sums


def window_head(window: Window) -> dict[str, Any]:
    """Return the fields of a window that are stored as JSON (`_Head`)."""
    return {key: getattr(window, key) for key in _Head.__annotations__}


def from_head(head: Mapping[str, Any], **arrays: Any) -> Window:
    """Build a window from its JSON head and its arrays; raise ValueError if they are damaged or do not match."""
    if fault := reading.type_fault(head, _Head):
        raise ValueError(f"its head is damaged: {fault}")
    window = Window(**{key: head[key] for key in _Head.__annotations__ if key in head}, **arrays)
    times_are_valid = all(0 <= edge < _LATEST_NS for edge in (window.started_ns, window.ended_ns))
    if not times_are_valid or not len(window.paths) == len(window.modules) == len(window.counters):
        raise ValueError("its members do not fit together")
    return window


def checked_events(events: np.ndarray[Any, Any], files: int) -> np.ndarray[Any, Any]:
    """Return the unchanged events; raise ValueError if an event is invalid.

    An event is invalid if its file or operation is unknown, or if its end is before its start.
    """
    if len(events) and not (
        0 <= events["file"].min() <= events["file"].max() < files
        and events["operation"].max() < len(OPERATIONS)
        and (events["end"] >= events["start"]).all()
    ):
        raise ValueError("its events do not match its files")
    return events


def check_schema(schema: object) -> None:
    """Raise ValueError if the schema number of a window's file differs from `SCHEMA`."""
    if schema != SCHEMA:
        raise ValueError(f"it has schema {schema!r:.20}, and this version reads schema {SCHEMA}: profile again")


def write_window(path: Path, window: Window) -> None:
    """Write a window as .npz with the members ``head`` (JSON), ``paths``, ``stdio`` and ``counters``.

    The members ``events`` and ``marks`` are written only if the window has events and marks.
    """
    facts = {"schema": SCHEMA, "operations": OPERATIONS, **window_head(window)}
    names = b"".join(os.fsencode(name) + b"\0" for name in window.paths)
    arrays: dict[str, Any] = {
        "head": np.frombuffer(json.dumps(facts).encode(), np.uint8),
        "paths": np.frombuffer(names, np.uint8),
        "stdio": ~window.of_posix,
        "counters": window.counters,
    }
    if window.events is not None:
        arrays["events"] = window.events
    if window.marks:
        arrays["marks"] = np.array(window.marks, np.int64)
    with files.write_whole(path) as file:
        np.savez(file, **arrays)


def read_window(path: Path, largest_bytes: int = LARGEST_BYTES) -> Window:
    """Read a window that `write_window` wrote; raise EventsError if the file is missing, damaged or too large."""
    path = files.resolve_user_path(path)
    try:
        with untrusted.open_bounded(path, largest_bytes) as file:
            return _window_from_arrays(untrusted.read_arrays(file, largest_bytes))
    except FAULTS as error:
        raise unreadable_profile_error(path, error) from error


FAULTS = (OSError, ValueError, LookupError, TypeError)
"""The exceptions that can occur while a file is read that is not a profile."""


def unreadable_profile_error(path: Path, error: Exception) -> EventsError:
    """Return the exception for a file that is not a profile."""
    hint = "name what Profile.save, a spill or Darshan has written"
    return EventsError(f"{path} is no profile that can be read: {error}", hint)


def _window_from_arrays(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Window:
    facts = untrusted.json_value(_check_array(arrays["head"], np.uint8)[:_LARGEST_HEAD_BYTES].tobytes())
    check_schema(facts["schema"])
    if tuple(facts["operations"]) != OPERATIONS:
        raise ValueError("its operations differ from the operations of its schema")
    paths = [os.fsdecode(name) for name in _check_array(arrays["paths"], np.uint8).tobytes().split(b"\0")[:-1]]
    modules = [MODULES[int(stdio)] for stdio in _check_array(arrays["stdio"], np.bool_)]
    counters = _check_array(arrays["counters"], COUNTERS)
    events = checked_events(_check_array(arrays["events"], EVENT), len(paths)) if "events" in arrays else None
    marks = _check_array(arrays["marks"], np.int64).tolist() if "marks" in arrays else []
    window = from_head(facts, paths=paths, modules=modules, counters=counters, events=events, marks=tuple(marks))
    if sorted(marks) != marks or not all(window.started_ns <= mark <= window.ended_ns for mark in marks):
        raise ValueError("its marks are not within the window")
    return window


def _check_array(array: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    if array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"a member is {array.dtype} of {array.ndim} dimensions")
    return array
