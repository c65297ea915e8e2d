"""Call the hook library (C) from Python, and define the layout of a window's memory: head, events or counters, names.

The memory is anonymous memory or a mapped file. Such a file, called a spill, still exists after the process was killed.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
from contextlib import suppress
from ctypes import addressof, c_char, memset
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from jobs.errors import JobError
from jobs.events.posix_window import COUNTERS, EVENT, MODES, MODULES, SCHEMA, check_schema
from jobs.profiler import build
from jobs.system import files, untrusted

HEAD_BYTES = 4096
MAGIC = b"tfio-posix-"
_NAME_BYTES = 128  # bytes per file for names, on average
_REUSED_BYTES = 4 << 20  # largest content of a window whose memory is zeroed and reused
_NORESERVE = 0x4000  # MAP_NORESERVE: the kernel allocates a page at the first write (mmap(2))
_HUGE_PAGE = 1 << 21
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, since Linux 5.14
_ENTRY = struct.Struct("<II")
spare: dict[WindowCapacity, mmap.mmap] = {}  # zeroed memory for the next window; has at most one entry


@dataclass(frozen=True)
class WindowCapacity:
    """The capacity of a window: its mode, and the largest numbers of events and files."""

    mode: str
    events: int
    files: int

    @property
    def names_at(self) -> int:
        """Return the offset in bytes of the names, which follow the events or counters."""
        return HEAD_BYTES + (self.events * EVENT.itemsize if self.mode == "trace" else self.files * COUNTERS.itemsize)

    @property
    def size_bytes(self) -> int:
        """Return the size of the window's memory, in bytes."""
        return self.names_at + self.files * _NAME_BYTES

    def map_memory(self, spill: Path | None) -> mmap.mmap:
        """Return zeroed memory for a window: anonymous memory, or the mapped memory of the new file `spill`.

        All blocks of the file are reserved now, because a full disk would kill the process at a later write.
        """
        if spill is None:
            return spare.pop(self, None) or self._new_memory()
        descriptor = files.open_file(spill, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self.size_bytes)
            return mmap.mmap(descriptor, self.size_bytes)
        except OSError:
            files.remove(spill, missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _new_memory(self) -> mmap.mmap:
        memory = mmap.mmap(-1, self.size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        with suppress(OSError):  # an older kernel does not know these calls of madvise
            memory.madvise(mmap.MADV_HUGEPAGE)
            for start in {0, self.names_at // _HUGE_PAGE * _HUGE_PAGE}:
                memory.madvise(_POPULATE_WRITE, start, min(_HUGE_PAGE, self.size_bytes - start))
        return memory

    def keep_memory(self, memory: mmap.mmap, used: np.ndarray[Any, Any], name_bytes: int) -> np.ndarray[Any, Any]:
        """Prepare memory for the next window, and return the content of the ended window.

        `used` is the content of the ended window. If the content is small, it is copied, and its memory is zeroed and
        reused. If the content is large, it stays in its memory, and new memory is allocated for the next window.
        """
        spare.clear()
        if used.nbytes + name_bytes > _REUSED_BYTES:
            with suppress(OSError):  # no error now, because only the next window needs the memory
                spare[self] = self._new_memory()
            return used
        content, address = used.copy(), addressof(c_char.from_buffer(memory))
        memset(address + HEAD_BYTES, 0, used.nbytes)
        memset(address + self.names_at, 0, name_bytes)
        spare[self] = memory
        return content

    def head(self, facts: dict[str, Any]) -> bytes:
        """Return the bytes of the head of a file, which contain this capacity and the `facts` about the window."""
        text = json.dumps({**facts, **asdict(self)})
        return (MAGIC + b"%d\n" % SCHEMA + text.encode() + b"\n").ljust(HEAD_BYTES, b"\0")

    def events_in(self, memory: Any) -> np.ndarray[Any, Any]:
        """Return the memory for events as an array of EVENT, with used and unused elements."""
        return np.frombuffer(memory, EVENT, self.events, HEAD_BYTES)

    def counters_in(self, memory: Any, number: int) -> np.ndarray[Any, Any]:
        """Return the counters of the first `number` files."""
        return np.frombuffer(memory, COUNTERS, number, HEAD_BYTES)

    def names_in(self, memory: Any) -> tuple[list[str], list[str]]:
        """Return the paths and the modules of the files in the order of their numbers.

        The lists end before the first incomplete entry, which a killed process may leave.
        """
        paths: list[str] = []
        modules: list[str] = []
        memory, offset = memoryview(memory), self.names_at
        while offset + _ENTRY.size <= self.size_bytes:
            number, length = _ENTRY.unpack_from(memory, offset)
            end = offset + _ENTRY.size + length
            if not length or end > self.size_bytes or number >> 1 != len(paths):
                break
            paths.append(os.fsdecode(bytes(memory[offset + _ENTRY.size : end])))
            modules.append(MODULES[number & 1])
            offset = end + -length % 8
        return paths, modules


def capacity_of_head(head: bytes) -> tuple[WindowCapacity, dict[str, Any]]:
    """Return the capacity and all facts in a head; raise ValueError if the bytes are not a valid head."""
    if not head.startswith(MAGIC):
        raise ValueError("it is no file of a window")
    schema, text = head[len(MAGIC) :].split(b"\n")[:2]
    check_schema(int(schema))
    facts = untrusted.json_value(text)
    room = WindowCapacity(str(facts["mode"]), int(facts["events"]), int(facts["files"]))
    if room.mode not in MODES or min(room.events, room.files) < 1:
        raise ValueError("its head is damaged")
    return room, facts


class ProfilerError(JobError):
    """Raised if a window of the profiler cannot be opened, or if a needed window is not open."""

    exit_code = 3


class AttachAnswer(ctypes.Structure):
    """The result of `profiler_attach` in the hook library: ``struct attached`` of hooks.h."""

    _fields_ = (("slots", ctypes.c_int64), ("modules", ctypes.c_int64), ("foreign", ctypes.c_char * 256))


class WindowRequest(ctypes.Structure):
    """The memory and the options for a new window: ``struct window`` of hooks.h."""

    _fields_ = (
        ("events", ctypes.c_void_p),
        ("event_capacity", ctypes.c_uint64),
        ("counters", ctypes.c_void_p),
        ("file_capacity", ctypes.c_uint64),
        ("names", ctypes.c_void_p),
        ("name_capacity", ctypes.c_uint64),
        ("only", ctypes.c_char_p),
    )


class Totals(ctypes.Structure):
    """The totals of an ended window: ``struct totals`` of hooks.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("events", "dropped", "read_bytes", "name_bytes")),
        ("started", ctypes.c_int64),
        ("ended", ctypes.c_int64),
    )


@lru_cache(maxsize=1)
def load_library() -> ctypes.CDLL:
    """Build the hook library if it is missing, and load it; raise ProfilerError if the library cannot be used."""
    try:
        library = ctypes.CDLL(str(build.build_library()))
    except (build.BuildError, OSError) as error:
        raise ProfilerError(f"the profiler cannot be used: {error}") from error
    library.profiler_count.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
    library.profiler_count.restype = None
    return library


def raise_errno(error: int, action: str) -> None:
    """Raise ProfilerError if `error` is not 0; `action` is a text that says what the library could not do."""
    if error:
        raise ProfilerError(f"cannot {action}: {os.strerror(error)}")


def window_content(room: WindowCapacity, memory: Any, number: int) -> dict[str, Any]:
    """Return the content of a window's memory: paths, modules, counters, and the first `number` events.

    In mode trace, the counters are calculated from the events.
    """
    paths, modules = room.names_in(memory)
    if room.mode == "counters":
        return {"paths": paths, "modules": modules, "counters": room.counters_in(memory, len(paths)), "events": None}
    events, counters = room.events_in(memory)[:number], np.zeros(len(paths), COUNTERS)
    load_library().profiler_count(events.ctypes.data, len(events), counters.ctypes.data, len(counters))
    return {"paths": paths, "modules": modules, "counters": counters, "events": events}
