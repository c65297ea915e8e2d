"""What cold data cost a program: the difference of cold and warm runs that took turns, with its interval.

Cells whose runs take turns (``in_turn``) have pairs: runs of one turn, there and back, so that a machine that becomes
slower or faster adds to both alike. The interval is the percentile bootstrap of whole pairs (B. Efron and
R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, Sec. 13.3): pairs are drawn with replacement, and medians
taken of what was drawn. Of five pairs it is the least and the largest difference, which hold the median of all in
93.75 % of all cases (`jobs.judging.stopping`); of fewer there is none.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.judging import stopping
from jobs.model.record import Record
from jobs.model.results import Run

_DRAWS = 4000
_TAIL = 0.025  # at each end of the interval


@dataclass(frozen=True)
class Difference:
    """The difference of two medians, in seconds and as a share of the cold one."""

    pairs: int
    cold_s: float
    warm_s: float
    interval_s: tuple[float, float] | None  # None: too few pairs
    share_interval: tuple[float, float] | None

    @property
    def seconds(self) -> float:
        """Seconds by which the cold runs took longer."""
        return self.cold_s - self.warm_s

    @property
    def share(self) -> float:
        """The same as a share of the cold runs."""
        return self.seconds / self.cold_s

    @property
    def decided(self) -> bool:
        """Whether all of the interval is on one side of zero."""
        return self.interval_s is not None and not self.interval_s[0] <= 0 <= self.interval_s[1]

    def is_within(self, share: float) -> bool:
        """Return whether the share is known within so much to both sides."""
        return self.share_interval is not None and (self.share_interval[1] - self.share_interval[0]) / 2 <= share


def pairs(cold: Record, warm: Record) -> list[tuple[Run, Run]]:
    """List the valid measured runs of two judged records that belong to one turn, in the order of the turns."""
    one, other = (
        {run["pair"]: run for run in stopping.measured(each, "valid") if "pair" in run} for each in (cold, warm)
    )
    return [(one[number], other[number]) for number in sorted(one.keys() & other.keys())]


def difference(times_s: Sequence[tuple[float, float]], seed: int = 0) -> Difference | None:
    """Return what pairs of cold and warm seconds say; None for no pair, or no time at all."""
    if not times_s or statistics.median(cold for cold, _ in times_s) <= 0:
        return None
    cold_s, warm_s = (statistics.median(side) for side in zip(*times_s, strict=True))
    drawn = _drawn(times_s, seed) if len(times_s) >= stopping.FEWEST_RUNS else []
    return Difference(
        len(times_s),
        cold_s,
        warm_s,
        _interval([cold - warm for cold, warm in drawn]),
        _interval([1 - warm / cold for cold, warm in drawn if cold > 0]),
    )


def _drawn(times_s: Sequence[tuple[float, float]], seed: int) -> list[tuple[float, float]]:
    """Return both medians of each draw."""
    chance = random.Random(seed)  # noqa: S311 - a draw, not a secret
    draws = (chance.choices(times_s, k=len(times_s)) for _ in range(_DRAWS))
    return [(statistics.median(c for c, _ in draw), statistics.median(w for _, w in draw)) for draw in draws]


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    ordered, cut = sorted(values), int(_TAIL * len(values))
    return ordered[cut], ordered[-1 - cut]
