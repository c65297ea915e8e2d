"""A reader of TensorFlow's traces (``*.xplane.pb``) that needs neither TensorFlow nor protobuf.

The messages are those of tsl/profiler/protobuf/xplane.proto, in protobuf's wire format
(https://protobuf.dev/programming-guides/encoding). The numbers of events and names per file are limited.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTH = {FIXED64: 8, FIXED32: 4}
MORE = 128  # bit of a byte: the number continues in the next byte
MOST_BITS = 70
NUMBER = -1
CUT_OFF, TOO_LONG = "it is cut off", "a number has more than 64 bits"
# For all lines together; an event takes about 100 bytes while it is read.
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
# A plane that another library (ours, too) added to TensorFlow's planes.
ADDED = "/device:CUSTOM:"
PS_PER_NS = 1000
LATEST_NS = 1 << 62


class MalformedError(ValueError):
    """Raised if the bytes are no valid trace."""


@dataclass
class Raw:
    """The content of a trace: arrays with one value per event, and the lists of names that they index."""

    lines: list[str] = field(default_factory=list)  # plane and thread
    ops: list[str] = field(default_factory=list)
    parts: list[tuple[Any, ...]] = field(default_factory=list)  # line, op, start_ns, end_ns, number of the step or -1
    began_ns: int = 0  # Unix time at which the profiler started; 0: not said
    dropped: int = 0  # events beyond `MOST_EVENTS`
    held: int = 0

    @property
    def columns(self) -> list[NDArray[np.int64]]:
        """Return five columns: line, op, start, end (ns since the profiler's start), number of a marked step or -1."""
        nothing = [np.zeros(0, np.int64)] * 5
        return [np.concatenate(each) for each in zip(nothing, *self.parts, strict=True)]


def read_space(data: bytes) -> Raw:
    """Return the content of a trace. Raises MalformedError if it is none."""
    raw = Raw()
    spans = ((start, end) for number, start, end in fields(data, 0, len(data)) if number == PLANES and end != NUMBER)
    planes = list(islice(spans, MOST_PLANES + 1))
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
    """Return the Unix time (ns) at which the profiler started, from the statistics of a plane; 0 if it is not there."""
    begins = (stat for stat in stats if kinds.get(stat.get(METADATA_ID, 0)) == BEGIN)
    began_ns = next((max(stat.get(UNSIGNED, 0), stat.get(SIGNED, 0)) for stat in begins), 0)
    if began_ns > LATEST_NS:
        raise MalformedError("it began at no time")
    return began_ns


def _at_most(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedError(f"it has more than {most:,} {what}")


def _entry(data: bytes, start: int, end: int) -> tuple[int, str]:
    """Return the key and the name in one entry of a plane's metadata."""
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
    name, begin_ns, begins, ends, event_count = "", 0, array("q"), array("q"), 0
    for number, begin, until in fields(data, start, end):
        if number == EVENTS and until != NUMBER:
            event_count += 1
            if raw.held + event_count <= MOST_EVENTS:
                begins.append(begin)
                ends.append(until)
        elif number == TIMESTAMP_NS and until == NUMBER:
            begin_ns = begin
        elif number in (LINE_NAME, DISPLAY_NAME) and until != NUMBER:
            name = _text(data, begin, until) or name
    raw.dropped += event_count - len(begins)
    raw.held += len(begins)
    start_of, end_of = (np.frombuffer(each, np.int64) for each in (begins, ends))
    for at in range(0, len(begins), AT_ONCE):
        edges = start_of[at : at + AT_ONCE], end_of[at : at + AT_ONCE]
        line = np.full(len(edges[0]), len(raw.lines))
        raw.parts.append((line, *_events(padded, edges, begin_ns, names, step)))
    raw.lines.append(f"{plane} {name}".strip())


def _events(padded: Any, edges: tuple[Any, Any], begin_ns: int, names: tuple[Any, Any], step: int) -> tuple[Any, ...]:
    """Return the columns op, start, end and step of some events of a line."""
    start, end = edges
    messages = columns(padded, start, end, (METADATA_ID, OFFSET_PS, DURATION_PS), EVENT_STATS if step else 0)
    at_ps, taken_ps = messages.numbers[OFFSET_PS], messages.numbers[DURATION_PS]
    if begin_ns > LATEST_NS or (at_ps > LATEST_NS).any() or (taken_ps > LATEST_NS).any():
        raise MalformedError("an event is at no time")
    name_index = np.minimum(np.searchsorted(names[0], messages.numbers[METADATA_ID]), len(names[0]) - 1)
    has_name = names[0][name_index] == messages.numbers[METADATA_ID]
    marked = np.full(len(start), -1)
    stats = columns(padded, messages.start, messages.end, (METADATA_ID, UNSIGNED, SIGNED))
    is_step = stats.numbers[METADATA_ID] == step
    number = np.maximum(stats.numbers[UNSIGNED], stats.numbers[SIGNED])[is_step].astype(np.int64)
    marked[messages.owner[is_step]] = np.maximum(number, 0)
    times = (begin_ns + (each // np.uint64(PS_PER_NS)).astype(np.int64) for each in (at_ps, at_ps + taken_ps))
    return np.where(has_name, names[1][name_index], names[1][0]), *times, marked


def _text(data: bytes, start: int, end: int) -> str:
    """Return a name as text, cut to `LONGEST_NAME` bytes."""
    return data[start : min(end, start + LONGEST_NAME)].decode(errors="replace")


class Columns(NamedTuple):
    """Fields of many messages: per field an array of numbers (0 if missing); parts of one field with their message."""

    numbers: dict[int, NDArray[np.uint64]]
    owner: Places
    start: Places
    end: Places


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, begin, end) for each field of bytes, and (number, value, `NUMBER`) for any other field."""
    while at < end:
        tag, at = varint(data, at, end)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield tag >> 3, value, NUMBER
            continue
        if kind == BYTES:
            length, at = varint(data, at, end)
        else:
            length = _width(kind)
        if length > end - at:
            raise MalformedError(CUT_OFF)
        yield (tag >> 3, at, at + length) if kind == BYTES else (tag >> 3, 0, NUMBER)
        at += length


def _width(kind: int) -> int:
    if kind not in WIDTH:
        raise MalformedError(f"a field is of the kind {kind}, which there is not")
    return WIDTH[kind]


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most 64 bits and the offset after it; raise MalformedError if there is none."""
    value = 0
    for shift in range(0, MOST_BITS, 7):
        if at >= end:
            raise MalformedError(CUT_OFF)
        byte = data[at]
        at += 1
        if byte < MORE:
            return (value | byte << shift) & (1 << 64) - 1, at
        value |= (byte & MORE - 1) << shift
    raise MalformedError(TOO_LONG)


def columns(data: NDArray[np.uint8], start: Places, end: Places, numbers: Collection[int], parts: int = 0) -> Columns:
    """Return the number fields `numbers` of many messages at once, and the positions of their byte fields `parts`.

    `data` must go on for ten bytes or more after the last message. The loop runs once per field of the longest message.
    """
    values = {number: np.zeros(len(start), np.uint64) for number in numbers}
    inside: list[tuple[Any, Any, Any]] = [(start[:0], start[:0], start[:0])]
    active = np.flatnonzero(start < end)
    at = start[active]
    while len(active):
        tag, at = _varints(data, at)
        value, behind = _varints(data, at)
        kind = tag & np.uint64(7)
        for width_kind in set(np.unique(kind).tolist()) - {VARINT, BYTES}:
            behind[kind == width_kind] = at[kind == width_kind] + _width(width_kind)
        long = kind == BYTES
        if (value[long] > np.uint64(len(data))).any():
            raise MalformedError(CUT_OFF)
        after = behind + np.where(long, value, np.uint64(0)).astype(np.int64)
        if (after > end[active]).any():
            raise MalformedError(CUT_OFF)
        for number, column in values.items():
            is_field = tag == number << 3 | VARINT
            column[active[is_field]] = value[is_field]
        is_field = tag == parts << 3 | BYTES
        inside.append((active[is_field], behind[is_field], after[is_field]))
        remaining = after < end[active]
        active, at = active[remaining], after[remaining]
    return Columns(values, *(np.concatenate(each) for each in zip(*inside, strict=True)))


def _varints(data: NDArray[np.uint8], at: Places) -> tuple[NDArray[np.uint64], Places]:
    value, goes_on = np.zeros(len(at), np.uint64), np.ones(len(at), bool)
    for shift in range(0, MOST_BITS, 7):
        byte = data[at].astype(np.uint64)
        value |= np.where(goes_on, (byte & np.uint64(MORE - 1)) << np.uint64(shift), np.uint64(0))
        at = at + goes_on
        goes_on = goes_on & (byte >= MORE)
        if not goes_on.any():
            return value, at
    return value, at  # this may be no valid number: `columns` finds numbers that go on behind their message
