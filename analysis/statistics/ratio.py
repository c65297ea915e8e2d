"""The ratio of two medians with its interval: the percentile bootstrap, not drawn but worked out.

A bootstrap draws n runs from n with replacement, again and again, and takes the median of each draw. How often each
median would come is known exactly (B. Efron, "Bootstrap methods: another look at the jackknife", Ann. Statist. 7, 1979,
Sec. 3), so nothing is drawn here: no seed, the same interval each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
# Sums of probabilities are equal within this.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians, and the interval that holds the true one with about 95 %."""

    value: float
    low: float
    high: float


def ratio_of_medians(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return median(after) / median(before) with the percentile interval of the bootstrap; all above 0.

    Exchanging before and after turns every number into its inverse.
    """
    (low_ones, weights), (others, other_weights) = redrawn_medians(before), redrawn_medians(after)
    ratios = np.divide.outer(others, low_ones).ravel()
    order = np.argsort(ratios)
    ratios, chances = ratios[order], np.multiply.outer(other_weights, weights).ravel()[order]
    tail = (1 - CONFIDENCE) / 2 - ROUNDING
    first = int(np.searchsorted(np.cumsum(chances), tail))
    last = len(ratios) - 1 - int(np.searchsorted(np.cumsum(chances[::-1]), tail))
    return Ratio(float(np.median(after) / np.median(before)), float(ratios[first]), float(ratios[last]))


def redrawn_medians(values: Sequence[float]) -> tuple[Floats, Floats]:
    """Return every median that n draws from n values can have, and the probability of each."""
    ordered = np.sort(np.asarray(values, dtype="float64"))
    weights = middle_weights(len(ordered))
    lower, upper = np.nonzero(weights)
    return (ordered[lower] + ordered[upper]) / 2, weights[lower, upper]


@cache
def middle_weights(n: int) -> Floats:
    """Return the probability that the two middle ones of n draws from n values are its i-th and its j-th smallest.

    An n-by-n array; of an odd number there is one in the middle, and the array is diagonal.
    """
    half, share = n // 2, np.arange(n + 1) / n
    rank = half + n % 2
    at_most = sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(rank, n + 1))
    lower = np.diff(at_most)
    apart = np.zeros((n, n))
    if n % 2 == 0:
        # The largest of one half is the i-th, the smallest of the other the j-th.
        largest = np.diff(share**half)
        apart = comb(n, half) * np.triu(np.outer(largest, largest[::-1]), 1)
    return apart + np.diag(lower - apart.sum(axis=1))
