"""Calculate confidence intervals from few runs: for a median, and for the difference of cold and warm runs.

The interval of a median reaches from the k-th smallest to the k-th largest of n values. This interval contains the true
median with probability 1 - 2 P(Bin(n, 1/2) < k), which is exact for independent runs of any distribution (H. A. David
and H. N. Nagaraja, "Order Statistics", 3rd ed., Sec. 7.1). k is the largest number for which the probability is at
least 90 %. k depends only on n, because an interval chosen by the values would contain the median less often. With
fewer than five runs, no k reaches 90 %.

The difference of two cells whose runs alternate (``in_turn``) is calculated from pairs: the cold and the warm run of
one turn. The order within a pair changes with each turn, so that a machine that becomes slower or faster affects cold
and warm runs equally. The interval of the difference is the percentile bootstrap of whole pairs (B. Efron and R. J.
Tibshirani, "An Introduction to the Bootstrap", 1993, Sec. 13.3): pairs are drawn with replacement, and the medians of
each draw are calculated. For five pairs, the interval reaches from the smallest to the largest difference, which
contains the true median in 93.75 % of all cases (`interval_of_median`). Fewer than five pairs have no interval.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

CONFIDENCE = 0.9
# With five runs the probability is 1 - 2 / 2^5 = 93.75 %; with four runs the probability is only 87.5 %.
FEWEST_RUNS = 5
_DRAWS = 4000
_TAIL = 0.025  # probability at each end of the interval


@dataclass(frozen=True)
class MedianInterval:
    """A confidence interval of a median: two measured values, and the probability that the median is between them."""

    low: float
    high: float
    confidence: float


def interval_of_median(values: Sequence[float]) -> MedianInterval | None:
    """Return the confidence interval of the median, or None if there are too few values."""
    ordered, n = sorted(values), len(values)
    narrowest, tail = None, 0.0
    for k in range(1, n // 2 + 1):
        tail += comb(n, k - 1) / 2**n
        if 1 - 2 * tail < CONFIDENCE:
            break
        narrowest = MedianInterval(ordered[k - 1], ordered[n - k], 1 - 2 * tail)
    return narrowest


@dataclass(frozen=True)
class MedianDifference:
    """The difference of the medians of cold and warm runs, in seconds and as a share of the cold median."""

    pairs: int
    cold_s: float
    warm_s: float
    interval_s: tuple[float, float] | None  # None if there are too few pairs
    share_interval: tuple[float, float] | None

    @property
    def seconds(self) -> float:
        """Seconds by which the cold runs were slower than the warm runs."""
        return self.cold_s - self.warm_s

    @property
    def share(self) -> float:
        """The difference as a share of the time of the cold runs."""
        return self.seconds / self.cold_s

    @property
    def decided(self) -> bool:
        """Whether the interval excludes zero, so that cold and warm runs certainly differ."""
        return self.interval_s is not None and not self.interval_s[0] <= 0 <= self.interval_s[1]

    def is_within(self, share: float) -> bool:
        """Return whether half the width of the interval of the share is at most `share`."""
        return self.share_interval is not None and (self.share_interval[1] - self.share_interval[0]) / 2 <= share


def median_difference(times_s: Sequence[tuple[float, float]]) -> MedianDifference | None:
    """Return the difference of the medians of cold and warm runs; each pair in `times_s` is (cold, warm) in seconds.

    Return None if there are no pairs, or if the cold median is not positive.
    """
    if not times_s or statistics.median(cold for cold, _ in times_s) <= 0:
        return None
    cold_s, warm_s = (statistics.median(side) for side in zip(*times_s, strict=True))
    draws = _draw_medians(times_s) if len(times_s) >= FEWEST_RUNS else []
    return MedianDifference(
        len(times_s),
        cold_s,
        warm_s,
        _percentile_interval([cold - warm for cold, warm in draws]),
        _percentile_interval([1 - warm / cold for cold, warm in draws if cold > 0]),
    )


def _draw_medians(times_s: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the medians of the cold and of the warm seconds of each bootstrap draw."""
    generator = random.Random(0)  # noqa: S311 - a draw, not a secret
    draws = (generator.choices(times_s, k=len(times_s)) for _ in range(_DRAWS))
    return [(statistics.median(c for c, _ in draw), statistics.median(w for _, w in draw)) for draw in draws]


def _percentile_interval(values: Sequence[float]) -> tuple[float, float] | None:
    if not values:
        return None
    ordered, tail = sorted(values), int(_TAIL * len(values))
    return ordered[tail], ordered[-1 - tail]
