"""Divide the time of the steps of a process among the categories of TensorFlow's events, and find waits for input.

The running time of the functions grows with the number of events per category, and with the number of steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jobs.events.intervals import Spans, Times, intersection, time_outside, without_earlier
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
    """The times of each category in ns; each value is an array with one number per step.

    - ``elapsed``: the time from the first to the last moment of the category in a step;
    - ``sum``: the sum of the durations of all events of the category;
    - ``union``: the time with at least one event of the category;
    - ``exposed``: ``union`` without the time in which the rank computes;
    - ``spent``: every moment counts for only one category, so that all categories and ``unaccounted`` add up to the
      duration of the step.
    """

    elapsed: Mapping[str, Any]
    sum: Mapping[str, Any]
    union: Mapping[str, Any]
    exposed: Mapping[str, Any]
    spent: Mapping[str, Any]


def category_times(runtime: Runtime) -> CategoryTimes:
    """Return the times of each category in the steps.

    Checkpoints that other threads write in the background do not count in ``spent``.
    """
    steps, events = runtime.steps, {name: runtime.of(name) for name in CATEGORIES}
    spans = {name: part.spans for name, part in events.items()}
    exposed = {name: span if name == COMPUTE else time_outside(span, spans[COMPUTE]) for name, span in spans.items()}
    in_front = {**spans, CHECKPOINT: runtime.in_front(events[CHECKPOINT]).spans}
    own_spans = dict(zip(CATEGORIES, without_earlier([*in_front.values()]), strict=True))
    spent = {name: span.length_within(steps.start, steps.end) for name, span in own_spans.items()}
    return CategoryTimes(
        {name: span.elapsed(steps.start, steps.end) for name, span in spans.items()},
        {name: _sum_within(part["start"], part["end"], steps) for name, part in events.items()},
        {name: span.length_within(steps.start, steps.end) for name, span in spans.items()},
        {name: span.length_within(steps.start, steps.end) for name, span in exposed.items()},
        {**spent, UNACCOUNTED: steps.end - steps.start - sum(spent.values())},
    )


def category_overlaps(runtime: Runtime) -> dict[tuple[str, str], float]:
    """Return, for each pair of categories, the seconds in which the two categories had events at the same time."""
    spans, steps = {name: runtime.of(name).spans for name in CATEGORIES}, runtime.steps
    common = {pair: intersection(*(spans[name] for name in pair)) for pair in itertools.combinations(CATEGORIES, 2)}
    return {pair: float(span.length_within(steps.start, steps.end).sum()) / NS for pair, span in common.items()}


def _sum_within(start: Times, end: Times, steps: MarkedSteps) -> Times:
    """Return for each step the sum of the durations of all events within the step, in ns."""
    return _time_after(np.sort(start), steps) - _time_after(np.sort(end), steps)


def _time_after(moments: Times, steps: MarkedSteps) -> Times:
    """Return for each step a sum over all `moments`: the part of the step after the moment, in ns.

    The `moments` must be sorted.
    """
    first = int(moments[:1].sum())
    totals = np.concatenate([[0], np.cumsum(moments - first)])
    indices: list[Times] = [np.searchsorted(moments, edge) for edge in steps[1:]]
    times: list[Times] = [
        index * (edge - first) - totals[index] for edge, index in zip(steps[1:], indices, strict=True)
    ]
    return times[1] - times[0]


SMALLEST_NAMED_SHARE = 0.05
"""The smallest share that matters; two equal runs differ by up to 4 %.

