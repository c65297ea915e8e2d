"""Read the traces of TensorFlow's profiler: the events of one process with their categories, and the steps.

A trace is a file ``*.xplane.pb`` of TensorFlow, or the smaller table that a run makes from such a file
(``tensorflow-<n>.npz``). The rules in ``categories.json`` determine the category of an event.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jobs.events import xplane
from jobs.events.intervals import Times
from jobs.events.perfetto import TraceProcess
from jobs.events.table import Events, EventsError
from jobs.system import files, untrusted

_RULES = json.loads(Path(__file__).with_name("categories.json").read_text(encoding="utf-8"))
CATEGORIES = tuple(_RULES["order"])
"""The categories in order of priority. A moment with events of several categories counts for the first category."""
INPUT, REMEDIES = tuple(_RULES["input"]), _RULES["remedies"]
COMPUTE, COMMUNICATION, CHECKPOINT, OTHER = "compute", "communication", "checkpoint", "other"
UNACCOUNTED, UNCATEGORISED, FRAME = "unaccounted", "uncategorised", "frame"
SPENT = (*CATEGORIES, UNACCOUNTED)
"""The categories whose times add up to the time of a step."""
KINDS = (*CATEGORIES, UNCATEGORISED, FRAME)
MOST_STEPS = 100_000
MOST_BYTES = 1 << 29
_LATEST_NS = 1 << 61
_SCHEMA = 1
_EVENT = np.dtype([("line", "<i4"), ("op", "<i4"), ("category", "<i4"), ("start", "<i8"), ("duration", "<i8")])
_MARK = np.dtype([("number", "<i8"), ("line", "<i8"), ("start", "<i8"), ("end", "<i8")])
_PREFETCHED = re.compile(_RULES["prefetched"])
_OPERATION = re.compile(r"[^:]:\w+$")


class MarkedSteps(NamedTuple):
    """The steps in order of time, as arrays of step numbers, start times and end times (in ns)."""

    number: Times
    start: Times
    end: Times


@dataclass(frozen=True)
class Runtime:
    """The events of a process, and the marks of its steps.

    Times are in ns: Unix times if `dated` is true, otherwise times since the start of the profiler. An event has `kind`
    (an index into `KINDS`) and `name` (TensorFlow's name). A mark is an event that encloses a step or a part of a step,
    and has the number of the step in the column `step`. If a number occurs twice in the same `series` of marks, the
    marks belong to different epochs.
    """

    name: str
    events: Events
    marks: Events
    dated: bool  # whether times are Unix times
    dropped: int = 0

    @property
    def has_marks(self) -> bool:
        """Return whether the program marked steps. Without marks, the whole trace counts as one step."""
        return len(self.marks) > 0

    @cached_property
    def steps(self) -> MarkedSteps:
        """Return the steps in order of time.

        A step lasts from the start of its first mark to the end of its last mark. If a step number occurs again in a
        series, a step of the next epoch begins.
        """
        if not self.has_marks:
            return MarkedSteps(
                *(np.array([value]) for value in (0, self.events["start"].min(), self.events["end"].max()))
            )
        number, series, start = (self.marks[name] for name in ("step", "series", "start"))
        order = np.lexsort((start, number, series))
        position = np.arange(len(order))
        is_first = (np.diff(series[order], prepend=-1) != 0) | (np.diff(number[order], prepend=-1) != 0)
        epoch = np.empty_like(position)
        epoch[order] = position - np.maximum.accumulate(np.where(is_first, position, 0))
        (numbers, _), step_of_mark = np.unique(np.stack([number, epoch]), axis=1, return_inverse=True)
        first, last = np.full(len(numbers), 1 << 62), np.zeros(len(numbers), np.int64)
        np.minimum.at(first, step_of_mark.ravel(), start)
        np.maximum.at(last, step_of_mark.ravel(), self.marks["end"])
        order = np.argsort(first, kind="stable")[:MOST_STEPS]
        return MarkedSteps(numbers[order], first[order], last[order])

    @property
    def front(self) -> NDArray[np.int64]:
        """Return the threads that have marks of steps."""
        return np.unique(self.marks["thread"])

    def of(self, *categories: str) -> Events:
        """Return the events of the `categories`; uncategorised events belong to the category ``other``."""
        return self.events.with_words("kind", *categories, *([UNCATEGORISED] if OTHER in categories else []))

    @property
    def work(self) -> Events:
        """Return all events except frames; a frame only encloses other events."""
        return self.events.selected(self.events["kind"] != KINDS.index(FRAME))

    def in_front(self, events: Events) -> Events:
        """Return those of the `events` that are on threads with marks of steps, or all events if there are no marks."""
        return events.selected(np.isin(events["thread"], self.front)) if self.has_marks else events

    @property
    def has_prefetch(self) -> bool:
        """Return whether the names of the events show that the pipeline already prefetches."""
        return any(map(_PREFETCHED.search, self.events.words["name"]))

    @property
    def operations(self) -> Events:
        """Return the events of TensorFlow's operations (``node:Type``) and of a device's kernels."""
        work = self.work
        is_operation = np.array([bool(_OPERATION.search(name)) for name in work.words["name"]], bool)
        is_kernel = np.array([name.startswith("/device:") for name in work.words["thread"]], bool)
        return work.selected(is_operation[work["name"]] | is_kernel[work["thread"]])

    def process(self, number: int) -> TraceProcess:
        """Return a process of a Perfetto trace that shows the events and, below the events, the steps."""
        steps = self.steps
        names = [f"step {step}" for step in steps.number.tolist()]
        words = {"kind": ["step"], "thread": ["steps"], "name": names}
        zeros = np.zeros(len(names), np.int64)
        step_events = Events(
            words, start=steps.start, end=steps.end, kind=zeros, thread=zeros, name=np.arange(len(names))
        )
        return TraceProcess(number, self.name, [self.events, step_events])


def read_trace(path: Path, most_bytes: int = MOST_BYTES) -> Runtime:
    """Return the content of a trace or a table.

    Raises EventsError if the file is unreadable, is not a trace, or is too large.
    """
    try:
        data = files.read_file(files.resolve_user_path(path), most_bytes)
        return _from_table(path.name, data) if path.suffix == ".npz" else from_xplane(path.name, data)
    except OSError as error:
        hint = "name a *.xplane.pb of TensorFlow's profiler, or a run's tensorflow-<n>.npz"
        raise EventsError(f"{path}: {error.strerror}", hint) from error
    except ValueError as error:
        cure = "copy the file again from its origin; a gzipped or JSON trace is another format"
        raise EventsError(f"{path} is no trace of TensorFlow's profiler: {error}", cure) from error


def from_xplane(name: str, data: bytes) -> Runtime:
    """Return the content of a trace of TensorFlow; raise ValueError if `data` is not a trace or has no event."""
    raw = xplane.read_space(data)
    line, op, start, end, step = raw.columns
    dated = bool(raw.began_ns) or bool(len(start) and start.min() > 1 << 60)
    if len(end) and end.max() < raw.began_ns:
        start, end = start + raw.began_ns, end + raw.began_ns
    columns = {"start": start, "end": end, "thread": line, "name": op}
    category = _categories(raw.lines, raw.ops, line, op)
    category[step >= 0] = KINDS.index(FRAME)
    marks = Events({}, **columns, step=step, series=line * len(raw.ops) + op).selected(step >= 0)
    return _new_runtime(name, raw, {**columns, "kind": category}, marks, dated=dated)


def _new_runtime(name: str, raw: xplane.RawTrace, columns: dict[str, Any], marks: Events, *, dated: bool) -> Runtime:
    if not len(columns["start"]):
        raise ValueError("it has no event")
    events = Events({"kind": KINDS, "thread": raw.lines, "name": raw.ops}, **columns)
    return Runtime(name, events, marks, dated, raw.dropped)


def _categories(lines: Sequence[str], ops: Sequence[str], line: Any, op: Any) -> NDArray[np.int8]:
    """Return the category of each event, as an index into `KINDS`."""
    rules = [
        (KINDS.index(rule["category"]), re.compile(rule.get("line", "")), re.compile(rule["name"]))
        for rule in _RULES["rules"]
    ]
    pairs, pair_of_event = np.unique(line.astype(np.int64) * len(ops) + op, return_inverse=True)
    kinds = []
    for pair in pairs.tolist():
        thread, name = lines[pair // len(ops)], ops[pair % len(ops)]
        matches = (kind for kind, line_rule, name_rule in rules if line_rule.search(thread) and name_rule.search(name))
        kinds.append(next(matches, KINDS.index(UNCATEGORISED)))
    return np.array(kinds, np.int8)[pair_of_event.ravel()]


def write_table(path: Path, runtime: Runtime) -> None:
    """Write a table as .npz.

    The members are ``head`` (JSON), ``lines`` and ``ops`` (names that end with a NUL byte), ``events`` (without frames)
    and ``steps``.
    """
    events = runtime.work
    rows, marks = np.zeros(len(events), _EVENT), np.zeros(len(runtime.marks), _MARK)
    for name, column in (("line", "thread"), ("op", "name"), ("category", "kind"), ("start", "start")):
        rows[name] = events[column]
    rows["duration"] = events["end"] - events["start"]
    for name, column in (("number", "step"), ("line", "thread"), ("start", "start"), ("end", "end")):
        marks[name] = runtime.marks[column]
    names = {"lines": events.words["thread"], "ops": events.words["name"]}
    texts = {key: "".join(word.replace("\0", " ") + "\0" for word in words) for key, words in names.items()}
    texts["head"] = json.dumps({"schema": _SCHEMA, "kinds": KINDS, "dropped": runtime.dropped})
    arrays: dict[str, Any] = {key: np.frombuffer(text.encode(), np.uint8) for key, text in texts.items()}
    with files.write_whole(path) as file:
        np.savez_compressed(file, events=rows, steps=marks, **arrays)


def _from_table(name: str, data: bytes) -> Runtime:
    """Return the content of a run's table; the table has the categories of the events, but no frames."""
    try:
        arrays = untrusted.read_arrays(io.BytesIO(data), MOST_BYTES)
        head, events, steps = untrusted.json_value(arrays["head"].tobytes()), arrays["events"], arrays["steps"]
        lines, ops = (arrays[name].tobytes().decode().split("\0")[:-1] for name in ("lines", "ops"))
        kinds = np.array([KINDS.index(kind) if kind in KINDS else KINDS.index(OTHER) for kind in head["kinds"]])
        line, op, start, duration = (events[name].astype(np.int64) for name in ("line", "op", "start", "duration"))
        number, mark_line, first, last = (steps[name].astype(np.int64) for name in ("number", "line", "start", "end"))
        columns = {
            "start": start,
            "end": start + duration,
            "thread": line,
            "name": op,
            "kind": kinds[events["category"]],
        }
        is_valid = len(events) <= xplane.MOST_EVENTS and 0 <= line.min() <= line.max() < len(lines)
        is_valid &= (
            0 <= op.min() <= op.max() < len(ops) and start.min() >= 0 <= duration.min() and duration.max() < _LATEST_NS
        )
        is_valid &= bool(start.max() < _LATEST_NS and (first >= 0).all() and (first <= last).all())
        is_valid &= bool((last < 2 * _LATEST_NS).all())
        raw = xplane.RawTrace(lines, ops, dropped=int(head["dropped"]))
    except Exception as error:  # a damaged archive may make numpy and zipfile raise any error
        raise ValueError("it is damaged") from error
    if not is_valid:
        raise ValueError("it is damaged")
    return _new_runtime(
        name,
        raw,
        columns,
        Events({}, start=first, end=last, thread=mark_line, step=number, series=mark_line),
        dated=True,
    )
