"""Intervals of time, and what is made of them: their union, what one set leaves of another, who was innermost.

Times are whole nanoseconds as int64. An interval is half open; one without length holds no time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Spans(NamedTuple):
    """Intervals that neither overlap nor touch, in their order."""

    start: Times
    end: Times

    @property
    def length(self) -> int:
        """Return the time in all of them."""
        return int((self.end - self.start).sum())


def union(start: Times, end: Times) -> Spans:
    """Return the time that is in any of the intervals; those that touch become one."""
    long = end > start
    start, end = start[long], end[long]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > reach[:-1]
    return Spans(start[first], reach[np.roll(first, -1)])


def length_by(group: Times, start: Times, end: Times) -> int:
    """Return the lengths of the unions of each group's intervals, added; groups are numbers from 0 to 2^31.

    Without a step for each group: there may be as many as intervals.
    """
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    count, by_end = len(end), np.argsort(end)
    place = np.empty(count, np.int64)
    place[by_end] = np.arange(count)
    latest = np.maximum.accumulate(group * count + place) % max(count, 1)  # of a group, none of those before it
    first = np.diff(group, prepend=-1) != 0
    reach = np.where(first, start, np.roll(end[by_end[latest]], 1))
    return int(np.maximum(end - np.maximum(start, reach), 0).sum())


def without(spans: Spans, others: Spans) -> Spans:
    """Return the time of some spans that is not in the others."""
    if not len(spans.start):
        return spans
    # Of many others, only those from the first moment to the last one.
    near = slice(np.searchsorted(others.end, spans.start[0]), np.searchsorted(others.start, spans.end[-1]))
    others = Spans(others.start[near], others.end[near])
    edges = np.sort(np.concatenate([*spans, *others]))  # np.unique hashes, which takes seconds for stamps like these
    left, right = edges[:-1], edges[1:]
    kept = _inside(spans, left) & ~_inside(others, left)
    return union(left[kept], right[kept])


def _inside(spans: Spans, moments: Times) -> npt.NDArray[np.bool_]:
    return np.searchsorted(spans.start, moments, "right") > np.searchsorted(spans.end, moments, "right")


def innermost(start: Times, end: Times) -> tuple[Times, Times, Times]:
    """Return pieces of time, each with the interval that began last of those it is in: its place, start and end.

    Of two that began together, the shorter one is the inner one; of two alike the one that comes first, for an event is
    logged when it ends.
    """
    pieces = np.fromiter(itertools.chain.from_iterable(_pieces(start, end)), dtype=np.int64).reshape(-1, 3)
    return pieces[:, 0], pieces[:, 1], pieces[:, 2]


def _pieces(start: Times, end: Times) -> Iterator[tuple[int, int, int]]:
    order = np.lexsort((-np.arange(len(start)), -end, start))
    begins, ends = [*start[order].tolist(), None], end[order].tolist()
    open_: list[int] = []  # those that have begun, the innermost at the end
    at = 0  # up to when time is given away
    for place, begin in enumerate(begins):
        while open_ and (begin is None or at < begin):
            inner = open_[-1]
            until = ends[inner] if begin is None else min(ends[inner], begin)
            if until > at:
                yield int(order[inner]), at, until
                at = until
            if ends[inner] <= at:
                open_.pop()
        if begin is not None:
            at = begin
            open_.append(place)
