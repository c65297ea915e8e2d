"""The difference of cold and warm runs that took turns, and its interval."""

import random

import pytest

from jobs.judging.difference import difference, pairs

TIMES = [(41.2, 30.1), (40.8, 29.8), (41.9, 30.6), (41.0, 30.0), (41.5, 30.4)]


def test_it_is_that_of_the_medians_in_seconds_and_as_a_share_of_the_cold_runs():
    found = difference(TIMES)

    assert found.seconds == pytest.approx(41.2 - 30.1)
    assert found.share == pytest.approx(0.2694, abs=1e-4)
    assert found.decided
    assert found.share_interval[0] < found.share < found.share_interval[1]


def test_of_five_pairs_the_interval_is_that_of_the_least_and_the_largest():
    found = difference([(10 + n, 10.0) for n in (1, 2, 3, 4, 5)])

    assert found.interval_s == (1, 5)


def test_drift_that_both_runs_of_a_pair_share_does_not_make_the_interval_wide():
    found = difference([(10.0 + drift, 8.0 + drift) for drift in range(8)])

    assert found.interval_s == pytest.approx((2.0, 2.0))


def test_fewer_than_five_pairs_have_no_interval_and_decide_nothing():
    found = difference(TIMES[:4])

    assert (found.interval_s, found.share_interval, found.decided) == (None, None, False)
    assert not found.is_within(0.99)
    assert difference([]) is None
    assert difference([(0.0, 0.0)] * 5) is None


@pytest.mark.parametrize(("within", "narrow"), [(0.02, True), (0.001, False)])
def test_it_is_narrow_where_half_of_the_interval_is_no_more_than_the_share(within, narrow):
    assert difference(TIMES).is_within(within) is narrow


def test_where_nothing_differs_the_interval_says_so_in_nineteen_of_twenty_cases():
    chance, decided = random.Random(1), 0  # noqa: S311
    for _ in range(200):
        decided += difference([(chance.gauss(10, 1), chance.gauss(10, 1)) for _ in range(7)]).decided

    assert decided <= 20


def _record(*runs):
    return {"runs": [{"role": "measured", "status": "valid", **run} for run in runs]}


def test_a_pair_is_two_valid_measured_runs_of_one_turn():
    cold = _record({"pair": 1}, {"pair": 2, "status": "invalid"}, {"pair": 3}, {"pair": 5}, {"role": "warmup"})
    warm = _record({"pair": 3, "n": 1}, {"pair": 1, "n": 2}, {"pair": 2}, {"pair": 4}, {})

    assert [(one["pair"], other["n"]) for one, other in pairs(cold, warm)] == [(1, 2), (3, 1)]
