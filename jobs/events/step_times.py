"""The time of a process's steps by category of TensorFlow's events, and whether the steps wait for their input.

The time grows with the number of events (once per category) and with the number of steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jobs.events.intervals import Times, intersection, shared_out, without
from jobs.events.table import NS
from jobs.events.tensorflow_trace import (
    CATEGORIES,
    CHECKPOINT,
    COMPUTE,
    INPUT,
    UNACCOUNTED,
    UNCATEGORISED,
    Runtime,
    Steps,
)


class Shares(NamedTuple):
    """Nanoseconds per category; each value is an array with one number per step.

    ``elapsed``: from the first moment of a category in a step to the last; ``sum``: durations of all its events;
    ``union``: time with at least one event; ``exposed``: ``union`` without the time in which the rank computes;
    ``spent``: each moment counts for one category, and with ``unaccounted`` they add up to the step.
    """

    elapsed: Mapping[str, Any]
    sum: Mapping[str, Any]
    union: Mapping[str, Any]
    exposed: Mapping[str, Any]
    spent: Mapping[str, Any]


def shares(runtime: Runtime) -> Shares:
    """Return the times of each category in the steps; ``spent`` leaves out checkpoints that other threads write."""
    steps, events = runtime.steps, {name: runtime.of(name) for name in CATEGORIES}
    spans = {name: each.spans for name, each in events.items()}
    exposed = {name: each if name == COMPUTE else without(each, spans[COMPUTE]) for name, each in spans.items()}
    in_front = {**spans, CHECKPOINT: runtime.in_front(events[CHECKPOINT]).spans}
    own_spans = dict(zip(CATEGORIES, shared_out([*in_front.values()]), strict=True))
    spent = {name: each.within(steps.start, steps.end) for name, each in own_spans.items()}
    return Shares(
        {name: each.elapsed(steps.start, steps.end) for name, each in spans.items()},
        {name: _sum_within(each["start"], each["end"], steps) for name, each in events.items()},
        {name: each.within(steps.start, steps.end) for name, each in spans.items()},
        {name: each.within(steps.start, steps.end) for name, each in exposed.items()},
        {**spent, UNACCOUNTED: steps.end - steps.start - sum(spent.values())},
    )


def overlaps(runtime: Runtime) -> dict[tuple[str, str], float]:
    """Return the seconds in which both categories of a pair went on, over all steps, for each pair."""
    spans, steps = {name: runtime.of(name).spans for name in CATEGORIES}, runtime.steps
    together = {pair: intersection(*(spans[name] for name in pair)) for pair in itertools.combinations(CATEGORIES, 2)}
    return {pair: float(each.within(steps.start, steps.end).sum()) / NS for pair, each in together.items()}


def _sum_within(start: Times, end: Times, steps: Steps) -> Times:
    """Return per step the sum of the durations of all events within it, ns."""
    return _time_after(np.sort(start), steps) - _time_after(np.sort(end), steps)


def _time_after(moments: Times, steps: Steps) -> Times:
    """Return per step the sum over all `moments` (sorted) of the time in the step that lies after the moment, ns."""
    first = int(moments[:1].sum())
    total = np.concatenate([[0], np.cumsum(moments - first)])
    places: list[Times] = [np.searchsorted(moments, edge) for edge in steps[1:]]
    times: list[Times] = [at * (edge - first) - total[at] for edge, at in zip(steps[1:], places, strict=True)]
    return times[1] - times[0]


LEAST = 0.05
"""Least share of the steps' time that waiting for input must take to count (two runs of a cell differ by up to 4 %);
also the least share of the waiting that a remedy must save to be named."""
_MAKING = INPUT[:2]  # reading and decoding


class Bound(NamedTuple):
    """The time that steps wait for their input (seconds), and the most that each remedy can save."""

    steps_s: float
    waited_s: float  # seconds in which the rank only waited for input
    remedies: Mapping[str, float]
    prefetched: bool = False  # whether the pipeline already prefetches

    @property
    def share(self) -> float:
        """Return the share of the steps' time that is waiting for input."""
        return self.waited_s / self.steps_s if self.steps_s else 0.0

    @property
    def named(self) -> dict[str, float]:
        """Return the remedies that save enough to be named (seconds), best first; empty if the input costs little."""
        best = sorted(self.remedies.items(), key=lambda each: -each[1])
        return {what: saved for what, saved in best if saved > LEAST * self.waited_s and self.share >= LEAST}


def bound(runtime: Runtime, times: Shares) -> Bound:
    """Return how long the steps wait for their input, and the most that each remedy saves.

    Prefetching runs the input during the rank's other work: it saves at most the waiting, and at most the part of that
    work during which no input runs yet; nothing if it is already in use. The other remedies save at most the time
    spent on their category.
    """
    spent, steps = {name: int(each.sum()) for name, each in times.spent.items()}, runtime.steps
    waited = sum(spent[name] for name in INPUT)
    busy = sum(spent[name] for name in CATEGORIES[: CATEGORIES.index(INPUT[0])])
    making_ns = int(runtime.of(*_MAKING).spans.within(steps.start, steps.end).sum())
    hidden = making_ns - sum(spent[name] for name in _MAKING)
    ahead = 0 if runtime.prefetched else max(0, min(waited, busy - hidden))
    remedies = {"prefetch": ahead} | {name: spent[name] for name in INPUT}
    seconds = {name: saved / NS for name, saved in remedies.items()}
    return Bound(int((steps.end - steps.start).sum()) / NS, waited / NS, seconds, runtime.prefetched)


def metrics(runtime: Runtime) -> dict[str, Any]:
    """Return a record's metrics of the steps of a run: numbers of steps and events, and seconds over all steps.

    ``union_s``, ``exposed_s`` and ``spent_s`` by category, as in `Shares`; ``waited_s`` and ``remedies_s`` as in
    `Bound`.
    """
    times = shares(runtime)
    verdict = bound(runtime, times)
    return {
        "steps": len(runtime.steps.number),
        "events": len(runtime.work),
        "uncategorised": len(runtime.events.of("kind", UNCATEGORISED)),
        "dropped": runtime.dropped,
        "steps_s": verdict.steps_s,
        "waited_s": verdict.waited_s,
        "remedies_s": verdict.remedies,
        **{
            f"{time}_s": {name: int(each.sum()) / NS for name, each in getattr(times, time).items()}
            for time in ("union", "exposed", "spent")
        },
    }
