"""A window as a Chrome trace (Trace Event Format): one line a file, in the order of the files' first calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobs.profiler.library import ProfilerError
from jobs.profiler.window import OPERATIONS
from jobs.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jobs.profiler.window import Window

_AT_ONCE = 10_000  # events as Python's objects: several hundred bytes each


def write(path: Path, window: Window) -> None:
    """Write the events, an event a line. Raises ProfilerError: the window has counters only."""
    if window.events is None:
        raise ProfilerError("a window of counters has no events to draw", "profile in the mode trace")
    with files.whole(path, durable=False) as file:
        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
        for place, event in enumerate(_events(window)):
            file.write((b",\n" if place else b"") + json.dumps(event).encode())
        file.write(b"\n]}\n")


def _events(window: Window) -> Iterator[dict[str, Any]]:
    """Yield a name for each line, then the calls; times are microseconds from the start of the window."""
    for place, name in enumerate(window.paths):
        yield {"ph": "M", "name": "thread_name", "pid": window.process, "tid": place, "args": {"name": name}}
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            "pid": window.process,
            "tid": place,
            "args": {"sort_index": place},
        }
    assert window.events is not None  # noqa: S101 - `write` has asked
    rows = (row for at in range(0, len(window.events), _AT_ONCE) for row in window.events[at : at + _AT_ONCE].tolist())
    for start, end, offset, length, returned, thread, place, _, error, operation in rows:
        told = {"offset": offset, "length": length, "returned": returned, "thread": thread, "errno": error}
        yield {
            "ph": "X",
            "name": OPERATIONS[operation],
            "ts": (start - window.started_ns) / 1e3,
            "dur": (end - start) / 1e3,
            "pid": window.process,
            "tid": place,
            "args": {key: value for key, value in told.items() if value >= 0 and (value or key != "errno")},
        }
