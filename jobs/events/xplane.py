"""Read TensorFlow's traces (``*.xplane.pb``) without the packages TensorFlow and protobuf.

The format of the messages is defined in tsl/profiler/protobuf/xplane.proto. The messages are stored in protobuf's wire
format (https://protobuf.dev/programming-guides/encoding). The numbers of events and names per file are limited.
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
MORE = 128  # a byte with this bit is continued in the next byte
MOST_BITS = 70
NUMBER = -1
CUT_OFF, TOO_LONG = "it is cut off", "a number has more than 64 bits"
# Largest number of events in all lines together; an event takes about 100 bytes of memory while the file is read.
MOST_EVENTS = 4_000_000
MOST_NAMES, LONGEST_NAME = 1_000_000, 1000
MOST_PLANES, MOST_LINES, MOST_STATS = 10_000, 100_000, 1_000
AT_ONCE = 100_000
# Numbers of the fields in the protobuf messages.
PLANES = 1
NAME, LINES, EVENT_METADATA, STAT_METADATA, STATS = 2, 3, 4, 5, 6
LINE_NAME, TIMESTAMP_NS, EVENTS, DISPLAY_NAME = 2, 3, 4, 11
METADATA_ID, OFFSET_PS, DURATION_PS, EVENT_STATS = 1, 2, 3, 4
KEY, VALUE = 1, 2
UNSIGNED, SIGNED = 3, 4
STEP, BEGIN, ENVIRONMENT = "step_num", "profile_start_time", "Task Environment"
# Prefix of planes that other libraries, such as `jobs.profiler`, add to TensorFlow's trace.
ADDED = "/device:CUSTOM:"
PS_PER_NS = 1000
LATEST_NS = 1 << 62


class MalformedError(ValueError):
    """Raised if the bytes are not a valid trace."""


@dataclass
class RawTrace:
    """The content of a trace: arrays with one value per event, and lists of names to which the arrays refer."""

    lines: list[str] = field(default_factory=list)  # names of the lines: the plane and the thread
    ops: list[str] = field(default_factory=list)  # names of the operations
    # Arrays with the line, the op, the start in ns, the end in ns, and the step number (-1 if the event marks no step).
    parts: list[tuple[Any, ...]] = field(default_factory=list)
    began_ns: int = 0  # Unix time at which the profiler started; 0 if unknown
    dropped: int = 0  # number of events that were left out because of the limit `MOST_EVENTS`
    event_count: int = 0  # number of events in `parts`

    @property
    def columns(self) -> list[NDArray[np.int64]]:
        """Return five columns: line, op, start, end, and step number (-1 if the event marks no step).

        Starts and ends are in ns since the start of the profiler.
        """
        empty = [np.zeros(0, np.int64)] * 5
        return [np.concatenate(arrays) for arrays in zip(empty, *self.parts, strict=True)]


def read_space(data: bytes) -> RawTrace:
    """Return the content of a trace; raise MalformedError if the bytes are not a trace."""
    raw = RawTrace()
    spans = (
        (start, end) for number, start, end in message_fields(data, 0, len(data)) if number == PLANES and end != NUMBER
    )
    planes = list(islice(spans, MOST_PLANES + 1))
    if not planes:
        raise MalformedError("it has no plane")
    _require_at_most(len(planes), MOST_PLANES, "planes")
    padded = np.frombuffer(data + bytes(32), np.uint8)
    for start, end in planes:
        _read_plane(raw, data, padded, start, end)
    return raw


def _read_plane(raw: RawTrace, data: bytes, padded: NDArray[np.uint8], start: int, end: int) -> None:
    name = ""
    lines: list[tuple[int, int]] = []
    stats: list[tuple[int, int]] = []
    texts: dict[int, dict[int, str]] = {EVENT_METADATA: {}, STAT_METADATA: {}}
    for number, begin, until in message_fields(data, start, end):
        if until == NUMBER:
            continue
        if number == NAME:
            name = _text(data, begin, until)
        elif number in texts:
            key, text = _read_entry(data, begin, until)
            texts[number][key] = text
            _require_at_most(len(texts[number]) + len(raw.ops), MOST_NAMES, "names")
        elif number == LINES:
            lines.append((begin, until))
            _require_at_most(len(lines) + len(raw.lines), MOST_LINES, "threads")
        elif number == STATS and len(stats) < MOST_STATS:
            stats.append((begin, until))
    events, kinds = texts.values()
    if name == ENVIRONMENT:
        raw.began_ns = _find_start_ns(
            [dict(field[:2] for field in message_fields(data, *stat)) for stat in stats], kinds
        )
    if not name.startswith(ADDED):
        step = next((key for key, text in kinds.items() if text == STEP), 0)
        keys = np.array([*events, 0], np.uint64)
        first, order = len(raw.ops), np.argsort(keys)
        raw.ops += [*events.values(), "?"]
        for line in lines:
            _read_line(raw, name, (data, padded, *line), (keys[order], order + first), step)


def _find_start_ns(stats: Sequence[Mapping[int, int]], kinds: Mapping[int, str]) -> int:
    """Return the Unix time in ns at which the profiler started, from the statistics of a plane; 0 if missing."""
    begins = (stat for stat in stats if kinds.get(stat.get(METADATA_ID, 0)) == BEGIN)
    began_ns = next((max(stat.get(UNSIGNED, 0), stat.get(SIGNED, 0)) for stat in begins), 0)
    if began_ns > LATEST_NS:
        raise MalformedError("its start time is too large")
    return began_ns


def _require_at_most(count: int, limit: int, noun: str) -> None:
    if count > limit:
        raise MalformedError(f"it has more than {limit:,} {noun}")


def _read_entry(data: bytes, start: int, end: int) -> tuple[int, str]:
    """Return the key and the name from one entry of a plane's metadata."""
    key, name = 0, ""
    for number, begin, until in message_fields(data, start, end):
        if number == KEY and until == NUMBER:
            key = begin
        elif number == VALUE and until != NUMBER:
            inner = message_fields(data, begin, until)
            name = next(
                (_text(data, *part) for field_number, *part in inner if field_number == NAME and part[1] != NUMBER), ""
            )
    return key, name


