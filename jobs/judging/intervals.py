"""Intervals of few runs: that of a median, and that of the difference of alternating cold and warm runs.

The interval of the median is that of two order statistics, exact for independent runs of any distribution: the k-th
smallest and the k-th largest of n enclose the true median with probability 1 - 2 P(Bin(n, 1/2) < k) (H. A. David and
H. N. Nagaraja, "Order Statistics", 3rd ed., Sec. 7.1). k follows from n alone, as the largest with 90 % or more: the
narrowest pair, chosen by its values, would hold it less often. No pair of fewer than five runs holds it that often.

Cells whose runs alternate (``in_turn``) have pairs: the runs of one turn, whose order changes with each turn, so that a
machine that becomes slower or faster affects both alike. The interval is the percentile bootstrap of whole pairs
(B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, Sec. 13.3): pairs are drawn with replacement,
and medians taken of each draw. For five pairs it is the least and the largest difference, which enclose the true median
in 93.75 % of all cases (`interval`); for fewer pairs there is none.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

CONFIDENCE = 0.9
# 1 - 2 / 2^5 = 93.75 %; of four runs 87.5 %.
FEWEST_RUNS = 5
_DRAWS = 4000
_TAIL = 0.025  # at each end of the interval


@dataclass(frozen=True)
class Interval:
    """Two order statistics, and the probability that the median is between them."""

    low: float
    high: float
    confidence: float


def interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of the median; None if there are too few values."""
    ordered, n = sorted(values), len(values)
    narrowest, beyond = None, 0.0
    for k in range(1, n // 2 + 1):
        beyond += comb(n, k - 1) / 2**n
        if 1 - 2 * beyond < CONFIDENCE:
            break
        narrowest = Interval(ordered[k - 1], ordered[n - k], 1 - 2 * beyond)
    return narrowest


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
        """Seconds by which the cold runs were slower than the warm ones."""
        return self.cold_s - self.warm_s

    @property
    def share(self) -> float:
        """The difference as a share of the time of the cold runs."""
        return self.seconds / self.cold_s

    @property
    def decided(self) -> bool:
        """Whether the whole interval is on one side of zero."""
        return self.interval_s is not None and not self.interval_s[0] <= 0 <= self.interval_s[1]

    def is_within(self, share: float) -> bool:
        """Return whether half the width of the interval of the share is at most `share`."""
        return self.share_interval is not None and (self.share_interval[1] - self.share_interval[0]) / 2 <= share


def difference(times_s: Sequence[tuple[float, float]], seed: int = 0) -> Difference | None:
    """Return the difference of pairs of cold and warm seconds; None without pairs, or if cold runs took no time."""
    if not times_s or statistics.median(cold for cold, _ in times_s) <= 0:
        return None
    cold_s, warm_s = (statistics.median(side) for side in zip(*times_s, strict=True))
    drawn = _drawn(times_s, seed) if len(times_s) >= FEWEST_RUNS else []
    return Difference(
        len(times_s),
        cold_s,
        warm_s,
        _interval([cold - warm for cold, warm in drawn]),
        _interval([1 - warm / cold for cold, warm in drawn if cold > 0]),
    )


def _drawn(times_s: Sequence[tuple[float, float]], seed: int) -> list[tuple[float, float]]:
    """Return the medians of the cold and of the warm seconds of each bootstrap draw."""
    chance = random.Random(seed)  # noqa: S311 - a draw, not a secret
    draws = (chance.choices(times_s, k=len(times_s)) for _ in range(_DRAWS))
    return [(statistics.median(c for c, _ in draw), statistics.median(w for _, w in draw)) for draw in draws]


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    ordered, cut = sorted(values), int(_TAIL * len(values))
    return ordered[cut], ordered[-1 - cut]
