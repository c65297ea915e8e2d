"""The time of a process's steps by category of TensorFlow's events, and how long the steps wait for their input.

The computing time grows with the number of events (per category) and with the number of steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jobs.events.intervals import Times, intersection, shared_out, time_outside
from jobs.events.table import NS
from jobs.events.tensorflow_trace import (
    CATEGORIES,
    CHECKPOINT,
    COMPUTE,
    INPUT,
    UNACCOUNTED,
    UNCATEGORISED,
    MarkedSteps,
    Runtime,
)


class CategoryTimes(NamedTuple):
    """The time per category in ns; each value is an array with one number per step.

    ``elapsed``: from the first moment of a category in a step to the last; ``sum``: durations of all its events;
    ``union``: time with at least one event; ``exposed``: ``union`` without the time in which the rank computes;
    ``spent``: each moment counts for one category, and the values with ``unaccounted`` add up to the step.
    """

    elapsed: Mapping[str, Any]
    sum: Mapping[str, Any]
    union: Mapping[str, Any]
    exposed: Mapping[str, Any]
    spent: Mapping[str, Any]


def category_times(runtime: Runtime) -> CategoryTimes:
    """Return the times of each category in the steps; ``spent`` has no checkpoints that other threads write."""
    steps, events = runtime.steps, {name: runtime.of(name) for name in CATEGORIES}
    spans = {name: part.spans for name, part in events.items()}
    exposed = {name: span if name == COMPUTE else time_outside(span, spans[COMPUTE]) for name, span in spans.items()}
    in_front = {**spans, CHECKPOINT: runtime.in_front(events[CHECKPOINT]).spans}
    own_spans = dict(zip(CATEGORIES, shared_out([*in_front.values()]), strict=True))
    spent = {name: span.within(steps.start, steps.end) for name, span in own_spans.items()}
    return CategoryTimes(
        {name: span.elapsed(steps.start, steps.end) for name, span in spans.items()},
        {name: _sum_within(part["start"], part["end"], steps) for name, part in events.items()},
        {name: span.within(steps.start, steps.end) for name, span in spans.items()},
        {name: span.within(steps.start, steps.end) for name, span in exposed.items()},
        {**spent, UNACCOUNTED: steps.end - steps.start - sum(spent.values())},
    )


def category_overlaps(runtime: Runtime) -> dict[tuple[str, str], float]:
    """Return, for each pair of categories, the seconds over all steps in which both had events."""
    spans, steps = {name: runtime.of(name).spans for name in CATEGORIES}, runtime.steps
    common = {pair: intersection(*(spans[name] for name in pair)) for pair in itertools.combinations(CATEGORIES, 2)}
    return {pair: float(span.within(steps.start, steps.end).sum()) / NS for pair, span in common.items()}


def _sum_within(start: Times, end: Times, steps: MarkedSteps) -> Times:
    """Return per step the sum of the durations of all events within it, ns."""
    return _time_after(np.sort(start), steps) - _time_after(np.sort(end), steps)


def _time_after(moments: Times, steps: MarkedSteps) -> Times:
    """Return per step the sum, over all sorted `moments`, of the time of the step after the moment, ns."""
    first = int(moments[:1].sum())
    totals = np.concatenate([[0], np.cumsum(moments - first)])
    indices: list[Times] = [np.searchsorted(moments, edge) for edge in steps[1:]]
    times: list[Times] = [
        index * (edge - first) - totals[index] for edge, index in zip(steps[1:], indices, strict=True)
    ]
    return times[1] - times[0]


LEAST = 0.05
"""Smallest share of the steps' time for waiting for input that is worth a remedy (two runs differ by up to 4 %), and
smallest share of the waiting that a remedy must save to be named."""
_MAKING = INPUT[:2]  # reading and decoding


class InputBound(NamedTuple):
    """The time that steps wait for their input (seconds), and the most that each remedy can save."""

    steps_s: float
    waited_s: float  # seconds in which the rank did nothing but wait for input
    remedies: Mapping[str, float]  # the most that each remedy can save, in seconds
    has_prefetch: bool = False  # whether the pipeline already prefetches

    @property
    def share(self) -> float:
        """Return the share of the steps' time that is waiting for input."""
        return self.waited_s / self.steps_s if self.steps_s else 0.0

    @property
    def named(self) -> dict[str, float]:
        """Return the remedies that save enough to be named (seconds), best first; empty if the input costs little."""
        best = sorted(self.remedies.items(), key=lambda remedy: -remedy[1])
        return {name: saved_s for name, saved_s in best if saved_s > LEAST * self.waited_s and self.share >= LEAST}


def input_bound(runtime: Runtime, times: CategoryTimes) -> InputBound:
    """Return how long the steps wait for their input, and the most that each remedy saves.

    Prefetching runs the input during the rank's other work. It can save at most the waiting time, and at most
    the part of that work in which no input runs yet; if the pipeline already prefetches, it saves nothing. Any other
    remedy saves at most the time of its category.
    """
    spent_ns, steps = {name: int(times_ns.sum()) for name, times_ns in times.spent.items()}, runtime.steps
    waited_ns = sum(spent_ns[name] for name in INPUT)
    busy_ns = sum(spent_ns[name] for name in CATEGORIES[: CATEGORIES.index(INPUT[0])])
    making_ns = int(runtime.of(*_MAKING).spans.within(steps.start, steps.end).sum())
    hidden_ns = making_ns - sum(spent_ns[name] for name in _MAKING)
    prefetch_ns = 0 if runtime.has_prefetch else max(0, min(waited_ns, busy_ns - hidden_ns))
    remedies = {"prefetch": prefetch_ns} | {name: spent_ns[name] for name in INPUT}
    seconds = {name: saved_ns / NS for name, saved_ns in remedies.items()}
    return InputBound(int((steps.end - steps.start).sum()) / NS, waited_ns / NS, seconds, runtime.has_prefetch)


def record_metrics(runtime: Runtime) -> dict[str, Any]:
    """Return a record's metrics of the steps of a run: the number of steps and events, and seconds over all steps.

    ``union_s``, ``exposed_s`` and ``spent_s`` by category, as in `CategoryTimes`; ``waited_s`` and ``remedies_s`` as in
    `InputBound`.
    """
    times = category_times(runtime)
    limit = input_bound(runtime, times)
    return {
        "steps": len(runtime.steps.number),
        "events": len(runtime.work),
        "uncategorised": len(runtime.events.of("kind", UNCATEGORISED)),
        "dropped": runtime.dropped,
        "steps_s": limit.steps_s,
        "waited_s": limit.waited_s,
        "remedies_s": limit.remedies,
        **{
            f"{time}_s": {name: int(times_ns.sum()) / NS for name, times_ns in getattr(times, time).items()}
            for time in ("union", "exposed", "spent")
        },
    }
