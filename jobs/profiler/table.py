"""A window as a file: NumPy's arrays beside a JSON head in one .npz; and what a killed process left in its spill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypedDict

import numpy as np

from jobs.model import reading
from jobs.profiler.hook_library import ProfilerError, fitting, seen
from jobs.profiler.memory import HEAD_BYTES, SCHEMA, must_be_known, room_of
from jobs.profiler.window import COUNTERS, EVENT, MODULES, OPERATIONS, Window
from jobs.system import files, untrusted

LARGEST_BYTES = 4 << 30
_ENDS = ("meta_end", "read_end", "write_end")
_LARGEST_HEAD_BYTES = 1 << 20
_ARCHIVE = b"PK"  # of zip, and so of .npz


class _Head(TypedDict):
    """What is kept of a window beside its arrays."""

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


def head(window: Window) -> dict[str, Any]:
    """Return what is kept of a window beside its arrays."""
    return {key: getattr(window, key) for key in _Head.__annotations__}


def _checked_head(head: dict[str, Any]) -> dict[str, Any]:
    """Return what `head` made of a window; ValueError where it is damaged."""
    if fault := reading.fault(head, _Head):
        raise ValueError(f"its head is damaged: {fault}")
    return {key: head[key] for key in _Head.__annotations__}


def write(path: Path, window: Window) -> None:
    """Write ``head`` (JSON), ``paths`` (each ended by a NUL), ``stdio``, ``counters``, ``events``, ``marks``."""
    facts = {"schema": SCHEMA, "operations": OPERATIONS, **head(window)}
    names = b"".join(os.fsencode(name) + b"\0" for name in window.paths)
    arrays: dict[str, Any] = {
        "head": np.frombuffer(json.dumps(facts).encode(), np.uint8),
        "paths": np.frombuffer(names, np.uint8),
        "stdio": np.array([module == "STDIO" for module in window.modules], bool),
        "counters": window.counters,
    }
    if window.events is not None:
        arrays["events"] = window.events
    if window.marks:
        arrays["marks"] = np.array(window.marks, np.int64)
    with files.whole(path) as file:
        np.savez(file, **arrays)


def read(path: Path) -> Window:
    """Read what `write` wrote, or a spill; ProfilerError: it is neither, damaged or too large."""
    path = files.named(path)
    try:
        with untrusted.opened(path, LARGEST_BYTES) as file:
            return _table(file) if file.read(len(_ARCHIVE)) == _ARCHIVE else _spill(file)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> ProfilerError:
    """Return the error for a file that is no profile."""
    hint = "name what Profile.save, a spill or Darshan has written"
    return ProfilerError(f"{path} is no profile that can be read: {error}", hint)


def _table(file: BinaryIO) -> Window:
    file.seek(0)
    arrays = untrusted.arrays(file, LARGEST_BYTES)
    facts = untrusted.json_value(_checked(arrays["head"], np.uint8)[:_LARGEST_HEAD_BYTES].tobytes())
    must_be_known(facts["schema"])
    if tuple(facts["operations"]) != OPERATIONS:
        raise ValueError("its operations are not those of its schema")
    paths = [os.fsdecode(name) for name in _checked(arrays["paths"], np.uint8).tobytes().split(b"\0")[:-1]]
    modules = [MODULES[int(stdio)] for stdio in _checked(arrays["stdio"], np.bool_)]
    counters = _checked(arrays["counters"], COUNTERS)
    events = fitting(_checked(arrays["events"], EVENT), len(paths)) if "events" in arrays else None
    if not len(paths) == len(modules) == len(counters):
        raise ValueError("its members do not fit together")
    marks = tuple(_checked(arrays["marks"], np.int64).tolist()) if "marks" in arrays else ()
    return Window(paths=paths, modules=modules, counters=counters, events=events, marks=marks, **_checked_head(facts))


def _checked(array: np.ndarray[Any, Any], kind: Any) -> np.ndarray[Any, Any]:
    if array.dtype != kind or array.ndim != 1:
        raise ValueError(f"a member is {array.dtype} of {array.ndim} dimensions")
    return array


def _spill(file: BinaryIO) -> Window:
    """Read the memory of a window; where nobody ended it, what it held when its process did."""
    file.seek(0)
    room, facts = room_of(file.read(HEAD_BYTES))
    if os.fstat(file.fileno()).st_size != room.size_bytes:
        raise ValueError("it is cut off")
    memory = np.memmap(file, np.uint8, "r", shape=(room.size_bytes,))
    number = 0
    if room.mode == "trace":
        whole = np.flatnonzero(room.events_in(memory)["operation"])
        number = int(whole[-1]) + 1 if len(whole) else 0
    held = seen(room, memory, number)
    if room.mode == "trace":
        held["events"] = held["events"][whole]
    if "ended" not in facts:
        ends = [held["events"]["end"]] if number else [held["counters"][each] for each in _ENDS]
        ended_ns = max([facts["started_ns"], *(int(each.max()) for each in ends if len(each))])
        facts |= {"ended_ns": ended_ns, "dropped": 0, "read_bytes": 0, "kernel_read_bytes": None, "ended": False}
        facts |= {"beside": "", "device_bytes": None}  # nobody has looked
    return Window(**_checked_head(facts), **held)
