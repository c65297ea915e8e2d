"""The files that a program and all that it starts read and write, seen by the hook library that is preloaded there.

Not seen: programs that are linked statically or change their user (the loader preloads nothing into them), direct
system calls, io_uring, and what a server reads for them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jobs.profiler import build
from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.memory import Room

VARIABLE = "TFIO_FILES"
FILES = 1 << 20  # of one process, as in preload.c
_ROOM = Room("counters", 1, FILES)


class Seen(NamedTuple):
    """The files that were read and written, as they were named, and in how many processes."""

    read: set[Path]
    written: set[Path]
    processes: int
    full: bool  # whether a process had more files than there was room for


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that make a program leave what it reads in a folder. Raises ProfilerError."""
    try:
        library = build.build()
    except build.BuildError as error:
        raise ProfilerError(f"the profiler cannot be used: {error}") from error
    before = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library} {before}".strip(), VARIABLE: str(folder)}


def seen(folder: Path) -> Seen:
    """Return what processes have left in a folder."""
    read: set[Path] = set()
    written: set[Path] = set()
    windows = sorted(folder.glob("*.window"))
    full = False
    for window in windows:
        files = list(_files(window))
        full |= len(files) >= FILES
        read |= {path for path, reads, _ in files if reads}
        written |= {path for path, _, writes in files if writes}
    return Seen(read, written, len(windows), full)


def _files(window: Path) -> Iterator[tuple[Path, bool, bool]]:
    """Yield each file of a process: its path, whether it was read or mapped, whether it was written or renamed."""
    with window.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        paths, _ = _ROOM.names_in(memory)
        counters = _ROOM.counters_in(memory, len(paths)).copy()
    for path, row in zip(paths, counters, strict=True):
        writes = row["writes"] or row["rename_targets"]
        if path.startswith("/"):
            yield Path(path), bool(row["reads"] or row["mmaps"]), bool(writes)
