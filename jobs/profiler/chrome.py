"""A window as a Chrome trace (Trace Event Format): a line for each file and thread, files by their first calls.

Viewers take calls on one line for nested, and drop one that is not; those of one thread always are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.window import OPERATIONS, Window
from jobs.system import files

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
    events = window.events
    assert events is not None  # noqa: S101 - `write` has asked
    lines, line = np.unique(np.stack([events["file"], events["thread"]]), axis=1, return_inverse=True)
    for place, file in enumerate(lines[0].tolist()):
        for name, args in (("thread_name", {"name": window.paths[file]}), ("thread_sort_index", {"sort_index": place})):
            yield {"ph": "M", "name": name, "pid": window.process, "tid": place, "args": args}
    parts = (slice(at, at + _AT_ONCE) for at in range(0, len(events), _AT_ONCE))
    rows = (row for part in parts for row in zip(line.ravel()[part].tolist(), events[part].tolist(), strict=True))
    for place, (start, end, offset, length, returned, thread, _, _, error, operation) in rows:
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
