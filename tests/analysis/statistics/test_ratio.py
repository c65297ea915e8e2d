import itertools
import statistics
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics.ratio import ratio_of_medians, redrawn_medians

RUNS = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_every_redrawn_median_has_the_share_that_counting_all_draws_gives(n):
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0][:n]

    counted = Counter(statistics.median(draw) for draw in itertools.product(values, repeat=n))

    medians, weights = redrawn_medians(values)
    told = {median: sum(weights[medians == median]) for median in set(medians)}
    assert told == pytest.approx({median: float(Fraction(each, n**n)) for median, each in counted.items()})


def test_the_ratio_and_its_interval_agree_with_numbers_worked_out_by_hand():
    # Of three runs each redrawn median has the share 7/27, 13/27 or 7/27 (7 = 3 * 2 + 1 draws of 27 hold at least two
    # of the smallest). The least ratio, 20 / 12, has (7/27)^2 = 6.7 %, more than the 2.5 % that an end leaves out.
    ratio = ratio_of_medians([10.0, 12.0, 7.0], [20.0, 22.0, 25.0])

    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.2, 20 / 12, 25 / 7))


@pytest.mark.parametrize(("n", "least"), [(3, 0.88), (5, 0.95), (6, 0.94), (10, 0.95)])
@pytest.mark.parametrize("noise", ["normal", "skewed"])
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(n, least, noise):
    random = np.random.default_rng(7)
    draws = {
        "normal": lambda: 1 + 0.02 * random.standard_normal(n),
        "skewed": lambda: 1 + 0.05 * (random.exponential(size=n) - np.log(2)),
    }
    intervals = [ratio_of_medians(100 * draws[noise](), 110 * draws[noise]()) for _ in range(500)]

    share = sum(each.low <= 1.1 <= each.high for each in intervals) / len(intervals)

    # 95 % is claimed; three runs cannot give it (their whole range holds a median in 75 %), and are let off with 90 %.
    # The standard error of the share is 1 %; the draws are those of one seed.
    assert least < share < 0.99


@given(RUNS, RUNS)
def test_to_exchange_before_and_after_inverts_everything(before, after):
    there, back = ratio_of_medians(before, after), ratio_of_medians(after, before)

    inverse = (1 / back.value, 1 / back.high, 1 / back.low)
    assert (there.value, there.low, there.high) == pytest.approx(inverse)


def _cases():
    """Yield a thousand pairs of samples of 1 to 9 runs, every third with equal values, and two of many runs."""
    random = np.random.default_rng(37)
    for number in range(1000):
        before, after = (random.lognormal(0, 0.5, random.integers(1, 10)) for _ in range(2))
        yield (before.round(1) + 0.1, after.round(1) + 0.1) if number % 3 == 0 else (before, after)
    many = [random.lognormal(-1, width, n) for n, width in ((151, 0.3), (99, 0.02))]
    yield from (many, many[::-1])  # so many that not all pairs are sorted at once


def _agrees(before, after):
    """Hold the ratio and its interval against NumPy's over every pair of redrawn medians."""
    (below, chances), (above, others) = redrawn_medians(before), redrawn_medians(after)
    ratios, weights = np.divide.outer(above, below).ravel(), np.multiply.outer(others, chances).ravel()
    order = np.argsort(ratios)
    ratios, weights, tail = ratios[order], weights[order], 0.025 - 1e-12

    found = ratio_of_medians(before, after)

    low, high = (
        side[np.argmax(chance.cumsum() >= tail)] for side, chance in ((ratios, weights), (ratios[::-1], weights[::-1]))
    )
    assert found.value == np.median(after) / np.median(before)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_of_a_thousand_cases_ratio_and_interval_are_numpy_s_over_every_pair_of_redrawn_medians():
    for before, after in _cases():
        _agrees(before, after)


@given(RUNS, RUNS)
def test_so_they_are_of_values_of_any_size(before, after):
    _agrees(before, after)


@pytest.mark.parametrize("n", [150, 1000, 1031, 1032])
def test_a_thousand_runs_are_compared_in_a_few_megabytes(n):
    values = np.random.default_rng(3).lognormal(0, 0.1, n)
    tracemalloc.start()

    ratio = ratio_of_medians(values, 1.1 * values[::-1])

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # About 95 % of medians of n lie within 1.96 * sqrt(n) / 2 places of the middle one; of a ratio, sqrt(2) more.
    middle, ordered = n // 2, np.sort(values)
    places = round(1.96 * 2**0.5 * n**0.5 / 2)
    width = ordered[middle + places] / ordered[middle - places]
    assert ratio.value == pytest.approx(1.1)
    assert ratio.low < 1.1 < ratio.high
    assert np.log(ratio.high / ratio.low) == pytest.approx(np.log(width), rel=0.25)
    assert peak < 32e6


def test_no_median_is_left_out_that_would_be_missed():
    for n in (39, 40, 41, 42, 1000, 1001, 5000):
        _, weights = redrawn_medians(np.arange(1.0, n + 1))
        assert weights.sum() == pytest.approx(1, abs=1e-10)
