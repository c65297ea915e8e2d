"""TensorFlow's events as Chrome's trace events, for Perfetto: a process for each file, a line for each thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.timelog.export import AT_ONCE, trace_events
from analysis.traces.tensorflow_events import KINDS, Runtime


def chrome(read: Sequence[Runtime]) -> Iterator[bytes]:
    """Yield the traces of a run, microseconds since the first event or step of all: Perfetto drops what is before 0."""
    first = min(int(moments.min()) for each in read for moments in (each.start, each.steps.start))
    return trace_events(event for place, each in enumerate(read) for event in _events(place, each, first))


def _events(place: int, runtime: Runtime, first: int) -> Iterator[Mapping[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": place, "args": {"name": runtime.name}}
    for line, name in enumerate([*runtime.lines, "steps"]):
        yield {"ph": "M", "name": "thread_name", "pid": place, "tid": line, "args": {"name": name}}
    for step in zip(*(each.tolist() for each in runtime.steps), strict=True):
        number, start, end = step
        yield _whole(f"step {number}", place, len(runtime.lines), (start - first, end - start), "step")
    columns = (runtime.line, runtime.op, runtime.category, runtime.start, runtime.end)
    for at in range(0, len(runtime.op), AT_ONCE):
        for line, op, kind, start, end in zip(*(each[at : at + AT_ONCE].tolist() for each in columns), strict=True):
            yield _whole(runtime.ops[op], place, line, (start - first, end - start), KINDS[kind])


def _whole(name: str, process: int, line: int, times_ns: tuple[int, int], kind: str) -> Mapping[str, Any]:
    ts, dur = (each / 1e3 for each in times_ns)
    return {"ph": "X", "name": name, "cat": kind, "pid": process, "tid": line, "ts": ts, "dur": dur}
