"""The hook library as Python calls it, and what a window's memory says with its help."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any

import numpy as np

from jobs.errors import JobError
from jobs.profiler import build
from jobs.profiler.memory import Room
from jobs.profiler.window import COUNTERS, OPERATIONS


class ProfilerError(JobError):
    """A window cannot be opened, or was not."""

    exit_code = 3


class Attached(ctypes.Structure):
    """As in hooks.h."""

    _fields_ = (("slots", ctypes.c_int64), ("modules", ctypes.c_int64), ("foreign", ctypes.c_char * 256))


class Asked(ctypes.Structure):
    """``struct window`` of hooks.h."""

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
    """As in hooks.h."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("events", "dropped", "read_bytes", "name_bytes")),
        ("started", ctypes.c_int64),
        ("ended", ctypes.c_int64),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Load the hook library, built now where it is not there; ProfilerError where it cannot be."""
    try:
        library = ctypes.CDLL(str(build.build()))
    except (build.BuildError, OSError) as error:
        raise ProfilerError(f"the profiler cannot be used: {error}") from error
    library.profiler_count.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
    library.profiler_count.restype = None
    return library


def must(error: int, what: str) -> None:
    """Raise ProfilerError for an errno that the library has answered."""
    if error:
        raise ProfilerError(f"cannot {what}: {os.strerror(error)}")


def fitting(events: np.ndarray[Any, Any], files: int) -> np.ndarray[Any, Any]:
    """Return the events; ValueError where one is of a file or an operation that there is not."""
    if len(events) and not (
        0 <= events["file"].min() <= events["file"].max() < files and events["operation"].max() < len(OPERATIONS)
    ):
        raise ValueError("its events are not those of its files")
    return events


def seen(room: Room, memory: Any, number: int) -> dict[str, Any]:
    """Return what a window's memory holds: files, counters, the first `number` events; ValueError: it is damaged."""
    paths, modules = room.names_in(memory)
    if room.mode == "counters":
        return {"paths": paths, "modules": modules, "counters": room.counters_in(memory, len(paths)), "events": None}
    events, counters = fitting(room.events_in(memory)[:number], len(paths)), np.zeros(len(paths), COUNTERS)
    library().profiler_count(events.ctypes.data, len(events), counters.ctypes.data, len(counters))
    return {"paths": paths, "modules": modules, "counters": counters, "events": events}
