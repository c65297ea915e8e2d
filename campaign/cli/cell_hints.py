"""Give hints on a cell beside its bound: calls that do not read, batches that nobody prefetches, TensorFlow's trace."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from jobs.events.step_times import SMALLEST_NAMED_SHARE, InputBound
from jobs.events.tensorflow_trace import REMEDIES
from jobs.judging.bound import Bound
from jobs.judging.work_done import StepTimes, metric_values, runs_with_metrics, time_use
from jobs.model.record import Record
from jobs.model.settings import flat_items

_METADATA = 0.3  # smallest share of opening, stat and closing in the time of all calls for a hint


def hints_on(recorded: Record, bound: Bound) -> list[str]:
    """Return the hints on a judged record, each as one sentence."""
    hints, work = [], time_use(recorded)
    calls, traced = _medians(recorded, "profile", "meta_s"), _medians(recorded, "tensorflow", "remedies_s")
    if calls and bound.word not in ("processors", "decoding", "device"):
        share = calls["meta_s"] / ((calls["meta_s"] + calls["read_s"]) or 1.0)
        if share >= _METADATA:
            hints.append(f"{share:.0%} of the time in calls is spent on open, stat and close: fewer, larger files help")
    if work and work.steps and recorded["cell"]["settings"].get("prefetch") == 0 and "prefetch" not in bound.try_:
        hints += _on_prefetch(work.steps)
    if traced:
        saved_s = {name: traced[f"remedies_s.{name}"] for name in REMEDIES}
        waits = InputBound(traced["steps_s"], traced["waited_s"], saved_s)
        remedies = [f"{REMEDIES[name]}: at most {seconds:.3g} s" for name, seconds in waits.named.items()]
        if remedies:
            times = f"{waits.waited_s:.3g} of {waits.steps_s:.3g} s"
            hints.append(f"by TensorFlow's trace the steps wait for input in {times}; {'; '.join(remedies)}")
    return hints


def _on_prefetch(steps: StepTimes) -> list[str]:
    """Return the hint that batches could be made during the steps, or an empty list if that would save little."""
    waited_s, computed_s = steps.each_s
    hidden_s = min(waited_s, computed_s)
    if steps.number < 2 or hidden_s < SMALLEST_NAMED_SHARE * (waited_s + computed_s):  # noqa: PLR2004 - one batch ahead
        return []
    times = f"{hidden_s:.3g} of the {waited_s:.3g} s for a batch can pass during a step of {computed_s:.3g} s"
    return [f"no batch is made ahead: up to {times} (prefetch=1)"]


def _medians(recorded: Record, part: str, needed: str) -> Mapping[str, float]:
    """Return the medians over the runs of the numbers in a part of the runs, if the part has the key `needed`."""
    runs: Any = runs_with_metrics(recorded)
    parts = [dict(flat_items(run[part])) for run in runs if needed in (run.get(part) or {})]
    by_name = {name: metric_values(parts, name) for name in (parts[0] if parts else ())}
    return {name: statistics.median(values) for name, values in by_name.items() if values}
