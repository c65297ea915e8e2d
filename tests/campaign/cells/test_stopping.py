"""Runs that are added until the interval of the median is narrow enough."""

import copy
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.cells import cell_plan
from campaign.worker.session import WorkerStoppedError
from jobs.judging import intervals, stopping
from tests.campaign.fake_template import TERMS, failed, figures, invalid
from tests.campaign.work_lists import asked_again, walk

pytestmark = pytest.mark.usefixtures("cpus")
WIDE = [90.0, 95.0, 100.0, 105.0, 110.0]
RATES = st.one_of(st.floats(1.0, 900.0), st.sampled_from([100.0, 107.0, 130.0]))


@pytest.fixture
def adding(work):
    """A work list of one cell that may have up to eight measured runs."""
    work["cells"] = work["cells"][:1]
    work["conduct"] |= {"until_spread": 0.02, "max_runs": 9}
    return work


def runs_of(rates):
    return [figures(1.0), *(figures(rate) for rate in rates)]


@given(rates=st.lists(RATES, max_size=14))
def test_the_width_is_a_share_of_numpy_s_median_and_the_limit_itself_is_narrow_enough(rates):
    found = intervals.interval_of_median(rates)
    width = (found.high - found.low) / np.median(rates) if found else None

    edge = [np.nextafter(width, 0), width, np.nextafter(width, 1e9)] if found and width else [1.0]
    checks = [stopping.check_spread(rates, {**TERMS, "until_spread": limit}) for limit in edge]

    assert [check["observed"] for check in checks] == [width] * len(edge)
    assert [check["passed"] for check in checks] == ([False, True, True] if found and width else [found is not None])
    assert stopping.check_spread(rates, {**TERMS, "until_spread": None}) is None


def test_a_done_cell_gets_only_what_is_added_after_a_warm_up_of_its_own(folder, adding):
    before = copy.deepcopy(adding)
    before["conduct"]["until_spread"] = None
    walk(folder, before, *runs_of([98.0, 99.0, 100.0, 101.0, 102.0]))

    _, (recorded,) = walk(folder, asked_again(adding), *runs_of([100.0, 100.0, 100.0]))

    roles = [(run["role"], "added" in run) for run in recorded["runs"]]
    assert roles == [
        ("warmup", False), *[("measured", False)] * 5, ("warmup", False), *[("measured", True)] * 3,
    ]  # fmt: skip
    assert recorded["checks"][1]["observed"] == pytest.approx(0.02)


def test_a_session_that_was_cut_goes_on_where_it_was(folder, one):
    one["conduct"] |= {"until_spread": 0.02, "max_runs": 9}
    with pytest.raises(WorkerStoppedError):
        walk(folder, one, *runs_of([*WIDE, 100.0]), WorkerStoppedError(signal.SIGUSR2))

    template, (recorded,) = walk(folder, one, *runs_of([100.0, 100.0]))

    measured = [run for run in recorded["runs"] if run["role"] == "measured"]
    assert [run["status"] for run in measured] == ["valid"] * 6 + ["failed"] + ["valid"] * 2
    assert [run["added"]["n"] for run in measured[5:]] == [5, 6, 6, 7]
    assert [run["role"] for run in recorded["runs"]].count("warmup") == 2
    assert len(template.asked) == 3


@pytest.mark.parametrize(("spoilt", "asked"), [([invalid()] * 20, 9), ([failed()] * 2, 8)])
def test_runs_that_do_not_count_do_not_go_on_for_ever(spoilt, asked, folder, adding):
    template, (recorded,) = walk(folder, adding, *runs_of(WIDE), *spoilt)

    assert len(template.asked) == asked
    assert recorded["status"] == "done"
    assert [run["added"]["n"] for run in recorded["runs"][6:]] == [5] * (asked - 6)
    assert recorded["reason"] is None
    assert "the same command adds more" in recorded["checks"][1]["message"]

    again, (later,) = walk(folder, asked_again(adding), *runs_of([100.0] * 3))

    assert len(again.asked) == 4
    assert len(stopping.measured_runs(later, "valid")) == 8


def test_what_the_worker_that_was_killed_left_is_judged_by_the_plan_which_says_how_many_runs_there_may_be(
    folder, cells, adding
):
    made, conduct = cells
    adding["conduct"] |= {"max_runs": 30}
    planned = cell_plan.make_plan(made, {**conduct, "until_spread": 0.01}, folder)
    assert [(entry.missing, entry.at_most) for entry in planned.entries] == [(5, 29)] * 3
    assert cell_plan.format_number_of_runs(planned.to_do, planned.conduct) == "18 to 90 runs"
    assert cell_plan.format_number_of_runs(cell_plan.make_plan(made, conduct, folder).to_do, conduct) == "18 runs"

    with pytest.raises(KeyboardInterrupt):
        walk(folder, adding, *runs_of(WIDE), KeyboardInterrupt())

    loosely, wide, narrow = (
        cell_plan.make_plan(made[:1], {**conduct, "until_spread": share}, folder).entries[0]
        for share in (None, 0.02, 0.5)
    )
    assert [(entry.missing, entry.at_most) for entry in (loosely, wide, narrow)] == [(0, 0), (1, 24), (0, 0)]
