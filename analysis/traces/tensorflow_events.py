"""What TensorFlow's profiler saw of one process: its events with their categories, and the steps that they were in."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.errors import AnalysisError
from analysis.records.readable import UnreadableError, content
from analysis.timelog.intervals import Times
from analysis.traces import xplane
from analysis.traces.categories import CATEGORIES, OTHER, TABLE
from analysis.traces.wire import MalformedError
from jobs.system import untrusted

FRAME, UNCATEGORISED = "frame", "uncategorised"
KINDS = (*CATEGORIES, UNCATEGORISED, FRAME)
MOST_STEPS = 100_000
MOST_BYTES = 1 << 29
_PREFETCHED = re.compile(TABLE["prefetched"])
_OPERATION = re.compile(r"[^:]:\w+$")


class Steps(NamedTuple):
    """Steps in their order: numbers, and times in ns."""

    number: Times
    start: Times
    end: Times


@dataclass(frozen=True)
class Runtime:
    """Events of a process in Unix time (ns; from the profiler's start where it did not say when): columns, and names.

    The category of an event is a place in `KINDS`.
    """

    name: str
    lines: Sequence[str]
    ops: Sequence[str]
    line: NDArray[Any]
    op: NDArray[Any]
    category: NDArray[Any]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    steps: Steps
    front: NDArray[np.int64]  # threads on which a step was marked
    marked: bool  # False: nobody marked steps, and all of it counts as one
    dated: bool  # whether times are Unix times
    dropped: int = 0

    def of(self, category: str, *, in_front: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return starts and ends of a category; `in_front`: on the threads of the steps alone, where steps are marked.

        What nobody categorised is ``other``, too.
        """
        kinds = [KINDS.index(category)] + [KINDS.index(UNCATEGORISED)] * (category == OTHER)
        here = np.isin(self.category, kinds)
        if in_front and self.marked:
            here &= np.isin(self.line, self.front)
        return self.start[here], self.end[here]

    @property
    def prefetched(self) -> bool:
        """Tell whether the pipeline makes its elements ahead already."""
        return any(map(_PREFETCHED.search, self.ops))

    @property
    def operations(self) -> NDArray[np.bool_]:
        """Tell which events are operations of TensorFlow (``node:Type``) or a device's kernels."""
        named = np.array([bool(_OPERATION.search(name)) for name in self.ops], bool)
        device = np.array([name.startswith("/device:") for name in self.lines], bool)
        found: NDArray[np.bool_] = (named[self.op] | device[self.line]) & (self.category != KINDS.index(FRAME))
        return found


def read(path: Path) -> Runtime:
    """Return what a trace or a table holds. Raises AnalysisError: it cannot be read, or is none."""
    try:
        return _table(path) if path.suffix == ".npz" else _xplane(path)
    except UnreadableError as error:
        raise AnalysisError(
            f"{path} {error}", "name a *.xplane.pb of TensorFlow's profiler, or a run's tensorflow-<n>.npz"
        ) from error
    except MalformedError as error:
        cure = "copy it anew from where it was written; a gzipped or JSON trace is another format"
        raise AnalysisError(f"{path} is no trace of TensorFlow's profiler: {error}", cure) from error


def _xplane(path: Path) -> Runtime:
    raw = xplane.read(path)
    line, op, start, end, step = raw.columns
    dated = bool(raw.began_ns) or bool(len(start) and start.min() > 1 << 60)
    if len(end) and end.max() < raw.began_ns:
        start, end = start + raw.began_ns, end + raw.began_ns
    category = categorised(raw.lines, raw.ops, line, op)
    category[step >= 0] = KINDS.index(FRAME)
    marks = [each[step >= 0] for each in (step, start, end, line, line * len(raw.ops) + op)]
    return _made(path, raw, (line, op, category, start, end), marks, dated=dated)


def _made(path: Path, raw: xplane.Raw, columns: tuple[Any, ...], marks: Sequence[Any], *, dated: bool) -> Runtime:
    *_, start, end = columns
    if not len(start):
        raise MalformedError("it holds no event")
    marked = bool(len(marks[0]))
    whole: Sequence[Any] = (*(np.array([each]) for each in (0, start.min(), end.max())), (), np.array([0]))
    number, first, last, front, series = marks if marked else whole
    steps = _steps(number, first, last, series)
    line, op, category, start, end = columns
    names = path.name, raw.lines, raw.ops
    return Runtime(*names, line, op, category, start, end, steps, np.unique(front), marked, dated, raw.dropped)


def _table(path: Path) -> Runtime:
    """Return what a run left: the same events, categorised there, without frames."""
    try:
        arrays = untrusted.arrays(io.BytesIO(content(path, MOST_BYTES)), MOST_BYTES)
        head, events, steps = untrusted.json_value(arrays["head"].tobytes()), arrays["events"], arrays["steps"]
        lines, ops = (arrays[name].tobytes().decode().split("\0")[:-1] for name in ("lines", "ops"))
        kinds = np.array([KINDS.index(each) if each in KINDS else KINDS.index(OTHER) for each in head["kinds"]])
        line, op, start, taken = (events[name].astype(np.int64) for name in ("line", "op", "start", "duration"))
        number, front, first, last = (steps[name].astype(np.int64) for name in ("number", "line", "start", "end"))
        columns = line, op, kinds[events["category"]], start, start + taken
        fit = len(events) <= xplane.MOST_EVENTS and 0 <= line.min() <= line.max() < len(lines)
        fit &= 0 <= op.min() <= op.max() < len(ops) and start.min() >= 0 <= taken.min() and taken.max() < 1 << 61
        fit &= bool(start.max() < 1 << 61 and (first >= 0).all() and (first <= last).all() and (last < 1 << 62).all())
        raw = xplane.Raw(lines, ops, dropped=int(head["dropped"]))
    except UnreadableError:
        raise
    except Exception as error:  # whatever a damaged archive makes numpy and zipfile raise
        raise MalformedError("it is damaged") from error
    if not fit:
        raise MalformedError("it is damaged")
    return _made(path, raw, columns, (number, first, last, front, front), dated=True)


def _steps(number: Any, start: Any, end: Any, series: Any) -> Steps:
    """Return each step once, from the first of its marks to the last one, in the order of time.

    A number that comes again in a series (a thread's marks of one name) is another step: that of the next epoch.
    """
    order = np.lexsort((start, number, series))
    at = np.arange(len(order))
    is_first = (np.diff(series[order], prepend=-1) != 0) | (np.diff(number[order], prepend=-1) != 0)
    epoch = np.empty_like(at)
    epoch[order] = at - np.maximum.accumulate(np.where(is_first, at, 0))
    (numbers, _), place = np.unique(np.stack([number, epoch]), axis=1, return_inverse=True)
    first, last = np.full(len(numbers), 1 << 62), np.zeros(len(numbers), np.int64)
    np.minimum.at(first, place.ravel(), start)
    np.maximum.at(last, place.ravel(), end)
    order = np.argsort(first, kind="stable")[:MOST_STEPS]
    return Steps(numbers[order], first[order], last[order])


def categorised(lines: Sequence[str], ops: Sequence[str], line: Any, op: Any) -> NDArray[np.int8]:
    """Return the category of each event."""
    rules = [
        (KINDS.index(rule["category"]), re.compile(rule.get("line", "")), re.compile(rule["name"]))
        for rule in TABLE["rules"]
    ]
    pairs, place = np.unique(line.astype(np.int64) * len(ops) + op, return_inverse=True)
    kinds = []
    for pair in pairs.tolist():
        thread, name = lines[pair // len(ops)], ops[pair % len(ops)]
        found = (kind for kind, of_line, of_name in rules if of_line.search(thread) and of_name.search(name))
        kinds.append(next(found, KINDS.index(UNCATEGORISED)))
    return np.array(kinds, np.int8)[place.ravel()]