def _read_line(
    raw: RawTrace, plane: str, location: tuple[bytes, NDArray[np.uint8], int, int], names: tuple[Any, Any], step: int
) -> None:
    data, padded, start, end = location
    name, begin_ns, begins, ends, event_count = "", 0, array("q"), array("q"), 0
    for number, begin, until in message_fields(data, start, end):
        if number == EVENTS and until != NUMBER:
            event_count += 1
            if raw.event_count + event_count <= MOST_EVENTS:
                begins.append(begin)
                ends.append(until)
        elif number == TIMESTAMP_NS and until == NUMBER:
            begin_ns = begin
        elif number in (LINE_NAME, DISPLAY_NAME) and until != NUMBER:
            name = _text(data, begin, until) or name
    raw.dropped += event_count - len(begins)
    raw.event_count += len(begins)
    start_of, end_of = (np.frombuffer(offsets, np.int64) for offsets in (begins, ends))
    for first in range(0, len(begins), AT_ONCE):
        edges = start_of[first : first + AT_ONCE], end_of[first : first + AT_ONCE]
        line = np.full(len(edges[0]), len(raw.lines))
        raw.parts.append((line, *_read_events(padded, edges, begin_ns, names, step)))
    raw.lines.append(f"{plane} {name}".strip())


def _read_events(
    padded: Any, edges: tuple[Any, Any], begin_ns: int, names: tuple[Any, Any], step: int
) -> tuple[Any, ...]:
    """Return the columns op, start, end and step of events of one line; `edges` are the positions of the events."""
    start, end = edges
    messages = message_columns(padded, start, end, (METADATA_ID, OFFSET_PS, DURATION_PS), EVENT_STATS if step else 0)
    offset_ps, duration_ps = messages.numbers[OFFSET_PS], messages.numbers[DURATION_PS]
    if begin_ns > LATEST_NS or (offset_ps > LATEST_NS).any() or (duration_ps > LATEST_NS).any():
        raise MalformedError("the time of an event is too large")
    name_index = np.minimum(np.searchsorted(names[0], messages.numbers[METADATA_ID]), len(names[0]) - 1)
    has_name = names[0][name_index] == messages.numbers[METADATA_ID]
    step_numbers = np.full(len(start), -1)
    stats = message_columns(padded, messages.start, messages.end, (METADATA_ID, UNSIGNED, SIGNED))
    is_step = stats.numbers[METADATA_ID] == step
    number = np.maximum(stats.numbers[UNSIGNED], stats.numbers[SIGNED])[is_step].astype(np.int64)
    step_numbers[messages.owner[is_step]] = np.maximum(number, 0)
    times = (
        begin_ns + (time_ps // np.uint64(PS_PER_NS)).astype(np.int64)
        for time_ps in (offset_ps, offset_ps + duration_ps)
    )
    return np.where(has_name, names[1][name_index], names[1][0]), *times, step_numbers


def _text(data: bytes, start: int, end: int) -> str:
    """Return a name as text, cut to `LONGEST_NAME` bytes."""
    return data[start : min(end, start + LONGEST_NAME)].decode(errors="replace")


class MessageColumns(NamedTuple):
    """The fields of many messages.

    `numbers` has one array per number field; a missing number is 0. For each byte field, `owner` has the index of the
    message, and `start` and `end` have the position of the field.
    """

    numbers: dict[int, NDArray[np.uint64]]
    owner: Places
    start: Places
    end: Places


def message_fields(data: bytes, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (number, begin, end) for each byte field, and (number, value, `NUMBER`) for any other field."""
    while offset < end:
        tag, offset = read_varint(data, offset, end)
        kind = tag & 7
        if kind == VARINT:
            value, offset = read_varint(data, offset, end)
            yield tag >> 3, value, NUMBER
            continue
        if kind == BYTES:
            length, offset = read_varint(data, offset, end)
        else:
            length = _fixed_width(kind)
        if length > end - offset:
            raise MalformedError(CUT_OFF)
        yield (tag >> 3, offset, offset + length) if kind == BYTES else (tag >> 3, 0, NUMBER)
        offset += length


def _fixed_width(kind: int) -> int:
    if kind not in WIDTH:
        raise MalformedError(f"a field has the unknown kind {kind}")
    return WIDTH[kind]


def read_varint(data: bytes, offset: int, end: int) -> tuple[int, int]:
    """Return a number of at most 64 bits, and the offset after the number.

    Raises MalformedError if there is no valid number at `offset`.
    """
    value = 0
    for shift in range(0, MOST_BITS, 7):
        if offset >= end:
            raise MalformedError(CUT_OFF)
        byte = data[offset]
        offset += 1
        if byte < MORE:
            return (value | byte << shift) & (1 << 64) - 1, offset
        value |= (byte & MORE - 1) << shift
    raise MalformedError(TOO_LONG)


def message_columns(
    data: NDArray[np.uint8], start: Places, end: Places, numbers: Collection[int], parts: int = 0
) -> MessageColumns:
    """Return the number fields `numbers` of many messages at once, and the positions of their byte fields `parts`.

    `data` must have at least ten more bytes after the last message. The number of loop iterations is the number of
    fields of the longest message.
    """
    values = {number: np.zeros(len(start), np.uint64) for number in numbers}
    byte_fields: list[tuple[Any, Any, Any]] = [(start[:0], start[:0], start[:0])]
    active = np.flatnonzero(start < end)
    offsets = start[active]
    while len(active):
        tag, offsets = _varints(data, offsets)
        value, value_end = _varints(data, offsets)
        kind = tag & np.uint64(7)
        for width_kind in set(np.unique(kind).tolist()) - {VARINT, BYTES}:
            value_end[kind == width_kind] = offsets[kind == width_kind] + _fixed_width(width_kind)
        is_bytes = kind == BYTES
        if (value[is_bytes] > np.uint64(len(data))).any():
            raise MalformedError(CUT_OFF)
        field_end = value_end + np.where(is_bytes, value, np.uint64(0)).astype(np.int64)
        if (field_end > end[active]).any():
            raise MalformedError(CUT_OFF)
        for number, column in values.items():
            is_field = tag == number << 3 | VARINT
            column[active[is_field]] = value[is_field]
        is_field = tag == parts << 3 | BYTES
        byte_fields.append((active[is_field], value_end[is_field], field_end[is_field]))
        remaining = field_end < end[active]
        active, offsets = active[remaining], field_end[remaining]
    return MessageColumns(values, *(np.concatenate(arrays) for arrays in zip(*byte_fields, strict=True)))


def _varints(data: NDArray[np.uint8], offsets: Places) -> tuple[NDArray[np.uint64], Places]:
    value, is_continued = np.zeros(len(offsets), np.uint64), np.ones(len(offsets), bool)
    for shift in range(0, MOST_BITS, 7):
        byte = data[offsets].astype(np.uint64)
        value |= np.where(is_continued, (byte & np.uint64(MORE - 1)) << np.uint64(shift), np.uint64(0))
        offsets = offsets + is_continued
        is_continued = is_continued & (byte >= MORE)
        if not is_continued.any():
            return value, offsets
    return value, offsets  # a too long number is not valid; `message_columns` finds this error