Remedies are suggested only if steps wait for input for more than this share of the time. A remedy is suggested only if
it can save more than this share of the waiting time.
"""
_MAKING = INPUT[:2]  # the categories reading and decoding


class InputBound(NamedTuple):
    """The seconds that steps wait for input, and the seconds that each remedy can save at most."""

    steps_s: float
    waited_s: float  # seconds in which the rank only waited for input
    remedies: Mapping[str, float]  # for each remedy, the largest number of seconds that it can save
    has_prefetch: bool = False  # whether the pipeline already prefetches
    unknown_s: float = 0.0  # seconds without an event, or with events of no category alone: they may be waits, too

    @property
    def verdict(self) -> bool | None:
        """Return whether the steps wait for more than a named share of the time; None if the trace does not show it."""
        if self.share >= SMALLEST_NAMED_SHARE:
            return True
        return False if self.waited_s + self.unknown_s < SMALLEST_NAMED_SHARE * self.steps_s else None

    @property
    def share(self) -> float:
        """Return the share of the steps' time that is spent on waiting for input."""
        return self.waited_s / self.steps_s if self.steps_s else 0.0

    @property
    def named(self) -> dict[str, float]:
        """Return the remedies that are worth a suggestion, with the seconds that they save, best remedy first.

        The result is empty if the steps hardly wait for input.
        """
        best = sorted(self.remedies.items(), key=lambda remedy: -remedy[1])
        return {
            name: saved_s
            for name, saved_s in best
            if saved_s > SMALLEST_NAMED_SHARE * self.waited_s and self.share >= SMALLEST_NAMED_SHARE
        }


def input_bound(runtime: Runtime, times: CategoryTimes) -> InputBound:
    """Return how long the steps wait for input, and how many seconds each remedy can save at most.

    Prefetching moves the preparation of input into the time of the rank's other work. So prefetching can save at most
    the waiting time, and at most the time of other work in which no input is prepared yet. If the pipeline already
    prefetches, prefetching saves nothing. Any other remedy can save at most the time of its category.
    """
    spent_ns, steps = {name: int(times_ns.sum()) for name, times_ns in times.spent.items()}, runtime.steps
    waited_ns = sum(spent_ns[name] for name in INPUT)
    busy_ns = sum(spent_ns[name] for name in CATEGORIES[: CATEGORIES.index(INPUT[0])])
    making_ns = int(runtime.of(*_MAKING).spans.length_within(steps.start, steps.end).sum())
    hidden_ns = making_ns - sum(spent_ns[name] for name in _MAKING)
    prefetch_ns = 0 if runtime.has_prefetch else max(0, min(waited_ns, busy_ns - hidden_ns))
    remedies = {"prefetch": prefetch_ns} | {name: spent_ns[name] for name in INPUT}
    seconds = {name: saved_ns / NS for name, saved_ns in remedies.items()}
    unknown_ns = spent_ns[UNACCOUNTED] + int(_uncategorised_alone(runtime).length_within(steps.start, steps.end).sum())
    steps_s = int((steps.end - steps.start).sum()) / NS
    return InputBound(steps_s, waited_ns / NS, seconds, runtime.has_prefetch, unknown_ns / NS)


def _uncategorised_alone(runtime: Runtime) -> Spans:
    """Return the moments at which only events of no category are under way."""
    known = runtime.events.with_words("kind", *CATEGORIES).spans
    return time_outside(runtime.events.with_words("kind", UNCATEGORISED).spans, known)


def record_metrics(runtime: Runtime) -> dict[str, Any]:
    """Return the metrics of the steps of a run for a record: numbers of steps and events, and seconds over all steps.

    `CategoryTimes` explains ``union_s``, ``exposed_s`` and ``spent_s``, which have one value per category. `InputBound`
    explains ``waited_s`` and ``remedies_s``.
    """
    times = category_times(runtime)
    limit = input_bound(runtime, times)
    return {
        "steps": len(runtime.steps.number),
        "events": len(runtime.work),
        "uncategorised": len(runtime.events.with_words("kind", UNCATEGORISED)),
        "dropped": runtime.dropped,
        "steps_s": limit.steps_s,
        "waited_s": limit.waited_s,
        "remedies_s": limit.remedies,
        **{
            f"{time}_s": {name: int(times_ns.sum()) / NS for name, times_ns in getattr(times, time).items()}
            for time in ("union", "exposed", "spent")
        },
    }
