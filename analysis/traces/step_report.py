"""Report how the steps in a TensorFlow trace spent their time, as JSON and as text.

A trace can be combined with the profile of POSIX calls, the time log and the system trace of the same run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from analysis.text import number, one_line, percentage
from analysis.traces import posix
from analysis.traces.action_times import time_table
from analysis.traces.system import ReadTrace, TraceError
from jobs.events.intervals import intersection, length_by
from jobs.events.posix_window import KINDS, READ, Window
from jobs.events.run_log import RunLog
from jobs.events.step_times import (
    CategoryTimes,
    InputBound,
    category_overlaps,
    category_times,
    input_bound,
)
from jobs.events.table import NS, Events
from jobs.events.tensorflow_trace import CATEGORIES, COMMUNICATION, REMEDIES, SPENT, UNCATEGORISED, Runtime

READS = "read"
PYTHON = "a Python function of the pipeline took {:.3g} s: the trace does not show whether it reads or computes"
TIMES = ("spent", "elapsed", "sum", "union", "exposed")
MOST_NAMED = 5
# With a larger share of the steps' time in intervals that the steps share with other work, the MB read are unknown.
LARGEST_EDGE_SHARE = 0.2


def step_metrics(runtime: Runtime) -> dict[str, Any]:
    """Return all metrics of the steps of one process: totals over all steps, and the metrics of each step."""
    times = category_times(runtime)
    steps, verdict = runtime.steps, input_bound(runtime, times)
    length = (steps.end - steps.start) / NS
    return {
        "file": runtime.name,
        "events": len(runtime.events),
        "dropped": runtime.dropped,
        "uncategorised": _uncategorised(runtime),
        "steps": len(steps.number),
        "steps_marked": runtime.has_marks,
        "steps_s": float(length.sum()),
        "window": {"first_step": int(steps.number.min()), "last_step": int(steps.number.max()),
                   "span_s": float(steps.end.max() - steps.start.min()) / NS},
        "seconds": {name: _sums(times, name) for name in SPENT},
        "overlap_s": {f"{one} & {other}": each for (one, other), each in category_overlaps(runtime).items()},
        "operations": {name: float(each.mean()) for name, each in operations_per_step(runtime).items()},
        "verdict": {"waited_s": verdict.waited_s, "share": verdict.share, "words": _words(verdict, _python_s(runtime)),
                    "prefetched": verdict.has_prefetch, "remedies_s": verdict.named},
        "each_step": [
            {"step": int(steps.number[at]), "start_ns": int(steps.start[at]), "span_s": float(length[at]),
             "spent_s": {name: int(each[at]) / NS for name, each in times.spent.items()}}
            for at in range(len(steps.number))
        ],
    }  # fmt: skip


def _sums(times: CategoryTimes, name: str) -> dict[str, float]:
    of_name = {f"{time}_s": getattr(times, time).get(name) for time in TIMES}
    return {time: int(each.sum()) / NS for time, each in of_name.items() if each is not None}


def _uncategorised(runtime: Runtime) -> dict[str, Any]:
    events = runtime.events.with_words("kind", UNCATEGORISED)
    names = Counter(dict(zip(*np.unique(events["name"], return_counts=True), strict=True))).most_common(MOST_NAMED)
    most = {events.words["name"][name]: int(count) for name, count in names}
    return {"events": len(events), "union_s": events.spans.length / NS, "most": most}


def _python_s(runtime: Runtime) -> float:
    """Return the seconds of the steps in which a Python function of the pipeline ran."""
    is_python = np.array([name.endswith(("PyFunc", "PyFuncStateless")) for name in runtime.events.words["name"]], bool)
    spans = runtime.events.selected(is_python[runtime.events["name"]]).spans
    return float(spans.length_within(runtime.steps.start, runtime.steps.end).sum()) / NS


def _words(verdict: InputBound, python_s: float) -> str:
    """Return in words whether the steps are input-bound, and which remedies would save how much time."""
    amount = f"{verdict.waited_s:.3g} of {verdict.steps_s:.3g} s ({percentage(verdict.share, 1)})"
    if verdict.verdict is None:
        most_s = verdict.waited_s + verdict.unknown_s
        most = f"{most_s:.3g} s ({percentage(most_s / verdict.steps_s, 1)})"
        return f"undecided: the steps waited for input during at least {amount}, at most {most}: the rest is unknown"
    if not verdict.verdict:
        return f"not input-bound: the steps waited for input during {amount}"
    saves = "; ".join(
        PYTHON.format(python_s)
        if what == READS and python_s > verdict.remedies[READS] / 2
        else f"{REMEDIES[what]}: at most {saved:.3g} s"
        for what, saved in verdict.named.items()
    )
    in_use = ". The pipeline already prefetches" if verdict.has_prefetch else ""
    remedies = f"Remedies and the time that they save: {saves or 'not known'}"
    return f"input-bound: the steps waited for input during {amount}. {remedies}{in_use}"


def operations_per_step(runtime: Runtime) -> dict[str, Any]:
    """Return four times per step, as *TensorFlow Runtime Metadata Visualization* defines them.

    ``iteration_s`` is the time from the start of the first operation to the end of the last operation.
    ``communication_elapsed_s`` is the time from the start of the first communication operation to the end of the last
    communication operation. ``communication_s`` is the time in which at least one communication operation runs.
    ``computation_s`` is the time in which at least one operation of any kind runs.
    """
    steps, operations = runtime.steps, runtime.operations
    every, talking = operations.spans, operations.with_words("kind", COMMUNICATION).spans
    return {
        "iteration_s": every.elapsed(steps.start, steps.end) / NS,
        "communication_elapsed_s": talking.elapsed(steps.start, steps.end) / NS,
        "communication_s": talking.length_within(steps.start, steps.end) / NS,
        "computation_s": every.length_within(steps.start, steps.end) / NS,
    }


def step_tables(metrics: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the report on the steps of one process for a terminal.

    The report has a table of times per category, the four times of `operations_per_step`, and the verdict. The column
    `spent` of the table adds up to the time of all steps.
    """
    steps = "steps" if metrics["steps_marked"] else "span without marked steps"
    yield Text(
        f"{one_line(metrics['file'])}: {metrics['steps']} {steps}, {metrics['steps_s']:.3f} s;"
        f" {metrics['events']:,} events"
    )
    yield Text(_window(metrics))
    table = time_table("seconds of", ("spent", "share", *TIMES[1:]))
    for name, each in metrics["seconds"].items():
        part = percentage(each["spent_s"] / metrics["steps_s"], 1) if metrics["steps_s"] else ""
        rest = [number(each[f"{time}_s"]) if f"{time}_s" in each else "" for time in TIMES[1:]]
        table.add_row(name, number(each["spent_s"]), part, *rest)
    table.add_row("all steps", number(metrics["steps_s"]), percentage(1.0, 1))
    yield table
    means = metrics["operations"]
    yield Text(
        f"mean times of a step's operations: iteration {number(means['iteration_s'])} s, computation"
        f" {number(means['computation_s'])} s, communication {number(means['communication_s'])} s"
        f" (elapsed {number(means['communication_elapsed_s'])} s)"
    )
    yield from map(Text, _beside(metrics))
    other = metrics["uncategorised"]
    if other["events"]:
        most = ", ".join(f"{one_line(name)} ({count:,})" for name, count in other["most"].items())
        yield Text(f"uncategorised, counted as other: {other['events']:,} events, {number(other['union_s'])} s: {most}")
    yield Text(metrics["verdict"]["words"])


