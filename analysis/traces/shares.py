"""Where the time of steps went, of a rank's events: by category the span, the sum, the union and what is exposed.

All of it is made of one function of time, `Covered`: how much of the time before a moment lies in any event of a
category. So a million events are looked at once, and each step costs a look-up.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from analysis.timelog.intervals import Spans, Times, union, without
from analysis.traces.categories import CATEGORIES, CHECKPOINT, COMPUTE, UNACCOUNTED
from analysis.traces.tensorflow_events import Runtime, Steps

NS = 1e9


class Shares(NamedTuple):
    """Seconds by category, an array over the steps each.

    ``elapsed``: from the first moment of a category in a step to the last; ``sum``: of all its events; ``union``: in
    which one went on; ``exposed``: of that, without those in which the rank computes; ``spent``: what each moment is
    given to, which with ``unaccounted`` adds up to the step.
    """

    steps: Steps
    elapsed: Mapping[str, Any]
    sum: Mapping[str, Any]
    union: Mapping[str, Any]
    exposed: Mapping[str, Any]
    spent: Mapping[str, Any]
    overlap: Mapping[tuple[str, str], float]  # of two categories, over all steps


class Covered:
    """Spans as a function of time."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self._before = np.concatenate([[0], np.cumsum(spans.end - spans.start)])

    def until(self, moments: Times) -> Times:
        """Return how much of the spans lies before each moment, ns."""
        place = np.searchsorted(self.spans.start, moments, "right")  # spans that have begun
        if not len(self.spans.start):
            return np.zeros(len(moments), np.int64)
        late = np.where(place > 0, self.spans.end[place - 1] - moments, 0)
        return self._before[place] - np.maximum(late, 0)

    def within(self, start: Times, end: Times) -> Times:
        """Return how much of the spans lies in each interval, ns."""
        return self.until(end) - self.until(start)

    def elapsed(self, start: Times, end: Times) -> Times:
        """Return the time from the first moment of the spans in each interval to the last one, ns."""
        if not len(self.spans.start):
            return np.zeros(len(start), np.int64)
        most = len(self.spans.start) - 1
        first = np.minimum(np.searchsorted(self.spans.end, start, "right"), most)
        last = np.maximum(np.searchsorted(self.spans.start, end) - 1, 0)
        edges = np.maximum(self.spans.start[first], start), np.minimum(self.spans.end[last], end)
        return np.where(self.within(start, end) > 0, edges[1] - edges[0], 0)


def both(one: Spans, other: Spans) -> Spans:
    """Return the time that is in both."""
    return without(one, without(one, other))


def summed(start: Times, end: Times, steps: Steps) -> Times:
    """Return the durations of all events within each step, added, ns."""
    return _begun(np.sort(start), steps) - _begun(np.sort(end), steps)


def _begun(sorted_: Times, steps: Steps) -> Times:
    """Return of each step the time since each of the moments, as far as it lies in the step, added."""
    total = np.concatenate([[0], np.cumsum(sorted_ - sorted_[:1].sum())])
    found = [np.zeros(0, np.int64)]
    for edge in (steps.start, steps.end):
        place = np.searchsorted(sorted_, edge)
        found.append(place * (edge - sorted_[:1].sum()) - total[place])
    return found[2] - found[1]


def shares(runtime: Runtime) -> Shares:
    """Return where the time of each step of a rank went."""
    steps = runtime.steps
    events = {name: runtime.of(name) for name in CATEGORIES}
    spans = {name: union(*each) for name, each in events.items()}
    covered = {name: Covered(each) for name, each in spans.items()}
    inside = {name: each.within(steps.start, steps.end) / NS for name, each in covered.items()}
    exposed = {name: Covered(without(each, spans[COMPUTE])) for name, each in spans.items()}
    exposed[COMPUTE] = covered[COMPUTE]
    return Shares(
        steps,
        {name: each.elapsed(steps.start, steps.end) / NS for name, each in covered.items()},
        {name: summed(*each, steps) / NS for name, each in events.items()},
        inside,
        {name: each.within(steps.start, steps.end) / NS for name, each in exposed.items()},
        _spent(runtime, spans),
        {pair: _together(spans, pair, steps) for pair in itertools.combinations(CATEGORIES, 2)},
    )


def _spent(runtime: Runtime, spans: Mapping[str, Spans]) -> Mapping[str, Any]:
    """Return what each moment of the steps is given to; snapshots that are saved behind a step's back cost it none."""
    steps = runtime.steps
    spans = {**spans, CHECKPOINT: union(*runtime.of(CHECKPOINT, in_front=True))}
    found, taken = {}, Spans(steps.start[:0], steps.start[:0])
    left = steps.end - steps.start
    for name in CATEGORIES:
        found[name] = Covered(without(spans[name], taken)).within(steps.start, steps.end)
        left = left - found[name]
        taken = union(np.append(taken.start, spans[name].start), np.append(taken.end, spans[name].end))
    return {name: each / NS for name, each in {**found, UNACCOUNTED: left}.items()}


def _together(spans: Mapping[str, Spans], pair: tuple[str, str], steps: Steps) -> float:
    together = Covered(both(spans[pair[0]], spans[pair[1]]))
    return float(together.within(steps.start, steps.end).sum()) / NS
