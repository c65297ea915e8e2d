"""TensorFlow's events on one clock with what else was seen of a run: POSIX calls, the time log, the system trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.timelog.intervals import length_by, union
from analysis.timelog.log import Log
from analysis.traces import posix
from analysis.traces.categories import CATEGORIES
from analysis.traces.shares import NS, Covered, both
from analysis.traces.system import Trace, TraceError
from analysis.traces.tensorflow_events import KINDS, Runtime

READ = KINDS.index("read")
MARKS = "campaign "  # begins the name of what a benchmark says of itself, which is no operation


def calls(runtime: Runtime, profile: posix.Profile) -> dict[str, Any]:
    """Return what read operations spent in POSIX calls, and what of them is neither: queues, copies, locks.

    A call is inside an operation that its thread was in from its start to its end; of one operation inside another
    the time counts once. TensorFlow and the kernel number threads differently, so a thread of the one is that of the
    other in whose operations most of its calls lie.
    Raises TraceError: the profile has no single calls, or is not of that time.
    """
    own = posix.one_by_one(profile)
    _meet(runtime, profile.started_ns / NS, profile.started_ns / NS + profile.wall_s)
    start, end = (
        profile.started_ns + np.round(own[edge].to_numpy() * NS).astype(np.int64) for edge in ("start_s", "end_s")
    )
    marks = np.array([name.startswith(MARKS) for name in runtime.ops], bool)
    reads = np.flatnonzero((runtime.category == READ) & ~marks[runtime.op])
    reads = reads[np.argsort(runtime.line[reads], kind="stable")]
    line, held = _lines(runtime, reads, own["thread"].to_numpy(), start, end)
    spent = length_by(line[held], start[held], end[held]) / NS
    whole = length_by(runtime.line[reads].astype(np.int64), runtime.start[reads], runtime.end[reads]) / NS
    moved = own["bytes"].where(own["kind"] == posix.READ, 0).to_numpy()
    steps = runtime.steps
    of_step = np.searchsorted(steps.start, start, "right") - 1
    known = (of_step >= 0) & (start < steps.end[of_step])
    return {
        "operations": len(reads), "operations_s": whole, "calls": int(held.sum()), "calls_s": spent,
        "bytes": int(moved[held].sum()), "neither_s": whole - spent,
        "calls_outside": int((~held).sum()), "bytes_outside": int(moved[~held].sum()),
        "bytes_of_each_step": np.bincount(of_step[known], moved[known], len(steps.number)).astype(int).tolist(),
    }  # fmt: skip


def _lines(runtime: Runtime, reads: Any, thread: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Return of each call the line in whose reads it lies, and whether most of its thread's calls lie in that one's.

    `reads` are events in the order of their lines; each line is held against the calls that begin meanwhile.
    """
    _, thread = np.unique(thread, return_inverse=True)
    order = np.argsort(start, kind="stable")
    sorted_, most = start[order], np.zeros(thread.max(initial=-1) + 1, np.int64)
    best, owner = np.full(len(most), -1), np.full(len(start), -1)
    for own in np.split(reads, np.flatnonzero(np.diff(runtime.line[reads])) + 1):
        spans = union(runtime.start[own], runtime.end[own])
        if not len(spans.start):
            continue
        near = order[np.searchsorted(sorted_, spans.start[0]) : np.searchsorted(sorted_, spans.end[-1], "right")]
        inside = near[end[near] <= spans.end[np.searchsorted(spans.start, start[near], "right") - 1]]
        found = np.bincount(thread[inside], minlength=len(most))
        better = found > most
        most[better], best[better] = found[better], runtime.line[own[0]]
        owner[inside[better[thread[inside]]]] = runtime.line[own[0]]
    return owner, (owner >= 0) & (owner == best[thread])


def time_log(runtime: Runtime, log: Log) -> dict[str, dict[str, float]]:
    """Return of each action of a time log how long, within the steps, a category went on meanwhile: seconds.

    Raises TraceError: it is not of that time.
    """
    steps, found = runtime.steps, {}
    if len(log.events.start_ns):
        _meet(runtime, log.events.start_ns.min() / NS, log.events.end_ns.max() / NS)
    spans = {name: union(*runtime.of(name)) for name in CATEGORIES}
    for code, events in log.events.by("action"):
        action = union(events.start_ns, events.end_ns)
        within = {name: Covered(both(action, each)).within(steps.start, steps.end) for name, each in spans.items()}
        whole = Covered(action).within(steps.start, steps.end)
        times = {"all": whole, **within}
        found[log.actions[code]] = {name: float(each.sum()) / NS for name, each in times.items()}
    return found


def system(runtime: Runtime, trace: Trace) -> dict[str, Any]:
    """Return the MB that the system trace's counter moved in each step, by the rate of each of its intervals.

    Raises TraceError: it is not of that time, or does not say of which.
    """
    edges = np.stack(runtime.steps[1:], axis=1).ravel() / NS
    _meet(runtime, *(trace.began_s + float(trace.samples["elapsed_s"].iloc[place]) for place in (0, -1)))
    return {"source": trace.source, "mb_of_each_step": trace.mb_between(edges.tolist())[::2].tolist()}


def _meet(runtime: Runtime, first_s: float, last_s: float) -> None:
    """Raise TraceError where what was seen from the one Unix time to the other has no moment of the steps."""
    if last_s < runtime.steps.start.min() / NS or first_s > runtime.steps.end.max() / NS:
        raise TraceError("it is not of the time of the steps")
