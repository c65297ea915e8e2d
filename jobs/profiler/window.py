"""What one window has seen: its files, its events or its counters, and how much of the process that was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

OPERATIONS = (
    "", "open", "close", "read", "pread", "readv", "preadv", "write", "pwrite", "writev", "pwritev", "lseek", "fsync",
    "fdatasync", "stat", "access", "unlink", "rename", "renamed", "mmap", "dup", "opendir", "sendfile",
    "copy_file_range", "fopen", "fdopen", "fread", "fwrite", "fseek", "fflush", "fclose",
)  # fmt: skip
"""As in hooks.c; `renamed` is the other path of a rename."""
READS = ("read", "pread", "readv", "preadv", "fread")
WRITES = ("write", "pwrite", "writev", "pwritev", "fwrite")
EVENT = np.dtype(
    {
        "names": ["start", "end", "offset", "length", "returned", "thread", "file", "descriptor", "error", "operation"],
        "formats": ["<i8"] * 5 + ["<i4"] * 3 + ["<u2"] * 2,
    }
)
"""A call: Unix time in ns, bytes, errno; `offset` and `length` are -1 where there is none."""
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


def _side(done: str, verb: str) -> list[Any]:
    """Return ``struct side`` of hooks.h."""
    times = (f"{verb}_start", f"{verb}_end", f"{verb}_time", f"max_{verb}_time")
    longs = (f"bytes_{done}", f"max_byte_{done}", f"last_{done}", f"max_{verb}_time_size", *times)
    calls = (f"{verb}s", f"consec_{verb}s", f"seq_{verb}s")
    counts = [*((name, "<u4") for name in calls), (f"size_{verb}", "<u4", 10), (f"spare_{verb}", "<u4")]
    return [*((name, "<i8") for name in longs), *counts]


COUNTERS = np.dtype(
    [
        *((name, "<u4") for name in ("lock", "last", "opens", "rw_switches")),
        *((name, "<i8") for name in ("open_start", "open_end", "close_start", "close_end", "meta_time", "meta_end")),
        *_side("read", "read"),
        *(("access_size", "<i8", 4), ("access_count", "<u4", 4), ("stride_count", "<u4", 4), ("stride", "<i8", 4)),
        *_side("written", "write"),
        *((name, "<u4") for name in _OTHER_CALLS),
        ("spare", "<u4", 2),
    ]
)
"""What is counted of a file, ``struct counters`` of hooks.h; times are ns."""
SIZES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
"""Darshan's bins of the bytes that one call moved."""
_OF_STDIO = ("opens", "fdopens", "reads", "writes", "seeks", "flushes", *_BYTES[:4])
_NOT_OF_POSIX = ("flushes", "fdopens", "last_read", "last_written")
_FOUR = {
    "stride": "STRIDE{}_STRIDE",
    "stride_count": "STRIDE{}_COUNT",
    "access_size": "ACCESS{}_ACCESS",
    "access_count": "ACCESS{}_COUNT",
}
DARSHAN_NAMES: dict[str, list[tuple[str, int | None, str]]] = {
    "POSIX": [
        *((each, None, each.upper()) for each in (*_CALLS, *_BYTES) if each not in _NOT_OF_POSIX),
        *(
            (f"size_{kind}", n, f"SIZE_{kind.upper()}_{size}")
            for kind in ("read", "write")
            for n, size in enumerate(SIZES)
        ),
        *((key, place, name.format(place + 1)) for place in range(4) for key, name in _FOUR.items()),
    ],
    "STDIO": [(each, None, each.upper()) for each in _OF_STDIO],
}
MODULES = tuple(DARSHAN_NAMES)
MODES = ("trace", "counters")


