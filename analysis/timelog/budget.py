"""Where the wall time of each rank went: to one action at each moment, so that all of it adds up to the wall.

A moment is that of the innermost event of its thread. Where threads or processes of a rank are in different actions, it
is that of the one that comes first in `ACTIONS`: while a rank computes, what is read beside it costs no time. Of words
that are not ours, the action whose events are shorter comes first, for it is the inner one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.timelog.intervals import Times, innermost, union, without
from analysis.timelog.log import Events, Log

UNACCOUNTED = "unaccounted"


@dataclass(frozen=True)
class Budget:
    """A rank's time, by action and what is left, in ns: `spent_ns` adds up to `end_ns` - `start_ns`."""

    rank: int
    start_ns: int
    end_ns: int
    spent_ns: Mapping[str, int]


def budgets(log: Log, ranks: Sequence[int]) -> Iterator[Budget]:
    """Yield the budget of each of these ranks."""
    order, events = _order(log), dict(log.events.by("rank"))
    for rank in ranks:
        own = [stream for stream in log.streams if stream.rank == rank]
        start_ns, end_ns = min(each.start_ns for each in own), max(each.end_ns for each in own)
        spent = _spent(events[rank], order) if rank in events else {}
        named = {log.actions[code]: time_ns for code, time_ns in spent.items()}
        yield Budget(rank, start_ns, end_ns, {**named, UNACCOUNTED: end_ns - start_ns - sum(named.values())})


def _order(log: Log) -> Sequence[int]:
    """Return the actions, first that which takes a moment from those behind it."""
    if log.ours:
        return range(len(log.actions))
    means = {code: float(own.taken_ns.mean()) for code, own in log.events.by("action")}
    return sorted(means, key=means.__getitem__)


def _spent(events: Events, order: Sequence[int]) -> Mapping[int, int]:
    """Return the time of each action that took some, in ns."""
    pieces = [
        np.empty((3, 0), np.int64),
        *(_pieces(own) for _, each in events.by("stream") for _, own in each.by("thread")),
    ]
    action, start, end = np.concatenate(pieces, axis=1)
    spent = {}
    taken = union(start[:0], end[:0])
    for code in order:
        here = action == code
        if here.any():
            spent[code] = without(union(start[here], end[here]), taken).length
            taken = union(np.append(taken.start, start[here]), np.append(taken.end, end[here]))
    return spent


def _pieces(events: Events) -> Times:
    place, start, end = innermost(events.start_ns, events.end_ns)
    return np.array([events.action[place], start, end])
