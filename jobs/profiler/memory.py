"""The memory of a window: a head, its events or counters, the log of its names; anonymous, or a file that stays."""

from __future__ import annotations

import json
import mmap
import os
import struct
from contextlib import suppress
from ctypes import addressof, c_char, memset
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs.profiler.window import COUNTERS, EVENT, MODES, MODULES
from jobs.system import files, untrusted

HEAD_BYTES = 4096
MAGIC = b"tfio-posix-"
SCHEMA = 3  # of windows in files; the next one when COUNTERS, EVENT or a head changes
_NAME_BYTES = 128  # room for each name; long ones use that of short ones
_REUSED_BYTES = 4 << 20  # of a window that holds more, the memory is not used again
_NORESERVE = 0x4000  # pages take memory when they are first written (mmap(2))
_HUGE_PAGE = 1 << 21
_POPULATE_WRITE = 23  # Linux 5.14
_ENTRY = struct.Struct("<II")
spare: dict[Room, mmap.mmap] = {}  # zeros, for the next window; one, or none


@dataclass(frozen=True)
class Room:
    """How much a window can hold."""

    mode: str
    events: int
    files: int

    @property
    def names_at(self) -> int:
        """Return the offset of the log of names, in bytes; events or counters end there."""
        return HEAD_BYTES + (self.events * EVENT.itemsize if self.mode == "trace" else self.files * COUNTERS.itemsize)

    @property
    def size_bytes(self) -> int:
        """Return the size of it all."""
        return self.names_at + self.files * _NAME_BYTES

    def mapped(self, spill: Path | None) -> mmap.mmap:
        """Return memory of zeros; that of a file `spill`, which must not be there yet, if one is named.

        The file's blocks are reserved: a full disk is an error here and not, later, the end of the process.
        """
        if spill is None:
            return spare.pop(self, None) or self._in_place()
        descriptor = files.opened(spill, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self.size_bytes)
            return mmap.mmap(descriptor, self.size_bytes)
        except OSError:
            files.remove(spill, missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _in_place(self) -> mmap.mmap:
        memory = mmap.mmap(-1, self.size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        with suppress(OSError):  # an older kernel; a page fault in a hook, of a virtual machine, takes microseconds
            memory.madvise(mmap.MADV_HUGEPAGE)
            for at in {0, self.names_at // _HUGE_PAGE * _HUGE_PAGE}:
                memory.madvise(_POPULATE_WRITE, at, min(_HUGE_PAGE, self.size_bytes - at))
        return memory

    def given_back(self, memory: mmap.mmap, used: np.ndarray[Any, Any], name_bytes: int) -> np.ndarray[Any, Any]:
        """Keep the memory of a window that has ended for the next one; returns what it holds (`used`) as it stays.

        Little is copied, and zeroed where it was. Much stays where it is; then the next window's memory is made here.
        """
        spare.clear()
        if used.nbytes + name_bytes > _REUSED_BYTES:
            with suppress(OSError):  # no memory: then it is the next window that cannot be opened
                spare[self] = self._in_place()
            return used
        kept, here = used.copy(), addressof(c_char.from_buffer(memory))
        memset(here + HEAD_BYTES, 0, used.nbytes)
        memset(here + self.names_at, 0, name_bytes)
        spare[self] = memory
        return kept

    def head(self, told: dict[str, Any]) -> bytes:
        """Return the head, so that a file explains itself: this room, and what is `told` of the window."""
        words = json.dumps({**told, **asdict(self)})
        return (MAGIC + b"%d\n" % SCHEMA + words.encode() + b"\n").ljust(HEAD_BYTES, b"\0")

    def events_in(self, memory: Any) -> np.ndarray[Any, Any]:
        """Return all the room for events as an array of EVENT."""
        return np.frombuffer(memory, EVENT, self.events, HEAD_BYTES)

    def counters_in(self, memory: Any, number: int) -> np.ndarray[Any, Any]:
        """Return the counters of the first `number` files."""
        return np.frombuffer(memory, COUNTERS, number, HEAD_BYTES)

    def names_in(self, memory: Any) -> tuple[list[str], list[str]]:
        """Return the paths and the modules of the files, by number; ends at an entry that is not whole."""
        paths: list[str] = []
        modules: list[str] = []
        memory, at = memoryview(memory), self.names_at
        while at + _ENTRY.size <= self.size_bytes:
            number, length = _ENTRY.unpack_from(memory, at)
            end = at + _ENTRY.size + length
            if not length or end > self.size_bytes or number >> 1 != len(paths):
                break
            paths.append(os.fsdecode(bytes(memory[at + _ENTRY.size : end])))
            modules.append(MODULES[number & 1])
            at = end + -length % 8
        return paths, modules


def must_be_known(schema: object) -> None:
    """Raise ValueError for a window in a file that another version wrote."""
    if schema != SCHEMA:
        raise ValueError(f"it is of schema {schema!r:.20}, and this version reads schema {SCHEMA}: profile again")


def room_of(head: bytes) -> tuple[Room, dict[str, Any]]:
    """Read a head: the room, and what it was told; ValueError where it is none."""
    if not head.startswith(MAGIC):
        raise ValueError("it is not what a window leaves")
    schema, words = head[len(MAGIC) :].split(b"\n")[:2]
    must_be_known(int(schema))
    told = untrusted.json_value(words)
    room = Room(str(told["mode"]), int(told["events"]), int(told["files"]))
    if room.mode not in MODES or min(room.events, room.files) < 1:
        raise ValueError("its head is damaged")
    return room, told
