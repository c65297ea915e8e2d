"""A window as planes of a TensorFlow trace: a line a file for TraceViewer, and a summary for the tab "TF I/O"."""

from __future__ import annotations

import json
import socket
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.profiler import report, xspace_messages
from jobs.profiler.window import OPERATIONS, READS, SIZES, Window
from jobs.terminal import visible

LINES = "/device:CUSTOM:TF I/O"  # a name of another kind is not shown
SUMMARY = "tf_io"  # such as this one
SCHEMA = 1
MOST_LINES, MOST_EVENTS = 1_000, 200_000  # TraceViewer draws about a million, TensorFlow's own among them
MOST_FILES, _PATH_LETTERS = 1_000, 500  # so that a summary has its bounds
_INTERVALS = 100
_EDGES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)
_NUMBERS = dict(enumerate(("returned", "offset", "thread", "errno"), start=1))
# Tags of fields in xplane.proto: XLine.events; XEvent's metadata_id (as XStat's), offset_ps, duration_ps, stats;
# XStat.int64_value.
_TAG = {"events": 0x22, "metadata": 0x08, "offset": 0x10, "duration": 0x18, "stats": 0x22, "value": 0x20}
_STAT_BYTES = 13
_OF_FILE = ("opens", "reads", "writes", "seq_reads", "consec_reads", "bytes_read", "bytes_written")
_LEFT_OUT = len(OPERATIONS)


def planes(window: Window | None, origin_ns: int, fault: str = "", host: str = "") -> bytes:
    """Return an XSpace, serialised, of the plane of lines (of a window with events) and that of the summary.

    Times of a trace in a file are relative to the start of its profile: `origin_ns`, Unix time; where TensorFlow is yet
    to make them so, 0. Without a window the summary says why: `fault`.
    """
    space = xspace_messages.messages().XSpace()
    if window is not None and window.events is not None and len(window.events):
        _draw(space.planes.add(name=LINES), window, origin_ns)
    told = {"fault": fault} if window is None else _summary(window)
    told |= {"schema": SCHEMA, "host": host or socket.gethostname()}
    plane = space.planes.add(name=SUMMARY)
    plane.stat_metadata[1].name = SUMMARY
    plane.stats.add(metadata_id=1, str_value=json.dumps(told))
    return bytes(space.SerializeToString())


def _summary(window: Window) -> dict[str, Any]:
    """Return what the tab shows: figures, sizes of files, MB/s over time, the files that took longest."""
    spent = np.sum([window.counters[f"{kind}_time"] for kind in ("read", "write", "meta")], axis=0)
    order = np.argsort(-spent, kind="stable")
    return {
        "process": window.process,
        "started_ns": window.started_ns,
        "figures": report.figures(window),
        "sizes": SIZES,
        "file_sizes": _file_sizes(window),
        "order": _order(window),
        "read_mb_per_s": _over_time(window),
        "files": [_file(window, place) for place in order[:MOST_FILES].tolist()],
        "files_left_out": max(0, len(order) - MOST_FILES),
    }


def _file(window: Window, place: int) -> dict[str, Any]:
    row = window.counters[place]
    return {
        "path": visible(window.paths[place][-_PATH_LETTERS:]),
        "module": window.modules[place],
        "size": sizes(window.counters[place : place + 1]).item(),
        **{name: int(row[name]) for name in _OF_FILE},
        **{f"{verb}_s": int(row[f"{verb}_time"]) / 1e9 for verb in ("read", "write", "meta")},
    }


def sizes(rows: NDArray[Any]) -> NDArray[Any]:
    """Return how far each file was read or written, in bytes: what a window knows of its size."""
    ends = [np.where(rows[f"bytes_{done}"] > 0, rows[f"max_byte_{done}"] + 1, 0) for done in ("read", "written")]
    return np.maximum(*ends)


def _file_sizes(window: Window) -> list[int]:
    """Count the files that were read or written, in Darshan's bins."""
    rows = window.counters[(window.counters["reads"] > 0) | (window.counters["writes"] > 0)]
    return [int(count) for count in np.bincount(np.searchsorted(_EDGES, sizes(rows)), minlength=len(SIZES))]


