"""How often to save: the published formulas, and what of a cell's runs they are told."""

import pytest

from jobs.judging.save_interval import daly_s, save_interval, young_s


@pytest.mark.parametrize(
    ("blocked_s", "failure_s", "young", "daly"),
    [
        (0.0, 3600.0, 0.0, 0.0),
        (2.0, 3600.0, 120.0, 118.668518),  # 120 * (1 + (1/3600)**.5 / 3 + (1/3600) / 9) - 2
        (7199.0, 3600.0, 7199.499983, 3200.0),  # 8/9 of the mean time between failures
        (7200.0, 3600.0, 7200.0, 3600.0),  # from here on it is dearer than what a failure costs
    ],
)
def test_the_intervals_are_those_of_the_papers(blocked_s, failure_s, young, daly):
    assert young_s(blocked_s, failure_s) == pytest.approx(young)
    assert daly_s(blocked_s, failure_s) == pytest.approx(daly, rel=1e-4)


def run(status="valid", *, restore_s=4.0, **changes):
    snapshots = [{"blocked_s": blocked_s, "durable_slow_s": 5.0, **changes} for blocked_s in (1.0, 2.0, 6.0)]
    return {"status": status, "checkpoints": snapshots, "restore_s": restore_s}


def test_medians_over_the_snapshots_of_valid_runs_count_and_are_said():
    words = save_interval([run(), run(restore_s=8.0), run("invalid", blocked_s=99.0)])

    assert words.startswith("a snapshot stops the training for 2 s; best interval for a failure per hour: every 120 s")
    assert words.endswith("costs at most that interval and 5 s, and 6 s to read the snapshot back")


def test_what_was_not_always_durable_or_never_read_back_is_left_out():
    assert save_interval([run(durable_slow_s=None, restore_s=None)]).endswith(" s (Daly)")


@pytest.mark.parametrize("runs", [[], [run("invalid")], [{"status": "valid"}]])
def test_a_cell_that_saves_nothing_has_no_interval(runs):
    assert save_interval(runs) == ""