def _window(metrics: Mapping[str, Any]) -> str:
    """Return a sentence that names the traced part of the training."""
    window = metrics["window"]
    which = f", steps {window['first_step']} to {window['last_step']}" if metrics["steps_marked"] else ""
    span = f"{number(window['span_s'])} s{which}"
    return f"the trace covers {span}, and not the whole training: other steps may spend their time differently"


def _beside(metrics: Mapping[str, Any]) -> Iterator[str]:
    if calls := metrics.get("posix"):
        spent, called, rest = (number(calls[f"{name}_s"]) for name in ("operations", "calls", "neither"))
        yield (
            f"{calls['operations']:,} read operations took {spent} s: {called} s in {calls['calls']:,} POSIX calls with"
            f" {calls['bytes'] / 1e6:,.1f} MB, and {rest} s outside POSIX calls;"
            f" {calls['calls_outside']:,} POSIX calls belong to no read operation"
        )
    if system := metrics.get("system"):
        moved_mb = sum(system["mb_of_each_step"])
        source = one_line(system["source"])
        yield (
            f"{moved_mb:,.1f} MB were read in the steps, by the counter {source} of the system trace"
            if system["edge_share"] <= LARGEST_EDGE_SHARE
            else "the MB that were read in the steps are unknown: the intervals of the system trace are too long for"
            f" {number(metrics['window']['span_s'])} s of steps; cure: measure with a smaller trace.interval_s, or"
            " trace more steps"
        )
    for action, times in metrics.get("timelog", {}).items():
        parts = ", ".join(f"{name} {number(each)}" for name, each in times.items() if each and name != "all")
        took = f"the action {one_line(action)} took {number(times['all'])} s of the steps"
        yield f"{took}, with seconds of: {parts or 'no category'}"


MARKS = "campaign "  # prefix of the names of annotations by our benchmarks, which are not TensorFlow operations


