"""Where the time of a trace's steps went, as JSON and as a person reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from analysis.text.plain import number, one_line, share
from analysis.timelog.intervals import union
from analysis.traces.bound import bound
from analysis.traces.categories import COMMUNICATION, SPENT
from analysis.traces.shares import NS, Covered, Shares, shares
from analysis.traces.tensorflow_events import KINDS, UNCATEGORISED, Runtime

TIMES = ("spent", "elapsed", "sum", "union", "exposed")
MOST_NAMED = 5


def figures(runtime: Runtime) -> dict[str, Any]:
    """Return all that is known of a process's steps: seconds, over all steps and of each."""
    found = shares(runtime)
    steps, verdict = found.steps, bound(runtime, found)
    length = (steps.end - steps.start) / NS
    return {
        "file": runtime.name,
        "events": len(runtime.op),
        "dropped": runtime.dropped,
        "uncategorised": _uncategorised(runtime),
        "steps": len(steps.number),
        "steps_marked": runtime.marked,
        "steps_s": float(length.sum()),
        "window": {"first_step": int(steps.number.min()), "last_step": int(steps.number.max()),
                   "span_s": float(steps.end.max() - steps.start.min()) / NS},
        "seconds": {name: _sums(found, name) for name in SPENT},
        "overlap_s": {f"{one} & {other}": each for (one, other), each in found.overlap.items()},
        "operations": {name: float(each.mean()) for name, each in operations(runtime).items()},
        "verdict": {"waited_s": verdict.waited_s, "share": verdict.share, "words": verdict.words,
                    "prefetched": verdict.prefetched, "remedies_s": verdict.named},
        "each_step": [
            {"step": int(steps.number[at]), "start_ns": int(steps.start[at]), "span_s": float(length[at]),
             "spent_s": {name: float(each[at]) for name, each in found.spent.items()}}
            for at in range(len(steps.number))
        ],
    }  # fmt: skip


def _sums(found: Shares, name: str) -> dict[str, float]:
    times = {f"{time}_s": getattr(found, time).get(name) for time in TIMES}
    return {time: float(each.sum()) for time, each in times.items() if each is not None}


def _uncategorised(runtime: Runtime) -> dict[str, Any]:
    here = runtime.category == KINDS.index(UNCATEGORISED)
    names = Counter(dict(zip(*np.unique(runtime.op[here], return_counts=True), strict=True))).most_common(MOST_NAMED)
    busy = union(runtime.start[here], runtime.end[here]).length / NS
    return {"events": int(here.sum()), "union_s": busy, "most": {runtime.ops[op]: int(count) for op, count in names}}


def operations(runtime: Runtime) -> dict[str, Any]:
    """Return of each step the four numbers of *TensorFlow Runtime Metadata Visualization*, by its definitions.

    ``iteration_s``: from the first operation's start to the last one's end; ``communication_elapsed_s``: the same of
    those that communicate; ``communication_s``: their union; ``computation_s``: the union of all operations, those
    that communicate included.
    """
    steps, each = runtime.steps, runtime.operations
    talks = each & (runtime.category == KINDS.index(COMMUNICATION))
    every, talking = (Covered(union(runtime.start[here], runtime.end[here])) for here in (each, talks))
    return {
        "iteration_s": every.elapsed(steps.start, steps.end) / NS,
        "communication_elapsed_s": talking.elapsed(steps.start, steps.end) / NS,
        "communication_s": talking.within(steps.start, steps.end) / NS,
        "computation_s": every.within(steps.start, steps.end) / NS,
    }


def told(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield a table that adds up to the steps, the four numbers, and the verdict."""
    steps = "steps" if found["steps_marked"] else "span without marked steps"
    yield Text(
        f"{one_line(found['file'])}: {found['steps']} {steps}, {found['steps_s']:.3f} s; {found['events']:,} events"
    )
    yield Text(_window(found))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("seconds of", no_wrap=True)
    for name in ("spent", "share", *TIMES[1:]):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in found["seconds"].items():
        part = share(each["spent_s"] / found["steps_s"], 1) if found["steps_s"] else ""
        rest = [number(each[f"{time}_s"]) if f"{time}_s" in each else "" for time in TIMES[1:]]
        table.add_row(name, number(each["spent_s"]), part, *rest)
    table.add_row("all steps", number(found["steps_s"]), share(1.0, 1))
    yield table
    means = found["operations"]
    yield Text(
        f"operations of a step, mean: iteration {number(means['iteration_s'])} s, computation"
        f" {number(means['computation_s'])} s, communication {number(means['communication_s'])} s"
        f" (elapsed {number(means['communication_elapsed_s'])} s)"
    )
    yield from map(Text, _beside(found))
    odd = found["uncategorised"]
    if odd["events"]:
        most = ", ".join(f"{one_line(name)} ({count:,})" for name, count in odd["most"].items())
        yield Text(f"uncategorised, counted as other: {odd['events']:,} events, {number(odd['union_s'])} s: {most}")
    yield Text(found["verdict"]["words"])


def _window(found: Mapping[str, Any]) -> str:
    """Return which part of a training was traced: its start, its snapshots and its later epochs may be outside."""
    window = found["window"]
    which = f", steps {window['first_step']} to {window['last_step']}" if found["steps_marked"] else ""
    return f"this is a window of {number(window['span_s'])} s{which}, not the whole training: the rest may be otherwise"


def _beside(found: Mapping[str, Any]) -> Iterator[str]:
    if calls := found.get("posix"):
        spent, called, rest = (number(calls[f"{name}_s"]) for name in ("operations", "calls", "neither"))
        yield (
            f"{calls['operations']:,} read operations, {spent} s: {calls['calls']:,} POSIX calls with"
            f" {calls['bytes'] / 1e6:,.1f} MB, {called} s; neither, {rest} s;"
            f" {calls['calls_outside']:,} calls are in none"
        )
    if moved := found.get("system"):
        yield f"{sum(moved['mb_of_each_step']):,.1f} MB in the steps by {one_line(moved['source'])} of the system trace"
    for action, times in found.get("timelog", {}).items():
        parts = ", ".join(f"{name} {number(each)}" for name, each in times.items() if each and name != "all")
        yield f"during {one_line(action)}, {number(times['all'])} s: {parts or 'nothing'}"
