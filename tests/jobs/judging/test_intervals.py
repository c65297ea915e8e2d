"""The difference of cold and warm runs that took turns with its interval, and the interval of a median."""

import functools
import itertools
import random

import numpy as np
import pytest

from jobs.judging.intervals import CONFIDENCE, FEWEST_RUNS, interval_of_median, median_difference
from jobs.judging.stopping import pairs_of_turns

TIMES = [(41.2, 30.1), (40.8, 29.8), (41.9, 30.6), (41.0, 30.0), (41.5, 30.4)]


def test_it_is_that_of_the_medians_in_seconds_and_as_a_share_of_the_cold_runs():
    found = median_difference(TIMES)

    assert found.seconds == pytest.approx(41.2 - 30.1)
    assert found.share == pytest.approx(0.2694, abs=1e-4)
    assert found.decided
    assert found.share_interval[0] < found.share < found.share_interval[1]


def test_of_five_pairs_the_interval_is_that_of_the_least_and_the_largest():
    found = median_difference([(10 + n, 10.0) for n in (1, 2, 3, 4, 5)])

    assert found.interval_s == (1, 5)


def test_drift_that_both_runs_of_a_pair_share_does_not_make_the_interval_wide():
    found = median_difference([(10.0 + drift, 8.0 + drift) for drift in range(8)])

    assert found.interval_s == pytest.approx((2.0, 2.0))


def test_fewer_than_five_pairs_have_no_interval_and_decide_nothing():
    found = median_difference(TIMES[:4])

    assert (found.interval_s, found.share_interval, found.decided) == (None, None, False)
    assert not found.is_within(0.99)
    assert median_difference([]) is None
    assert median_difference([(0.0, 0.0)] * 5) is None


@pytest.mark.parametrize(("within", "narrow"), [(0.02, True), (0.001, False)])
def test_it_is_narrow_where_half_of_the_interval_is_no_more_than_the_share(within, narrow):
    assert median_difference(TIMES).is_within(within) is narrow


def test_where_nothing_differs_the_interval_says_so_in_nineteen_of_twenty_cases():
    chance, decided = random.Random(1), 0  # noqa: S311
    for _ in range(200):
        decided += median_difference([(chance.gauss(10, 1), chance.gauss(10, 1)) for _ in range(7)]).decided

    assert decided <= 20


def _record(*runs):
    return {"runs": [{"role": "measured", "status": "valid", **run} for run in runs]}


def test_a_pair_is_two_valid_measured_runs_of_one_turn():
    cold = _record({"pair": 1}, {"pair": 2, "status": "invalid"}, {"pair": 3}, {"pair": 5}, {"role": "warmup"})
    warm = _record({"pair": 3, "n": 1}, {"pair": 1, "n": 2}, {"pair": 2}, {"pair": 4}, {})

    assert [(one["pair"], other["n"]) for one, other in pairs_of_turns(cold, warm)] == [(1, 2), (3, 1)]


@pytest.mark.parametrize("n", range(5, 13))
def test_the_interval_holds_the_median_as_often_as_it_says(n):
    # Each of n runs is below the true median or above it, one as likely as the other: all 2^n ways.
    found = interval_of_median(sorted(range(1, n + 1), key=lambda number: 5 * number % 13))  # in no order
    assert interval_of_median(range(4)) is None
    ways = [sum(below) for below in itertools.product((0, 1), repeat=n)]

    held = sum(found.low <= below <= found.high - 1 for below in ways) / 2**n
    tighter = sum(found.low + 1 <= below <= found.high - 2 for below in ways) / 2**n

    assert found.confidence == pytest.approx(held)
    assert held >= CONFIDENCE > tighter


def test_of_a_thousand_cases_the_ends_are_numpy_s_order_statistics_and_none_narrower_is_as_sure():
    generator = np.random.default_rng(37)
    chances = {}  # by n, of each number of runs below the median
    for n in (*generator.integers(1, 60, 999), 1000):
        if n not in chances:
            chances[n] = functools.reduce(np.convolve, [np.full(2, 0.5)] * n).cumsum()
        values = generator.lognormal(0, 0.5, n)
        sure = np.flatnonzero(1 - 2 * chances[n][: n // 2] >= CONFIDENCE)

        found = interval_of_median(values.tolist())

        assert (found is None) == (len(sure) == 0) == (n < FEWEST_RUNS)
        if found:
            k = sure[-1]
            assert [found.low, found.high] == np.sort(values)[[k, n - 1 - k]].tolist()
            assert found.confidence == pytest.approx(1 - 2 * chances[n][k])