def join_calls(runtime: Runtime, profile: Window) -> dict[str, Any]:
    """Return the time that read operations spent in POSIX calls, and outside POSIX calls (queues, copies, locks).

    A call belongs to an operation if the thread of the call was in this operation during the whole call. The time of
    nested operations counts once. TensorFlow and the kernel number threads differently, so a kernel thread is matched
    with the TensorFlow thread whose operations contain most calls of the kernel thread.

    Raises TraceError if the profile has no single calls, or if the profile and the steps do not overlap in time.
    """
    own = posix.calls_of_window(profile)
    _meet(runtime, profile.started_ns / NS, profile.ended_ns / NS)
    start, end = own["start"], own["end"]
    marks = np.array([name.startswith(MARKS) for name in runtime.events.words["name"]], bool)
    reads = runtime.of("read")
    reads = reads.selected(~marks[reads["name"]])
    line, is_inside = _lines(reads, own["thread"], start, end)
    spent = length_by(line[is_inside], start[is_inside], end[is_inside]) / NS
    whole = length_by(reads["thread"].astype(np.int64), reads["start"], reads["end"]) / NS
    moved_bytes = np.where(own["kind"] == KINDS.index(READ), own["bytes"], 0)
    steps = runtime.steps
    of_step = np.searchsorted(steps.start, start, "right") - 1
    in_step = (of_step >= 0) & (start < steps.end[of_step])
    step_bytes = np.bincount(of_step[in_step], moved_bytes[in_step], len(steps.number))
    return {
        "operations": len(reads), "operations_s": whole, "calls": int(is_inside.sum()), "calls_s": spent,
        "bytes": int(moved_bytes[is_inside].sum()), "neither_s": whole - spent,
        "calls_outside": int((~is_inside).sum()), "bytes_outside": int(moved_bytes[~is_inside].sum()),
        "bytes_of_each_step": step_bytes.astype(int).tolist(),
    }  # fmt: skip


def _lines(reads: Events, thread: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Return for each call the trace line (TensorFlow thread) whose read operations contain the call, or -1.

    Also return for each call whether this trace line contains most calls of the call's kernel thread. To save time, a
    trace line is compared only with the calls that begin between its first and its last read operation.
    """
    _, thread = np.unique(thread, return_inverse=True)
    order = np.argsort(start, kind="stable")
    sorted_, most = start[order], np.zeros(thread.max(initial=-1) + 1, np.int64)
    best, owner = np.full(len(most), -1), np.full(len(start), -1)
    for line, own in reads.grouped_by("thread"):
        spans = own.spans
        if not len(spans.start):
            continue
        near = order[np.searchsorted(sorted_, spans.start[0]) : np.searchsorted(sorted_, spans.end[-1], "right")]
        inside = near[end[near] <= spans.end[np.searchsorted(spans.start, start[near], "right") - 1]]
        counts = np.bincount(thread[inside], minlength=len(most))
        better = counts > most
        most[better], best[better] = counts[better], line
        owner[inside[better[thread[inside]]]] = line
    return owner, (owner >= 0) & (owner == best[thread])


def join_time_log(runtime: Runtime, log: RunLog) -> dict[str, dict[str, float]]:
    """Return for each action of a time log the seconds that the action overlaps with the steps.

    `all` has the total. Each other key is a category, with the seconds in which the action also overlaps with
    operations of this category. Raises TraceError if the time log and the steps do not overlap in time.
    """
    steps, seconds = runtime.steps, {}
    if len(log.events):
        _meet(runtime, log.events["start"].min() / NS, log.events["end"].max() / NS)
    spans = {name: runtime.of(name).spans for name in CATEGORIES}
    for code, events in log.events.grouped_by("kind"):
        action = events.spans
        times = {"all": action} | {name: intersection(action, each) for name, each in spans.items()}
        within = {name: each.length_within(steps.start, steps.end) for name, each in times.items()}
        seconds[log.actions[code]] = {name: float(each.sum()) / NS for name, each in within.items()}
    return seconds


def join_system(runtime: Runtime, trace: ReadTrace) -> dict[str, Any]:
    """Return the MB that were read in each step, interpolated between the samples of the system trace.

    `edge_share` is the share of the steps' time that the intervals of the trace at the first and the last step take.

    Raises TraceError if the system trace and the steps do not overlap in time, or if the system trace has no Unix
    times.
    """
    edges = np.stack(runtime.steps[1:], axis=1).ravel() / NS
    _meet(runtime, *(trace.began_s + float(trace.samples["elapsed_s"].iloc[place]) for place in (0, -1)))
    start_s, end_s = float(edges.min()), float(edges.max())
    return {
        "source": trace.source,
        "mb_of_each_step": trace.mb_between(edges.tolist())[::2].tolist(),
        "edge_share": trace.edge_s(start_s, end_s) / (end_s - start_s),
    }


def _meet(runtime: Runtime, first_s: float, last_s: float) -> None:
    """Raise TraceError if no step overlaps the interval from `first_s` to `last_s` (Unix time)."""
    if last_s < runtime.steps.start.min() / NS or first_s > runtime.steps.end.max() / NS:
        raise TraceError("its times do not overlap with the steps of the trace")
