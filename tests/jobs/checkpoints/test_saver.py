"""What is saved is what is restored; and what goes on behind the training's back."""

from functools import partial

import pytest

from tests.jobs.checkpoints.shared import snapshots_in


@pytest.fixture
def run(job):
    return partial(job, of="tests.jobs.checkpoints.checkpoint_jobs")


@pytest.mark.parametrize(("mode", "folders"), [("sync", ["only"]), ("async", ["fast", "slow"])])
def test_a_restart_has_the_weights_the_optimiser_and_the_next_loss(run, tmp_path, folders, mode):
    steps, same, (loss, expected) = run("restart", mode=mode, folders=[str(tmp_path / name) for name in folders])

    assert steps == [2, 4]
    assert same is True
    assert loss == expected
    last = snapshots_in(tmp_path / folders[-1])
    assert [last.verify(name) for name in last.names()] == [[], []]


@pytest.mark.parametrize("in_flight", [1, 3])
def test_the_training_stands_still_where_one_more_would_be_too_many(run, tmp_path, in_flight):
    still, written, same, blocked_s = run("in_flight", folder=str(tmp_path), in_flight=in_flight)

    assert still == in_flight
    assert written == [1, 2, 3, 4, 5]
    assert same == [True] * 5
    assert blocked_s.index(max(blocked_s)) == in_flight


@pytest.mark.parametrize(("every", "told_at"), [(1, 2), (3, 4), (8, 8)])
def test_an_error_of_a_write_reaches_the_training_at_the_next_step_or_the_last(run, tmp_path, every, told_at):
    step, words = run("failing", folder=str(tmp_path), every=every)

    assert step == told_at
    assert "Input/output error" in words
