"""Lists of one number a step: beside the record, whole, and what of them is looked at in it."""

import errno

import numpy as np
import pytest

from jobs import checks, step_arrays
from jobs.system import files

LISTS = {"step_load_s": [0.5, 0.25, 0.125], "step_compute_s": [1.0, 2.0, 4.0]}


def test_the_lists_lie_in_the_file_and_the_figures_have_what_is_looked_at(tmp_path):
    run = step_arrays.put_apart({"wall_s": 9.0, **LISTS}, tmp_path / "run-3.npz")

    assert run == {"wall_s": 9.0, "steps": {"number": 3, "first_load_s": 0.5, "file": "run-3.npz", "error": None}}
    with np.load(tmp_path / "run-3.npz", allow_pickle=False) as kept:
        assert {name: kept[name].tolist() for name in kept} == LISTS


@pytest.mark.parametrize(
    ("losses", "lost", "passed"),
    [([2.5, 1.5, 0.5], None, True), ([2.5, None, 0.5], 2, False), ([2.5, 1.5, None], 3, False)],
)
def test_a_run_counts_by_its_first_loss_that_is_no_number(tmp_path, losses, lost, passed):
    run = step_arrays.put_apart({**LISTS, "step_loss": losses}, tmp_path / "run-1.npz")

    assert (run["steps"]["last_loss"], run["steps"]["lost_loss"]) == (losses[-1], lost)
    assert checks.finite_loss(run, checks.Limits())["passed"] is passed
    with np.load(tmp_path / "run-1.npz") as kept:
        np.testing.assert_array_equal(kept["step_loss"], np.array(losses, float))


def test_a_run_by_hand_keeps_its_lists_and_one_without_steps_gets_nothing():
    assert step_arrays.put_apart(LISTS, None) == {**LISTS, "steps": {"number": 3, "first_load_s": 0.5}}
    assert step_arrays.put_apart({"wall_s": 1.0}, None) == {"wall_s": 1.0}


def test_a_full_disk_takes_the_lists_away_and_not_the_run(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "whole", full)

    steps = step_arrays.put_apart(LISTS, tmp_path / "run-1.npz")["steps"]

    assert (steps["file"], steps["number"]) == (None, 3)
    assert "No space left" in steps["error"]
