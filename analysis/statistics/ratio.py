"""Compute the ratio of two medians with its confidence interval, by an exact percentile bootstrap.

A usual bootstrap draws n runs with replacement from the n measured runs, many times, and computes the median of each
draw. The probability of each median can also be computed exactly (B. Efron, "Bootstrap methods: another look at the
jackknife", Ann. Statist. 7, 1979, Sec. 3). This module computes these probabilities and uses no random numbers, so the
interval is the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

CONFIDENCE = 0.95
# Two sums of probabilities are considered equal if the difference is at most this number.
ROUNDING = 1e-12
# Medians with a total probability below 1e-14 are left out to limit the memory. The index of a redrawn median has a
# standard deviation of sqrt(n) / 2. The probability that the two middle values of a draw have a distance d between
# their indices decreases as exp(-d).
_DEVIATIONS, _APART = 8, 40
# The search for an end of the interval tries _POINTS ratios per step. The search ends when at most _SORTED_AT_ONCE
# pairs of medians are left, or when the ratios of these pairs differ by less than the fraction _CLOSE.
_POINTS, _SORTED_AT_ONCE, _CLOSE = 17, 4096, 1e-14


@dataclass(frozen=True)
class Ratio:
    """The ratio of two medians, with an interval that contains the true ratio with a probability of about 95 %."""

    value: float
    low: float
    high: float


def ratio_of_medians(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return median(after) / median(before) with the percentile interval of the bootstrap.

    All values must be greater than 0. If `before` and `after` are exchanged, the ratio and the ends of the interval
    become their inverses.
    """
    redrawn_before, redrawn_after = redrawn_medians(before), redrawn_medians(after)
    low, high = _low_end(redrawn_before, redrawn_after), 1 / _low_end(redrawn_after, redrawn_before)
    return Ratio(float(np.median(after) / np.median(before)), low, high)


def _low_end(before: tuple[Floats, Floats], after: tuple[Floats, Floats]) -> float:
    """Return the lower end of the interval: the (1 - CONFIDENCE) / 2 quantile of the ratios of redrawn medians.

    For each median of `before`, the range of medians of `after` (from `first` to `last`) is narrowed step by step. The
    loop ends when the remaining pairs are few enough to be sorted.
    """
    (medians_before, chances_before), (medians_after, chances_after) = before, after
    chance_up_to = np.concatenate([[0.0], np.cumsum(chances_after)])
    tail, fractions = (1 - CONFIDENCE) / 2 - ROUNDING, np.linspace(0, 1, _POINTS)
    first, last = np.zeros(len(medians_before), int), np.full(len(medians_before), len(medians_after))
    low, high = medians_after[0] / medians_before[-1] * (1 - _CLOSE), medians_after[-1] / medians_before[0]
    while (last - first).sum() > _SORTED_AT_ONCE and high > low * (1 + 2 * _CLOSE):
        points = low * (high / low) ** fractions
        places = np.searchsorted(medians_after, np.multiply.outer(points, medians_before), side="right")
        reached = int(np.clip(np.searchsorted(chance_up_to[places] @ chances_before, tail), 1, _POINTS - 1))
        (low, high), (first, last) = points[reached - 1 : reached + 1], places[reached - 1 : reached + 1]
    row = np.repeat(np.arange(len(first)), last - first)
    column = np.arange(len(row)) + np.repeat(last - np.cumsum(last - first), last - first)
    ratios = medians_after[column] / medians_before[row]
    order = np.argsort(ratios)
    chances = chance_up_to[first] @ chances_before + np.cumsum((chances_before[row] * chances_after[column])[order])
    return float(ratios[order][min(int(np.searchsorted(chances, tail)), len(order) - 1)])


def redrawn_medians(values: Sequence[float]) -> tuple[Floats, Floats]:
    """Return all possible medians of n draws from the n values, in ascending order, and their probabilities."""
    ordered = np.sort(np.asarray(values, dtype="float64"))
    lower, upper, weights = middle_weights(len(ordered))
    medians, places = np.unique((ordered[lower] + ordered[upper]) / 2, return_inverse=True)
    return medians, np.bincount(places, weights).astype("float64")


@cache
def middle_weights(n: int) -> tuple[Indices, Indices, Floats]:
    """Return pairs of indices i, j of sorted values, and the probability of each pair.

    This is the probability that the values at i and j are the two middle values of n draws. If n is odd, a draw has one
    middle value, and i equals j.
    """
    half, reach = (n - 1) // 2, int(_DEVIATIONS * n**0.5 / 2) + 1
    first, last = max(0, half - reach), min(n, half + reach + 1)
    apart = np.arange(min(_APART, n) if n % 2 == 0 else 1)
    lower = np.arange(first, last)[:, None] + 0 * apart
    upper = lower + apart
    weights = np.zeros(lower.shape)
    if n % 2 == 0:
        # The value at i is the largest value in the lower half of the draws, and the value at j is the smallest value
        # in the upper half of the draws.
        largest = _log_largest(n)
        here = (apart > 0) & (upper < n)
        weights[here] = np.exp(_log_choices(n)[n // 2] + largest[lower[here]] + largest[n - 1 - upper[here]])
    at_most = np.array([_chance_of(n // 2 + n % 2, n, place / n) for place in range(first, last + 1)])
    weights[:, 0] = np.diff(at_most) - weights.sum(axis=1)
    possible = weights > 0
    return lower[possible], upper[possible], weights[possible]


@cache
def _log_choices(n: int) -> Floats:
    """Return the logarithms of the binomial coefficients "n choose k" for k from 0 to n."""
    numbers = np.arange(1, n + 1)
    return np.concatenate([[0.0], np.cumsum(np.log(numbers[::-1]) - np.log(numbers))])


def _log_largest(n: int) -> Floats:
    """Return for each i a logarithm of a probability.

    This is the probability that the largest of n / 2 draws from n values is the i-th smallest value.
    """
    numbers = np.arange(1, n + 1)
    return n // 2 * np.log(numbers / n) + np.log1p(-((1 - 1 / numbers) ** (n // 2)))


def _chance_of(least: int, n: int, share: float) -> float:
    """Return the probability that at least `least` of n draws hit a fraction `share` of the values."""
    if share in (0.0, 1.0):
        return share
    hits = np.arange(least, n + 1)
    return float(np.exp(_log_choices(n)[least:] + hits * np.log(share) + (n - hits) * np.log1p(-share)).sum())