class Files(Mapping[str, "dict[str, float]"]):
    """Path to counters under Darshan's names: calls, bytes, and seconds (timestamps from the window's start)."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._places: dict[str, list[int]] = {}
        for place, path in enumerate(window.paths):
            self._places.setdefault(path, []).append(place)

    def __getitem__(self, path: str) -> dict[str, float]:
        """Return the counters of a file, of POSIX and of STDIO calls, where there were any."""
        found: dict[str, float] = {}
        for place in self._places[path]:
            found |= self._window.counted(place)
        return found

    def __iter__(self) -> Iterator[str]:
        """Yield the paths in the order of their first call."""
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@dataclass(frozen=True)
class Window:
    """What happened between a start and a stop, in one process.

    The file of an event is a place in `paths`, `modules` and `counters`; a path stands there once for its POSIX and
    once for its STDIO calls. Bytes are those of all files, also of those that were not asked for.
    """

    mode: str
    started_ns: int  # Unix time
    ended_ns: int
    process: int
    paths: Sequence[str]  # bytes that are no UTF-8 are surrogates, as of os.fsdecode
    modules: Sequence[str]  # POSIX or STDIO
    counters: np.ndarray[Any, Any]  # COUNTERS, one a file
    events: np.ndarray[Any, Any] | None  # EVENT, in the order in which calls ended; None: counters only
    dropped: int  # calls for which there was no room
    read_bytes: int  # returned by the calls that were seen, of whatever files
    kernel_read_bytes: int | None  # rchar of /proc/self/io; None where it cannot be read, or the process died
    ended: bool = True  # False: read from what a process left that ended before its window
    beside: str = ""  # other profilers that were loaded
    marks: Sequence[int] = ()  # Unix time in ns at which another part began
    device_bytes: int | None = None  # fetched for the process (read_bytes of /proc/self/io); None where it is not known

    @cached_property
    def files(self) -> Files:
        """Return the counters by path."""
        return Files(self)

    @property
    def wall_s(self) -> float:
        """Return the seconds from start to stop."""
        return (self.ended_ns - self.started_ns) / 1e9

    def under_way_s(self, files: Sequence[int] | None = None) -> float | None:
        """Return the seconds in which at least one call was under way; None where calls were only counted.

        `files`: places of the files whose calls are meant, else those of all.
        """
        if self.events is None:
            return None
        events = self.events if files is None else self.events[np.isin(self.events["file"], files)]
        order = np.argsort(events["start"])
        start, end = events["start"][order], np.maximum.accumulate(events["end"][order])
        before = np.concatenate((start[:1], end[:-1]))
        return float((end - np.maximum(start, before)).clip(0).sum() / 1e9)

    def counted(self, place: int) -> dict[str, float]:
        """Return the counters of one file of one module by Darshan's names."""
        module, row = self.modules[place], self.counters[place]
        found: dict[str, float] = {}
        for key, index, name in DARSHAN_NAMES[module]:
            found[f"{module}_{name}"] = int(row[key] if index is None else row[key][index])
        for key in TIMES:
            action, _, edge = key.partition("_")
            found[f"{module}_F_{action.upper()}_{edge.upper()}TIMESTAMP"] = self._seconds(int(row[key]))
        for key in SPENT if module == "POSIX" else SPENT[:3]:
            found[f"{module}_F_{key.upper()}"] = int(row[key]) / 1e9
        return found

    def _seconds(self, at_ns: int) -> float:
        return (at_ns - self.started_ns) / 1e9 if at_ns else 0.0

    def blind_spot(self) -> str | None:
        """Say what this profile has not seen: None when it is complete.

        The kernel counts what any read of this process returned (``rchar``, proc(5)), and what its children had read
        when they were waited for. STDIO reads a stream's buffer ahead, so a little more than was asked for is nothing.
        """
        if not self.ended:
            return "the process ended within the window: how much it had done by then is not known"
        if self.dropped:
            cure = "ask for more"
            rather = ", or take the mode counters, which needs room for files alone" * (self.mode == "trace")
            return f"{self.dropped:,} calls or files were dropped for want of room: {cure}{rather}"
        if self.kernel_read_bytes is None:
            return "how many bytes the process read is not known: the kernel's count is missing"
        missed = self.kernel_read_bytes - self.read_bytes
        if abs(missed) <= max(NEGLIGIBLE_BYTES, COMPLETE_WITHIN * self.kernel_read_bytes):
            return None
        if missed < 0:
            return f"{-missed:,} bytes more were seen than the kernel counted"
        return f"{missed:,} bytes were read unseen: by direct system calls, fgets or getc, or by children that ended"


COMPLETE_WITHIN = 0.01  # share of the bytes that may be unseen
NEGLIGIBLE_BYTES = 1 << 16  # as much as a few streams' buffers read ahead
