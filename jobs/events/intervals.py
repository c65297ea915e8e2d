"""Calculate with intervals of time: union, intersection, difference, length within steps, and innermost interval.

Times are whole nanoseconds as int64. Intervals are half open, so an interval whose start equals its end is empty. The
running time of every function is about the time to sort the intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Moments = npt.NDArray[np.bool_]


class Spans(NamedTuple):
    """Sorted intervals that neither overlap nor touch."""

    start: Times
    end: Times

    @property
    def length(self) -> int:
        """Return the sum of the lengths of all spans, in ns."""
        return int((self.end - self.start).sum())

    def length_before(self, moments: Times) -> Times:
        """Return for each moment the total length of the spans before the moment, in ns."""
        if not len(self.start):
            return np.zeros(len(moments), np.int64)
        count = np.searchsorted(self.start, moments, "right")  # number of spans that have begun at each moment
        length_before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        overshoot = np.where(count > 0, self.end[count - 1] - moments, 0)
        return length_before[count] - np.maximum(overshoot, 0)

    def length_within(self, start: Times, end: Times) -> Times:
        """Return for each interval the total length of the spans inside the interval, in ns."""
        return self.length_before(end) - self.length_before(start)

    def elapsed(self, start: Times, end: Times) -> Times:
        """Return for each interval the time from the start of its first span to the end of its last span, in ns.

        A span that is partly outside the interval is cut at the edge of the interval.
        """
        if not len(self.start):
            return np.zeros(len(start), np.int64)
        first = np.minimum(np.searchsorted(self.end, start, "right"), len(self.start) - 1)
        last = np.maximum(np.searchsorted(self.start, end) - 1, 0)
        edges = np.maximum(self.start[first], start), np.minimum(self.end[last], end)
        return np.where(self.length_within(start, end) > 0, edges[1] - edges[0], 0)


def union(start: Times, end: Times) -> Spans:
    """Return the union of intervals; touching intervals are joined."""
    is_long = end > start
    start, end = start[is_long], end[is_long]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > reach[:-1]
    return Spans(start[first], reach[np.roll(first, -1)])


def length_by(group: Times, start: Times, end: Times) -> int:
    """Return the sum over all groups of the length of the union of the group's intervals, in ns.

    `group` has the group number of each interval (0 to 2^31). The function does not loop over the groups, because
    there may be as many groups as intervals.
    """
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    count, by_end = len(end), np.argsort(end)
    rank_of_end = np.empty(count, np.int64)
    rank_of_end[by_end] = np.arange(count)
    # The maximum starts again in each group, because `group * count` is larger than all numbers of earlier groups.
    latest = np.maximum.accumulate(group * count + rank_of_end) % max(count, 1)
    first = np.diff(group, prepend=-1) != 0
    reach = np.where(first, start, np.roll(end[by_end[latest]], 1))
    return int(np.maximum(end - np.maximum(start, reach), 0).sum())


def time_outside(spans: Spans, others: Spans) -> Spans:
    """Return the spans of time that are in `spans` but not in `others`."""
    left, right, in_spans, in_others = _cut_pieces(spans, others)
    return union(left[in_spans & ~in_others], right[in_spans & ~in_others])


def intersection(spans: Spans, others: Spans) -> Spans:
    """Return the spans of time that are in `spans` and also in `others`."""
    left, right, in_spans, in_others = _cut_pieces(spans, others)
    return union(left[in_spans & in_others], right[in_spans & in_others])


def without_earlier(spans: Sequence[Spans]) -> list[Spans]:
    """Return each element of `spans` without the time of the earlier elements.

    In the result, no moment belongs to two elements.
    """
    shares, earlier = [], Spans(*np.empty((2, 0), np.int64))
    for element in spans:
        shares.append(time_outside(element, earlier))
        earlier = union(*(np.concatenate(edges) for edges in zip(earlier, element, strict=True)))
    return shares


def _cut_pieces(spans: Spans, others: Spans) -> tuple[Times, Times, Moments, Moments]:
    """Cut the time into pieces at all edges of `spans` and `others`.

    Return four arrays: starts of the pieces, ends of the pieces, whether a piece is in `spans`, and whether a piece is
    in `others`.
    """
    nearby = slice(0)  # selects the elements of `others` within the range of `spans`
    if len(spans.start):
        nearby = slice(np.searchsorted(others.end, spans.start[0]), np.searchsorted(others.start, spans.end[-1]))
    others = Spans(others.start[nearby], others.end[nearby])
    edges = np.sort(np.concatenate([*spans, *others]))  # np.unique uses hashing, which takes seconds here
    left, right = edges[:-1], edges[1:]
    in_spans, in_others = (
        np.searchsorted(intervals.start, left, "right") > np.searchsorted(intervals.end, left, "right")
        for intervals in (spans, others)
    )
    return left, right, in_spans, in_others


def innermost_pieces(start: Times, end: Times) -> tuple[Times, Times, Times]:
    """Cut the time into pieces, and return for each piece the index of the innermost interval, the start and the end.

    The innermost interval at a moment is the interval with the latest start. Among intervals with the same start, the
    shortest interval is innermost. Among equal intervals, the earliest interval in the array is innermost, because an
    event is logged when the event ends.
    """
    pieces = np.fromiter(itertools.chain.from_iterable(_generate_pieces(start, end)), dtype=np.int64).reshape(-1, 3)
    return pieces[:, 0], pieces[:, 1], pieces[:, 2]


def _generate_pieces(start: Times, end: Times) -> Iterator[tuple[int, int, int]]:
    order = np.lexsort((-np.arange(len(start)), -end, start))
    begins, ends = [*start[order].tolist(), None], end[order].tolist()
    open_: list[int] = []  # intervals that have begun; the innermost interval is the last element
    done_until = 0  # the time until which all pieces have been yielded
    for index, begin in enumerate(begins):
        while open_ and (begin is None or done_until < begin):
            innermost_index = open_[-1]
            until = ends[innermost_index] if begin is None else min(ends[innermost_index], begin)
            if until > done_until:
                yield int(order[innermost_index]), done_until, until
                done_until = until
            if ends[innermost_index] <= done_until:
                open_.pop()
        if begin is not None:
            done_until = begin
            open_.append(index)
