"""A time log for other programs: the nine columns that NERSC's scripts read, and Chrome's trace events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from analysis.text.plain import one_line
from analysis.text.spreadsheet import ACTIVE
from analysis.timelog.log import ACTIONS, PHASES, UNKNOWN, Log
from analysis.timelog.nersc_logs import COLUMNS

AT_ONCE = 10_000
# What their scripts for HEPCNNB look for; other actions keep our words.
NERSC = {
    "read": "HDF5 File Read", "load": "Load File", "next": "Call to Next Batch", "step": "Training Iteration",
    "shuffle": "Global Shuffle", "checkpoint": "Checkpoint Listener",
}  # fmt: skip


def csv(log: Log) -> Iterator[bytes]:
    """Yield a log as NERSC's CSV: seconds of Unix time; nothing is quoted, so no text has a comma."""
    yield (", ".join(COLUMNS) + "\n").encode()
    told = [NERSC.get(each, each) for each in ACTIONS] if log.ours else log.actions
    actions, callers = ([_plain(each) for each in words] for words in (told, log.callers))
    for row in _rows(log):
        who = f"{row['epoch']}, {row['rank']}, {callers[row['caller']]}, {actions[row['action']]}"
        when = ", ".join(_seconds(row[key]) for key in ("start_ns", "end_ns", "taken_ns"))
        yield f"{who}, {when}, {log.streams[row['stream']].process}, thread {row['thread']}\n".encode()


def chrome(log: Log) -> Iterator[bytes]:
    """Yield a log as a trace for chrome://tracing and Perfetto: a process each; microseconds since the first start."""
    return trace_events(_events(log))


def trace_events(events: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield a file of Chrome's trace events."""
    yield b'{"displayTimeUnit": "ms", "traceEvents": [\n'
    for place, event in enumerate(events):
        yield (b",\n" if place else b"") + json.dumps(event).encode()
    yield b"\n]}\n"


def _events(log: Log) -> Iterator[Mapping[str, Any]]:
    for place in np.unique(log.events.stream).tolist():
        stream = log.streams[place]
        name = {"name": f"rank {stream.rank} {stream.host} {stream.process}"}
        yield {"ph": "M", "name": "process_name", "pid": place, "args": name}
    start_ns = min(stream.start_ns for stream in log.streams)
    told: Mapping[str, Callable[[int], Any]] = {"phase": PHASES.__getitem__, "file": log.files.__getitem__}
    for row in _rows(log):
        known = ((key, row[key]) for key in ("phase", "epoch", "step", "size_bytes", "file") if row[key] != UNKNOWN)
        yield {
            "ph": "X", "name": log.actions[row["action"]], "pid": row["stream"], "tid": row["thread"],
            "ts": (row["start_ns"] - start_ns) / 1e3, "dur": (row["end_ns"] - row["start_ns"]) / 1e3,
            "args": {key: told.get(key, int)(value) for key, value in known},
        }  # fmt: skip


def _rows(log: Log) -> Iterator[dict[str, int]]:
    """Yield events as numbers by column; not all at once, for Python's numbers are large."""
    for at in range(0, log.events.number, AT_ONCE):
        part = log.events.at(slice(at, at + AT_ONCE))
        for row in zip(*(column.tolist() for column in part), strict=True):
            yield dict(zip(part._fields, row, strict=True))


def _seconds(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09}"


def _plain(text: str) -> str:
    """Return a text that ends no cell, and that no spreadsheet takes for a formula."""
    line = one_line(text).replace(",", ";").replace('"', "'")
    return f"'{line}" if line.startswith(ACTIVE) else line
