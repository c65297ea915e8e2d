"""Write a window for TensorBoard: a plane of a trace with one line per file, and scalars, histograms and text.

The format of the trace is defined in tsl/profiler/protobuf/xplane.proto. This module writes the format without the
package protobuf.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.events.posix_window import OPERATIONS, READS, Window
from jobs.lazy_imports import tf
from jobs.profiler import report
from jobs.terminal import visible

LINES = "/device:CUSTOM:TF I/O"  # TensorBoard shows only planes whose names begin so
MOST_LINES, MOST_EVENTS = 1_000, 200_000  # TraceViewer draws about a million events, including TensorFlow's events
_NUMBERS = dict(enumerate(("returned", "offset", "thread", "errno"), start=1))
# The protobuf tags of these fields: XLine.events; metadata_id, offset_ps, duration_ps and stats of XEvent; int64_value
# of XStat. The field metadata_id has the same tag in XEvent and XStat.
_TAG = {"events": 0x22, "metadata": 0x08, "offset": 0x10, "duration": 0x18, "stats": 0x22, "value": 0x20}
_STAT_BYTES = 13
_LARGEST_BYTE = 127  # the largest last byte of a varint
_REMARK = len(OPERATIONS)


def serialised_planes(window: Window | None, origin_ns: int, fault: str = "") -> bytes:
    """Return a serialised XSpace: one plane with the calls of a window, and a line about calls that are not drawn.

    Times in the file of a trace are relative to the start of the profile, `origin_ns` (Unix time). Pass 0 as
    `origin_ns` if TensorFlow will subtract the start later. Without a window, the plane has only one line, with the
    text `fault`.
    """
    lines, remark = _lines(window) if window else ([], fault)
    start_ns, end_ns = (window.started_ns, window.ended_ns) if window else (now := time.time_ns(), now + 1)
    offset_ns, duration_ns = start_ns - origin_ns, end_ns - start_ns
    if remark:
        lines.append((remark, _message({4: _message({1: _REMARK, 3: duration_ns * 1000})})))
    encoded = [_message({1: number, 2: name, 3: offset_ns}) + events for number, (name, events) in enumerate(lines, 1)]
    operations = [*enumerate(OPERATIONS), (_REMARK, remark)]
    names = {4: operations, 5: _NUMBERS.items()}  # fields of XPlane with the names of events and of numbers
    maps = [
        _message({field: _message({1: key, 2: _message({2: name})})}) for field in names for key, name in names[field]
    ]
    plane = _message({2: LINES}) + b"".join(_message({3: line}) for line in encoded) + b"".join(maps)
    return _message({1: plane})


def _lines(window: Window) -> tuple[list[tuple[str, bytes]], str]:
    """Return the name and the events of each line, and a text about the calls that are not drawn.

    There is one line per file, in the order of the first calls on the files.
    """
    if window.events is None:
        return [], "calls were only counted"
    events = _longest_calls(window.events)
    files, starts = np.unique(events["file"], return_index=True)
    parts = zip(files.tolist(), np.split(events, starts[1:]), strict=False)
    ordered = sorted(parts, key=lambda part: part[1]["start"][:1].tolist())
    left_out = len(window.events) - len(events)
    remark = f"{left_out:,} shorter calls are not drawn" if left_out else ""
    return [(visible(window.paths[file]), _event_bytes(part, window.started_ns)) for file, part in ordered], remark


def _message(fields: Mapping[int, int | str | bytes]) -> bytes:
    """Return the bytes of a protobuf message; `fields` maps the number of each field to the value."""
    parts = []
    for number, value in fields.items():
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > _LARGEST_BYTE:
        digits.append(value & _LARGEST_BYTE | _LARGEST_BYTE + 1)
        value >>= 7
    return bytes([*digits, value])


def _longest_calls(events: NDArray[Any]) -> NDArray[Any]:
    """Return the calls to draw: the longest calls on the files with the most time, sorted by file and by start."""
    duration = events["end"] - events["start"]
    spent = np.bincount(events["file"], weights=duration)
    if np.count_nonzero(spent) > MOST_LINES:
        events = events[np.isin(events["file"], np.argsort(-spent, kind="stable")[:MOST_LINES])]
        duration = events["end"] - events["start"]
    if len(events) > MOST_EVENTS:
        events = events[np.argpartition(-duration, MOST_EVENTS)[:MOST_EVENTS]]
    return events[np.lexsort((events["start"], events["file"]))]


def _event_bytes(events: NDArray[Any], started_ns: int) -> bytes:
    """Return the serialised events of an XLine.

    All events are serialised together by numpy, because protobuf's objects would take 50 times as long.
    """
    start, duration = events["start"] - started_ns, events["end"] - events["start"]
    fields = [
        (_TAG["metadata"], events["operation"]),
        (_TAG["offset"], start * 1000),
        (_TAG["duration"], duration * 1000),
    ]
    parts = [part for tag, values in fields for part in (np.full((len(events), 1), tag), _varints(values))]
    for number, name in _NUMBERS.items():
        head = [_TAG["stats"], _STAT_BYTES, _TAG["metadata"], number, _TAG["value"]]
        parts += [np.tile(head, (len(events), 1)), _varints(events["error" if name == "errno" else name])]
    inner = np.hstack(parts)
    return np.hstack([np.tile([_TAG["events"], inner.shape[1]], (len(events), 1)), inner]).astype(np.uint8).tobytes()


def _varints(values: NDArray[Any]) -> NDArray[Any]:
    """Return each number as a varint of ten bytes, which is the longest form; the result has the shape (n, 10)."""
    digits: NDArray[Any] = values.astype(np.int64)[:, None] >> (7 * np.arange(10)) & 0x7F | 0x80
    digits[:, -1] &= 1
    return digits


_NOT_DRAWN = ("kernel_read_bytes", "seen_read_bytes")


def write_summaries(logdir: Path, window: Window, step: int) -> None:
    """Write a window into TensorBoard's folder: metrics as scalars, histograms of the calls, and the report as text."""
    metrics = {name: value for name, value in report.window_metrics(window).items() if name not in _NOT_DRAWN}
    writer = tf.summary.create_file_writer(str(logdir))
    with writer.as_default(step):
        for name, value in metrics.items():
            if isinstance(value, int | float):
                tf.summary.scalar(f"tf_io/{name}", value)
        for name, values in _distributions(window).items():
            tf.summary.histogram(f"tf_io/{name}", values)
        tf.summary.text("tf_io/report", "\n".join(f"    {line}" for line in report.report_lines(window)))
    writer.close()


def _distributions(window: Window) -> dict[str, NDArray[np.float64]]:
    """Return the values of each histogram as log10: sizes of files and, in mode trace, sizes and times of reads."""
    sizes = window.file_bytes
    distributions = {"log10 of bytes of a file": sizes[sizes > 0]}
    if window.events is not None:
        is_read = np.isin(window.events["operation"], [OPERATIONS.index(name) for name in READS])
        reads = window.events[is_read & (window.events["returned"] > 0)]
        distributions["log10 of bytes of a read"] = reads["returned"]
        distributions["log10 of ns of a read"] = np.maximum(reads["end"] - reads["start"], 1)
    return {name: np.log10(values) for name, values in distributions.items()}
