"""What TensorFlow's profiler saw of one process: its events with their categories, and the steps that they were in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.errors import AnalysisError
from analysis.records.versioned import UnreadableError
from analysis.traces import xplane
from analysis.traces.shares import CATEGORIES, OTHER, Steps
from analysis.traces.wire import MalformedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TABLE = Path(__file__).with_name("categories.json")
FRAME, UNCATEGORISED = "frame", "uncategorised"
KINDS = (*CATEGORIES, UNCATEGORISED, FRAME)
MOST_STEPS = 100_000
MOST_BYTES = 1 << 29
_OPERATION = re.compile(r"[^:]:\w+$")


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
            here &= np.isin(self.line, self.step_lines)
        return self.start[here], self.end[here]

    @property
    def step_lines(self) -> NDArray[Any]:
        """Return the threads that some step was marked on."""
        edges = np.isin(self.start, self.steps.start) & np.isin(self.end, self.steps.end)
        return np.unique(self.line[edges & (self.category == KINDS.index(FRAME))])

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
        return _xplane(path)
    except UnreadableError as error:
        raise AnalysisError(f"{path} {error}", "name a *.xplane.pb of TensorFlow's profiler") from error
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
    steps = step[step >= 0], start[step >= 0], end[step >= 0]
    if not len(line):
        raise MalformedError("it holds no event")
    marked = bool(len(steps[0]))
    if not marked:
        steps = np.zeros(1, np.int64), start.min(keepdims=True), end.max(keepdims=True)
    columns = line, op, category, start, end
    return Runtime(path.name, raw.lines, raw.ops, *columns, _steps(*steps), marked, dated, raw.dropped)


def _steps(number: Any, start: Any, end: Any) -> Steps:
    """Return each step once, from the first of its marks to the last one, in the order of time."""
    numbers, place = np.unique(number, return_inverse=True)
    first, last = np.full(len(numbers), 1 << 62), np.zeros(len(numbers), np.int64)
    np.minimum.at(first, place, start)
    np.maximum.at(last, place, end)
    order = np.argsort(first, kind="stable")[:MOST_STEPS]
    return Steps(numbers[order], first[order], last[order])


def categorised(lines: Sequence[str], ops: Sequence[str], line: Any, op: Any) -> NDArray[np.int8]:
    """Return the category of each event."""
    rules = [
        (KINDS.index(rule["category"]), re.compile(rule.get("line", "")), re.compile(rule["name"]))
        for rule in json.loads(TABLE.read_text(encoding="utf-8"))["rules"]
    ]
    pairs, place = np.unique(line.astype(np.int64) * len(ops) + op, return_inverse=True)
    kinds = []
    for pair in pairs.tolist():
        thread, name = lines[pair // len(ops)], ops[pair % len(ops)]
        found = (kind for kind, of_line, of_name in rules if of_line.search(thread) and of_name.search(name))
        kinds.append(next(found, KINDS.index(UNCATEGORISED)))
    return np.array(kinds, np.int8)[place.ravel()]
