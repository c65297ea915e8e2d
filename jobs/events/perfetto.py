"""Write events as a trace for Perfetto and chrome://tracing (Trace Event Format)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jobs.events.table import Events


class TraceProcess(NamedTuple):
    """A process in a trace for Perfetto, with the tables that contain its events.

    The process shows the threads of all tables, in the order of the tables.
    """

    number: int
    name: str
    tables: Sequence[Events]


def chrome_json(
    processes: Sequence[TraceProcess], first_ns: int, arguments: Sequence[str] = (), name: str = "kind"
) -> Iterator[bytes]:
    """Yield the pieces of a JSON file with all events in Chrome's format; times are microseconds since `first_ns`.

    The name of an event comes from the column `name`. The arguments of an event come from the columns `arguments`,
    without unknown values. Perfetto drops events that begin before 0, and assumes that the events of a thread are
    nested.
    """
    yield b'{"displayTimeUnit": "ms", "traceEvents": [\n'
    for number, event in enumerate(_trace_events(processes, first_ns, arguments, name)):
        yield (b",\n" if number else b"") + json.dumps(event).encode()
    yield b"\n]}\n"


def _trace_events(
    processes: Sequence[TraceProcess], first_ns: int, arguments: Sequence[str], name: str
) -> Iterator[dict[str, Any]]:
    for process, title, tables in processes:
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": title}}
        line_offset = 0
        for table in tables:
            for line, word in enumerate(table.words.get("thread", ()), line_offset):
                ids = {"pid": process, "tid": line}
                yield {"ph": "M", "name": "thread_name", **ids, "args": {"name": word}}
                yield {"ph": "M", "name": "thread_sort_index", **ids, "args": {"sort_index": line}}
            for event, kind, line, start, end, *values in table.rows(
                name, "kind", "thread", "start", "end", *arguments
            ):
                known_values = {key: value for key, value in zip(arguments, values, strict=True) if value >= 0}
                yield {
                    "ph": "X", "name": table.words[name][event], "cat": table.words["kind"][kind], "pid": process,
                    "tid": line_offset + line, "ts": (start - first_ns) / 1e3, "dur": (end - start) / 1e3,
                    "args": {key: table.words[key][value] if key in table.words else value
                             for key, value in known_values.items()},
                }  # fmt: skip
            line_offset += len(table.words.get("thread", ()))
