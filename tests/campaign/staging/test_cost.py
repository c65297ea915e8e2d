"""Costs and gains are those of storages whose costs are known."""

from dataclasses import replace

import numpy as np
import pytest

from campaign.staging import cost
from campaign.staging.observed_runs import ObservedRuns
from tests.campaign.staging.conftest import FAST, OTHER_S, SLOW

SIZES = np.random.default_rng(0).lognormal(12, 1, 800)


def _true_gain(sizes, moved, own_s=0.0):
    slow, ones = SLOW.seconds(np.ones(len(sizes)), sizes) + own_s, np.ones(len(sizes))
    wall = slow.sum() + OTHER_S
    return wall / (wall - slow[moved].sum() + FAST.seconds(ones, sizes)[moved].sum()) - 1


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("capacity", [0.08, 0.5])
def test_the_gain_of_the_best_files_is_predicted_although_chance_helped_to_choose_them(runs, capacity, observed):
    """By their times alone those would be chosen that had to wait for a turn, and most of that would not come again."""
    seen = observed(SIZES, runs)
    slow = cost.slow_storage_cost(seen)
    order = np.argsort(-(slow.seconds - FAST.seconds(np.ones(800), SIZES)) / SIZES)
    moved = np.zeros(800, bool)
    moved[order[np.cumsum(SIZES[order]) < capacity * SIZES.sum()]] = True

    found = cost.predict_gain(seen, slow, [FAST], [None], moved)

    assert (slow.cost.seek_s, slow.cost.byte_s) == pytest.approx((SLOW.seek_s, SLOW.byte_s), rel=0.05)
    assert found["gain"] == pytest.approx(_true_gain(SIZES, moved), rel=0.06)
    assert found["low"] <= _true_gain(SIZES, moved) <= found["high"]
    assert cost.predict_gain(seen, slow, [FAST], [None], SIZES > 0)["high"] < 2 * _true_gain(SIZES, SIZES > 0)


@pytest.mark.parametrize("runs", [2, 3, 8])
@pytest.mark.parametrize("chance_s", [1e-4, 2e-3, 2e-2])
def test_of_what_sets_files_apart_as_much_is_believed_as_repeats_itself(runs, chance_s, observed):
    own_s = np.random.default_rng(4).normal(0, 2e-3, 800)
    seen = observed(SIZES, runs, own_s=own_s, chance_s=chance_s)

    slow = cost.slow_storage_cost(seen)

    apart, mean = (
        each - SLOW.seconds(1, SIZES) for each in (slow.seconds, np.mean([run.spent_s for run in seen.runs], 0))
    )
    own, chance = own_s.var(), (1.7 * chance_s) ** 2 / 3 / runs
    assert np.cov(apart, mean)[0, 1] / mean.var(ddof=1) == pytest.approx(own / (own + chance), abs=0.09)


def test_what_is_not_waited_for_cannot_be_saved(observed):
    seen = observed(SIZES, waits=0.1)

    found = cost.predict_gain(seen, cost.slow_storage_cost(seen), [FAST], [None], np.ones(800, bool))

    assert found["gain"] == pytest.approx(1 / 0.9 - 1)


def test_calls_that_wait_for_one_another_still_tell_the_two_costs(observed):
    seen = observed(np.random.default_rng(2).lognormal(12, 1, 3000))
    # Sixteen are under way at any time, so each call takes as long as the fifteen before it, too.
    runs = [replace(run, spent_s=np.convolve(run.spent_s, np.ones(16))[: len(run.spent_s)]) for run in seen.runs]
    crowded = ObservedRuns(seen.source, seen.names, runs, seen.origin)

    slow = cost.slow_storage_cost(crowded)

    assert crowded.calls_at_once > 10
    assert (slow.cost.seek_s, slow.cost.byte_s) == pytest.approx((SLOW.seek_s, SLOW.byte_s), rel=0.1)
    assert slow.seconds.sum() == pytest.approx(np.mean([run.in_calls_s for run in runs]))


def test_a_queue_saves_what_leaves_it_and_a_server_of_all_at_once_little():
    ones, moved = np.ones(800), np.random.default_rng(3).random(800) < 0.4
    total_s = SLOW.seconds(ones, ones * 1e5)
    # Eight under way: each takes eight times as long as the storage is busy with it.
    slow = cost.SlowStorageCost(SLOW, total_s, ones, ones * 1e5, calls_at_once=8, waits=8 * total_s[None])

    parallel = slow.remaining_in_parallel(moved, FAST)

    assert slow.remaining(moved, FAST, SLOW, parallel) == pytest.approx(0.6, abs=0.03)
    assert slow.remaining(moved, FAST, cost.ReadCost(8 * SLOW.seek_s, 8 * SLOW.byte_s), parallel) == pytest.approx(
        parallel
    )
    assert 0.9 < parallel < 0.95  # of a window of eight in order, hardly one is without a slow file
    assert slow.remaining_in_parallel(ones > 0, FAST) < 0.03


def test_costs_are_never_negative():
    sizes = np.array([1e3, 1e6, 2e6])

    assert cost.fit_cost(np.ones(3), sizes, np.array([3e-3, 2e-3, 1e-3])) == cost.ReadCost(pytest.approx(2e-3), 0.0)
    assert cost.fit_cost(np.ones(3), sizes, np.array([0, 1e-3, 3e-3])).seek_s == 0
