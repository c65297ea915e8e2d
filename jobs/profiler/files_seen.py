"""Record which files a program and its child processes read and write, by a preloaded hook library.

The library cannot record programs that are linked statically or that change their user, because the loader preloads no
library into such programs. The library also does not record direct system calls, io_uring, and the reads of a server on
behalf of the program.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jobs.events.posix_window import Window, add_rows
from jobs.profiler import build
from jobs.profiler.hook_library import ProfilerError, WindowCapacity

VARIABLE = "TFIO_FILES"
FILES = 1 << 16  # largest number of files per process; equal to FILES in preload.c
_ROOM = WindowCapacity("counters", 1, FILES)


class FilesSeen(NamedTuple):
    """The files that processes have read and written, and the number of processes.

    A file has the name that the process used.
    """

    read: set[Path]
    written: set[Path]
    processes: int


def recording_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables that make a program record its files in `folder`.

    Raises ProfilerError if the hook library cannot be built.
    """
    try:
        library = build.build_library()
    except build.BuildError as error:
        raise ProfilerError(f"the profiler cannot be used: {error}") from error
    preloaded = os.environ.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library} {preloaded}".strip(), VARIABLE: str(folder)}


def read_files_seen(folder: Path) -> FilesSeen:
    """Return the files that processes have recorded in a folder."""
    read: set[Path] = set()
    written: set[Path] = set()
    processes = [_rows_of_process(window) for window in folder.glob("*.window")]
    for paths, _, rows in processes:
        reads, writes = (rows["reads"] > 0) | (rows["mmaps"] > 0), (rows["writes"] > 0) | (rows["rename_targets"] > 0)
        uses = [(Path(path), *flags) for path, *flags in zip(paths, reads, writes, strict=True) if path.startswith("/")]
        read |= {path for path, is_read, _ in uses if is_read}
        written |= {path for path, _, is_written in uses if is_written}
    return FilesSeen(read, written, len(processes))


def window_of_files(folder: Path, files: Iterable[Path], started_ns: int, ended_ns: int) -> Window:
    """Return one window with the calls of all recorded processes on `files`.

    The processes recorded their calls in `folder`. In the window, a file has the name that it has in `files`, even if a
    process used another name. Raises ProfilerError if no process has recorded calls.
    """
    names = {os.path.realpath(file): str(file) for file in files}
    processes = [_rows_of_process(window) for window in folder.glob("*.window")]
    if not processes:
        raise ProfilerError("the hook library recorded no process (is the program linked statically?)")
    rows = np.concatenate([counters for *_, counters in processes])
    file_names = [names.get(os.path.realpath(path)) for paths, *_ in processes for path in paths]
    modules = [module for _, modules, _ in processes for module in modules]
    indices: dict[tuple[str, str], int] = {}
    file_of_row = [
        indices.setdefault((name, module), len(indices)) if name else -1
        for name, module in zip(file_names, modules, strict=True)
    ]
    return Window(
        mode="counters",
        started_ns=started_ns,
        ended_ns=ended_ns,
        process=os.getpid(),
        paths=[name for name, _ in indices],
        modules=[module for _, module in indices],
        counters=add_rows(rows, np.array(file_of_row), len(indices)),
        events=None,
        dropped=sum(len(paths) >= FILES for paths, *_ in processes),
        read_bytes=int(rows["bytes_read"].sum()),
        kernel_read_bytes=None,
    )


def _rows_of_process(window: Path) -> tuple[list[str], list[str], np.ndarray[Any, Any]]:
    """Return the paths, the modules (POSIX or STDIO) and the counters of all files that one process recorded."""
    with window.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        paths, modules = _ROOM.names_in(memory)
        return paths, modules, _ROOM.counters_in(memory, len(paths)).copy()
