"""TensorFlow's own traces (``*.xplane.pb``), read without TensorFlow and without protobuf.

The messages are those of tsl/profiler/protobuf/xplane.proto. Bytes, events and names of a file are bounded.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.records.readable import content
from analysis.traces.wire import NUMBER, MalformedError, columns, fields

MOST_BYTES = 1 << 29
# Of all lines together; some 100 bytes each while they are read.
MOST_EVENTS = 4_000_000
MOST_NAMES, LONGEST_NAME = 1_000_000, 1000
MOST_PLANES, MOST_LINES, MOST_STATS = 10_000, 100_000, 1_000
AT_ONCE = 100_000
# Fields of the messages.
PLANES = 1
NAME, LINES, EVENT_METADATA, STAT_METADATA, STATS = 2, 3, 4, 5, 6
LINE_NAME, TIMESTAMP_NS, EVENTS, DISPLAY_NAME = 2, 3, 4, 11
METADATA_ID, OFFSET_PS, DURATION_PS, EVENT_STATS = 1, 2, 3, 4
KEY, VALUE = 1, 2
UNSIGNED, SIGNED = 3, 4
STEP, BEGIN, ENVIRONMENT = "step_num", "profile_start_time", "Task Environment"
# A plane that somebody has added to show something else beside TensorFlow's.
ADDED = "/device:CUSTOM:"
PS_PER_NS = 1000
LATEST_NS = 1 << 62


@dataclass
class Raw:
    """What a trace holds: arrays with a place for each event, and the names that they refer to."""

    lines: list[str] = field(default_factory=list)  # plane and thread
    ops: list[str] = field(default_factory=list)
    parts: list[tuple[Any, ...]] = field(default_factory=list)  # line, op, start_ns, end_ns, number of the step or -1
    began_ns: int = 0  # Unix time at which the profiler started; 0: not said
    dropped: int = 0  # events beyond `MOST_EVENTS`
    held: int = 0

    @property
    def columns(self) -> list[NDArray[np.int64]]:
        """Return line, op, start and end (ns, from the start of the profiler), and the step that an event marks."""
        nothing = [np.zeros(0, np.int64)] * 5
        return [np.concatenate(each) for each in zip(nothing, *self.parts, strict=True)]


def read(path: Path) -> Raw:
    """Return the events of a file. Raises MalformedError; UnreadableError: no regular file, or too large."""
    data = content(path, MOST_BYTES)
    raw = Raw()
    found = ((start, end) for number, start, end in fields(data, 0, len(data)) if number == PLANES and end != NUMBER)
    planes = list(islice(found, MOST_PLANES + 1))
    if not planes:
        raise MalformedError("it holds no plane")
    _at_most(len(planes), MOST_PLANES, "planes")
    padded = np.frombuffer(data + bytes(32), np.uint8)
    for start, end in planes:
        _plane(raw, data, padded, start, end)
    return raw


def _plane(raw: Raw, data: bytes, padded: NDArray[np.uint8], start: int, end: int) -> None:
    name = ""
    lines: list[tuple[int, int]] = []
    stats: list[tuple[int, int]] = []
    named: dict[int, dict[int, str]] = {EVENT_METADATA: {}, STAT_METADATA: {}}
    for number, begin, until in fields(data, start, end):
        if until == NUMBER:
            continue
        if number == NAME:
            name = _text(data, begin, until)
        elif number in named:
            key, text = _entry(data, begin, until)
            named[number][key] = text
            _at_most(len(named[number]) + len(raw.ops), MOST_NAMES, "names")
        elif number == LINES:
            lines.append((begin, until))
            _at_most(len(lines) + len(raw.lines), MOST_LINES, "threads")
        elif number == STATS and len(stats) < MOST_STATS:
            stats.append((begin, until))
    events, kinds = named.values()
    if name == ENVIRONMENT:
        raw.began_ns = _began_ns([dict(each[:2] for each in fields(data, *stat)) for stat in stats], kinds)
    if not name.startswith(ADDED):
        step = next((key for key, text in kinds.items() if text == STEP), 0)
        keys = np.array([*events, 0], np.uint64)
        first, order = len(raw.ops), np.argsort(keys)
        raw.ops += [*events.values(), "?"]
        for line in lines:
            _line(raw, name, (data, padded, *line), (keys[order], order + first), step)


def _began_ns(stats: Sequence[Mapping[int, int]], kinds: Mapping[int, str]) -> int:
    """Return the Unix time at which the profiler started, by the statistics of a plane; 0 where they do not say."""
    begins = (stat for stat in stats if kinds.get(stat.get(METADATA_ID, 0)) == BEGIN)
    found = next((max(stat.get(UNSIGNED, 0), stat.get(SIGNED, 0)) for stat in begins), 0)
    if found > LATEST_NS:
        raise MalformedError("it began at no time")
    return found


def _at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedError(f"it has more than {most:,} {what}")


def _entry(data: bytes, start: int, end: int) -> tuple[int, str]:
    """Return the key and the name of an entry of a plane's metadata."""
    key, name = 0, ""
    for number, begin, until in fields(data, start, end):
        if number == KEY and until == NUMBER:
            key = begin
        elif number == VALUE and until != NUMBER:
            inner = fields(data, begin, until)
            name = next((_text(data, *part) for place, *part in inner if place == NAME and part[1] != NUMBER), "")
    return key, name


