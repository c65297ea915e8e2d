"""How far the clocks of a run's nodes are apart, as its barriers bound it; and its events by one clock.

Nobody leaves a barrier before all have entered it. So with times e at which ranks entered and x at which they left,
each by its own clock, the clock of B is fast against that of A by at least e_B - x_A and at most x_B - e_A, over all
barriers. A barrier that nobody has to wait for bounds it best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.timelog.intervals import Times
from analysis.timelog.log import Events, Stream


@dataclass(frozen=True)
class Clock:
    """How far a clock is ahead of the first one, in ns: from `low` to `high`, None without a barrier.

    `shift_ns` is what its times are moved back by: nothing where 0 is possible, else to the bound that is nearest.
    Where barriers contradict each other, the clocks went apart meanwhile by `apart_ns`, and the bounds are around that.
    """

    low_ns: int | None = None
    high_ns: int | None = None
    apart_ns: int = 0

    @property
    def shift_ns(self) -> int:
        """Return the difference that is certain."""
        if self.low_ns is None or self.high_ns is None:
            return 0
        return min(max(0, self.low_ns), self.high_ns)


def clocks(streams: Sequence[Stream], barriers: Events) -> Mapping[str, Clock]:
    """Return the clock of each name in the streams, compared with that of the lowest rank.

    Each barrier is one of all ranks; their times are Unix times.
    """
    first = min(streams, key=lambda stream: stream.rank).clock
    passed = {name: _passed(name, streams, barriers) for name in dict.fromkeys(stream.clock for stream in streams)}
    return {name: Clock(0, 0) if name == first else _bounded(*passed[first], *each) for name, each in passed.items()}


def _passed(name: str, streams: Sequence[Stream], barriers: Events) -> tuple[Times, Times]:
    """Return of each barrier when the last of the ranks with this clock entered, and when the first one left."""
    there = [own for place, own in barriers.by("stream") if streams[place].clock == name]
    count = min((own.number for own in there), default=0)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    entered = np.max([np.sort(own.start_ns)[:count] for own in there], axis=0)
    return entered, np.min([np.sort(own.end_ns)[:count] for own in there], axis=0)


def _bounded(entered: Times, left: Times, others_entered: Times, others_left: Times) -> Clock:
    count = min(len(entered), len(others_entered))
    if not count:
        return Clock()
    low = int((others_entered[:count] - left[:count]).max())
    high = int((others_left[:count] - entered[:count]).min())
    return Clock(min(low, high), max(low, high), max(0, low - high))
