"""Costs and gains are those of storages whose costs are known."""

from dataclasses import replace

import numpy as np
import pytest

from campaign.staging import cost
from campaign.staging.observed import Observed
from tests.campaign.staging.conftest import FAST, OTHER_S, SLOW

SIZES = np.random.default_rng(0).lognormal(12, 1, 800)


def _true_gain(sizes, moved, own_s=0.0):
    slow, ones = SLOW.of(np.ones(len(sizes)), sizes) + own_s, np.ones(len(sizes))
    wall = slow.sum() + OTHER_S
    return wall / (wall - slow[moved].sum() + FAST.of(ones, sizes)[moved].sum()) - 1


@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("capacity", [0.08, 0.5])
def test_the_gain_of_the_best_files_is_predicted_although_chance_helped_to_choose_them(runs, capacity, observed):
    """By their times alone those would be chosen that had to wait for a turn, and most of that would not come again."""
    seen = observed(SIZES, runs)
    slow = cost.on_slow(seen)
    order = np.argsort(-(slow.seconds - FAST.of(np.ones(800), SIZES)) / SIZES)
    moved = np.zeros(800, bool)
    moved[order[np.cumsum(SIZES[order]) < capacity * SIZES.sum()]] = True

    found = cost.gain(seen, slow, [FAST], [None], moved)

    assert (slow.cost.seek_s, slow.cost.byte_s) == pytest.approx((SLOW.seek_s, SLOW.byte_s), rel=0.05)
    assert found.gain == pytest.approx(_true_gain(SIZES, moved), rel=0.06)
    assert found.low <= _true_gain(SIZES, moved) <= found.high
    assert cost.gain(seen, slow, [FAST], [None], SIZES > 0).high < 2 * _true_gain(SIZES, SIZES > 0)


def test_a_file_that_is_dear_in_every_run_is_known_to_be(observed):
    own_s = np.where(np.arange(800) % 8 == 0, 0.02, 0.0)

    slow = cost.on_slow(observed(SIZES, own_s=own_s))

    assert set(np.argsort(-(slow.seconds / SIZES)[SIZES > 1e5])[:40]) <= set(np.flatnonzero(own_s[SIZES > 1e5]))


def test_what_is_not_waited_for_cannot_be_saved(observed):
    seen = observed(SIZES, waits=0.1)

    found = cost.gain(seen, cost.on_slow(seen), [FAST], [None], np.ones(800, bool))

    assert found.gain == pytest.approx(1 / 0.9 - 1)


def test_calls_that_wait_for_one_another_still_tell_the_two_costs(observed):
    seen = observed(np.random.default_rng(2).lognormal(12, 1, 3000))
    # Sixteen are under way at any time, so each call takes as long as the fifteen before it, too.
    runs = [replace(run, spent_s=np.convolve(run.spent_s, np.ones(16))[: len(run.spent_s)]) for run in seen.runs]
    crowded = Observed(seen.source, seen.names, runs, seen.origin)

    slow = cost.on_slow(crowded)

    assert crowded.calls_at_once > 10
    assert (slow.cost.seek_s, slow.cost.byte_s) == pytest.approx((SLOW.seek_s, SLOW.byte_s), rel=0.1)
    assert slow.seconds.sum() == pytest.approx(np.mean([run.in_calls_s for run in runs]))


def test_a_queue_saves_what_leaves_it_and_a_server_of_all_at_once_little():
    ones, moved = np.ones(800), np.random.default_rng(3).random(800) < 0.4
    total_s = SLOW.of(ones, ones * 1e5)
    # Eight under way: each takes eight times as long as the storage is busy with it.
    slow = cost.Slow(SLOW, total_s, ones, ones * 1e5, calls_at_once=8, waits=8 * total_s[None])

    parallel = slow.kept_in_parallel(moved, FAST)

    assert slow.kept(moved, FAST, SLOW, parallel) == pytest.approx(0.6, abs=0.03)
    assert slow.kept(moved, FAST, cost.Cost(8 * SLOW.seek_s, 8 * SLOW.byte_s), parallel) == pytest.approx(parallel)
    assert 0.9 < parallel < 0.95  # of a window of eight in order, hardly one is without a slow file
    assert slow.kept_in_parallel(ones > 0, FAST) < 0.03


def test_costs_are_never_negative():
    sizes = np.array([1e3, 1e6, 2e6])

    assert cost.fitted(np.ones(3), sizes, np.array([3e-3, 2e-3, 1e-3])) == cost.Cost(pytest.approx(2e-3), 0.0)
    assert cost.fitted(np.ones(3), sizes, np.array([0, 1e-3, 3e-3])).seek_s == 0