def _order(window: Window) -> list[int]:
    """Count the POSIX reads: consecutive, sequential and no more, neither."""
    rows = window.counters[np.array([module == "POSIX" for module in window.modules], bool)]
    reads, sequential, consecutive = (int(rows[f"{kind}reads"].sum()) for kind in ("", "seq_", "consec_"))
    return [consecutive, sequential - consecutive, reads - sequential]


def _over_time(window: Window) -> list[float] | None:
    """Return the MB/s read in each hundredth of a trace's window, by the calls that ended in it."""
    if window.events is None or not window.wall_s:
        return None
    events = window.events[np.isin(window.events["operation"], [OPERATIONS.index(name) for name in READS])]
    moved, edges = np.maximum(events["returned"], 0) / 1e6, np.linspace(0, window.wall_s, _INTERVALS + 1)
    sums = np.histogram((events["end"] - window.started_ns) / 1e9, edges, weights=moved)[0]
    return [float(rate) for rate in sums / (window.wall_s / _INTERVALS)]


def _draw(plane: Any, window: Window, origin_ns: int) -> None:
    """Draw the calls that took longest of the files that took longest; what is left out is told on a line."""
    assert window.events is not None  # noqa: S101 - `planes` has asked
    for number, name in enumerate(OPERATIONS):
        plane.event_metadata[number].name = name
    for number, name in _NUMBERS.items():
        plane.stat_metadata[number].name = name
    events = _shown(window.events)
    files, starts = np.unique(events["file"], return_index=True)
    parts = sorted(zip(files.tolist(), np.split(events, starts[1:]), strict=True), key=lambda part: part[1]["start"][0])
    at_ns = window.started_ns - origin_ns
    for number, (file, part) in enumerate(parts, start=1):
        line = plane.lines.add(id=number, name=visible(window.paths[file]), timestamp_ns=at_ns)
        line.MergeFromString(_encoded(part, window.started_ns))
    if left_out := len(window.events) - len(events):
        plane.event_metadata[_LEFT_OUT].name = f"{left_out:,} shorter calls are not drawn"
        line = plane.lines.add(id=len(parts) + 1, name="not drawn", timestamp_ns=at_ns)
        line.events.add(metadata_id=_LEFT_OUT, duration_ps=(window.ended_ns - window.started_ns) * 1000)


def _shown(events: NDArray[Any]) -> NDArray[Any]:
    """Return the calls that are drawn, by file, then by start."""
    took = events["end"] - events["start"]
    spent = np.bincount(events["file"], weights=took)
    if np.count_nonzero(spent) > MOST_LINES:
        events = events[np.isin(events["file"], np.argsort(-spent, kind="stable")[:MOST_LINES])]
        took = events["end"] - events["start"]
    if len(events) > MOST_EVENTS:
        events = events[np.argpartition(-took, MOST_EVENTS)[:MOST_EVENTS]]
    return events[np.lexsort((events["start"], events["file"]))]


def _encoded(events: NDArray[Any], started_ns: int) -> bytes:
    """Return the events of an XLine as they are serialised, all at once: protobuf's objects take 50 times as long."""
    start, took = events["start"] - started_ns, events["end"] - events["start"]
    fields = [(_TAG["metadata"], events["operation"]), (_TAG["offset"], start * 1000), (_TAG["duration"], took * 1000)]
    parts = [part for tag, values in fields for part in (np.full((len(events), 1), tag), _varints(values))]
    for number, name in _NUMBERS.items():
        head = [_TAG["stats"], _STAT_BYTES, _TAG["metadata"], number, _TAG["value"]]
        parts += [np.tile(head, (len(events), 1)), _varints(events["error" if name == "errno" else name])]
    inner = np.hstack(parts)
    return np.hstack([np.tile([_TAG["events"], inner.shape[1]], (len(events), 1)), inner]).astype(np.uint8).tobytes()


def _varints(values: NDArray[Any]) -> NDArray[Any]:
    """Return each number as a varint of ten bytes, the longest there is; shape (n, 10)."""
    found: NDArray[Any] = values.astype(np.int64)[:, None] >> (7 * np.arange(10)) & 0x7F | 0x80
    found[:, -1] &= 1
    return found
