"""TensorFlow's events on one clock with what else was seen of a run: POSIX calls, the time log, the system trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.timelog.intervals import union
from analysis.traces import posix
from analysis.traces.runtime import KINDS
from analysis.traces.shares import CATEGORIES, NS, Covered, both
from analysis.traces.system import TraceError

if TYPE_CHECKING:
    from analysis.timelog.log import Log
    from analysis.traces.runtime import Runtime
    from analysis.traces.system import Trace

READ = KINDS.index("read")
MARKS = "campaign "  # begins the name of what a benchmark says of itself, which is no operation


def calls(runtime: Runtime, profile: posix.Profile) -> dict[str, Any]:
    """Return what read operations spent in POSIX calls, and what of them is neither: queues, copies, locks.

    A call is inside an operation that its thread was in from its start to its end. TensorFlow and the kernel number
    threads differently, so a thread of the one is that of the other in whose operations most of its calls lie.
    Raises TraceError: the profile has no single calls, or is not of that time.
    """
    own = posix.one_by_one(profile)
    _meet(runtime, profile.started_ns / NS, profile.started_ns / NS + profile.wall_s)
    start, end = (
        profile.started_ns + np.round(own[edge].to_numpy() * NS).astype(np.int64) for edge in ("start_s", "end_s")
    )
    marks = np.array([name.startswith(MARKS) for name in runtime.ops], bool)
    reads = np.flatnonzero((runtime.category == READ) & ~marks[runtime.op])
    inside = np.full(len(own), -1)
    for thread in np.unique(own["thread"]):
        here = np.flatnonzero(own["thread"] == thread)
        tried = [_inside(runtime, reads[runtime.line[reads] == line], start[here], end[here])
                 for line in np.unique(runtime.line[reads])]  # fmt: skip
        if tried:
            inside[here] = max(tried, key=lambda each: int((each >= 0).sum()))
    held = inside >= 0
    spent = union_by(inside[held], start[held], end[held])
    whole = float((runtime.end[reads] - runtime.start[reads]).sum()) / NS
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


def _inside(runtime: Runtime, reads: Any, start: Any, end: Any) -> Any:
    """Return of each call the operation of a thread that it is inside of; -1 for none."""
    order = reads[np.argsort(runtime.start[reads], kind="stable")]
    place = np.searchsorted(runtime.start[order], start, "right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (end <= runtime.end[found]), found, -1)


def union_by(group: Any, start: Any, end: Any) -> float:
    """Return the time in which calls of each operation went on, added, in seconds."""
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    first = np.ones(len(group), bool)
    first[1:] = group[1:] != group[:-1]
    # calls of one thread do not overlap; a read of a stream has its own within it
    reach = np.maximum(start, np.where(first, 0, np.concatenate([[0], end[:-1]])[: len(end)]))
    return float(np.maximum(end - reach, 0).sum()) / NS


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