def _line(
    raw: Raw, plane: str, where: tuple[bytes, NDArray[np.uint8], int, int], names: tuple[Any, Any], step: int
) -> None:
    data, padded, start, end = where
    name, begin_ns, begins, ends, seen = "", 0, array("q"), array("q"), 0
    for number, begin, until in fields(data, start, end):
        if number == EVENTS and until != NUMBER:
            seen += 1
            if raw.held + seen <= MOST_EVENTS:
                begins.append(begin)
                ends.append(until)
        elif number == TIMESTAMP_NS and until == NUMBER:
            begin_ns = begin
        elif number in (LINE_NAME, DISPLAY_NAME) and until != NUMBER:
            name = _text(data, begin, until) or name
    raw.dropped += seen - len(begins)
    raw.held += len(begins)
    start_of, end_of = (np.frombuffer(each, np.int64) for each in (begins, ends))
    for at in range(0, len(begins), AT_ONCE):
        edges = start_of[at : at + AT_ONCE], end_of[at : at + AT_ONCE]
        line = np.full(len(edges[0]), len(raw.lines))
        raw.parts.append((line, *_events(padded, edges, begin_ns, names, step)))
    raw.lines.append(f"{plane} {name}".strip())


def _events(padded: Any, edges: tuple[Any, Any], begin_ns: int, names: tuple[Any, Any], step: int) -> tuple[Any, ...]:
    """Return op, start, end and step of some events of a line."""
    start, end = edges
    found = columns(padded, start, end, (METADATA_ID, OFFSET_PS, DURATION_PS), EVENT_STATS if step else 0)
    at_ps, taken_ps = found.numbers[OFFSET_PS], found.numbers[DURATION_PS]
    if begin_ns > LATEST_NS or (at_ps > LATEST_NS).any() or (taken_ps > LATEST_NS).any():
        raise MalformedError("an event is at no time")
    place = np.minimum(np.searchsorted(names[0], found.numbers[METADATA_ID]), len(names[0]) - 1)
    known = names[0][place] == found.numbers[METADATA_ID]
    marked = np.full(len(start), -1)
    stats = columns(padded, found.start, found.end, (METADATA_ID, UNSIGNED, SIGNED))
    here = stats.numbers[METADATA_ID] == step
    number = np.maximum(stats.numbers[UNSIGNED], stats.numbers[SIGNED])[here].astype(np.int64)
    marked[found.owner[here]] = np.maximum(number, 0)
    times = (begin_ns + (each // np.uint64(PS_PER_NS)).astype(np.int64) for each in (at_ps, at_ps + taken_ps))
    return np.where(known, names[1][place], names[1][0]), *times, marked


def _text(data: bytes, start: int, end: int) -> str:
    """Return the beginning of a name as text."""
    return data[start : min(end, start + LONGEST_NAME)].decode(errors="replace")
