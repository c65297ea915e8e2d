"""What runs are expected to take, from those that were."""

import pytest

from campaign.cells import plan
from campaign.cluster import price
from campaign.config.points import cells_of
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import grid as compose_grid


@pytest.fixture
def leave(folder):
    """Record a cell whose runs took these seconds."""

    def leave(cell, *seconds):
        leave_record(folder, cell, *({"status": "failed", "reason": "x", "elapsed_s_with_fork": s} for s in seconds))

    return leave


@pytest.fixture(scope="module")
def grid():
    """A baseline of a whole file, which has no dataset, and a cell that reads images."""
    return cells_of(compose_grid("benchmark=baseline,micro"))


def test_runs_take_what_those_of_their_kind_took(grid, folder, leave):
    cells, conduct = grid
    baseline, micro = sorted(cells, key=lambda cell: cell.benchmark)
    before = price.expected(plan.make(cells, conduct, folder).entries, conduct, folder)
    leave(baseline, 2.0, 4.0)
    leave(micro, 10.0)

    found = price.expected(plan.make(cells, conduct, folder).entries, conduct, folder)

    assert before is None
    assert found == (6 * 3.0 + 6 * 10.0, 6 * 3.0 + 6 * 10.0, 3)  # five measured runs and a warm-up each
    assert str(found) == "about 1 min expected, from 3 earlier runs"


def test_runs_of_an_unknown_kind_take_what_all_took(grid, folder, leave):
    cells, conduct = grid
    baseline, micro = sorted(cells, key=lambda cell: cell.benchmark)
    leave(micro, 10.0, 20.0)

    found = price.expected(plan.make([baseline], conduct, folder).entries, conduct, folder)

    assert found.least_s == 6 * 15.0


def test_runs_that_may_be_added_are_expected_too(folder, leave):
    cells, conduct = cells_of(compose_grid("until_spread=0.01", "max_runs=12"))
    leave(cells[0], 100.0)

    found = price.expected(plan.make(cells, conduct, folder).entries, conduct, folder)

    assert (found.least_s, found.most_s) == (600.0, 1200.0)
    assert str(found).startswith("about 10 to 20 min")


def test_the_price_of_jobs_is_from_the_fewest_runs_to_the_most():
    one = price.Price(jobs=1, timeout_min=60, max_requeues=0, retries=0, runs=price.Expected(1785, 7185, 6))

    assert "about 0.50 to 2.0 expected" in str(one)


def test_what_requeues_and_retries_may_add_to_the_price_is_said():
    one = price.Price(jobs=1, timeout_min=60, max_requeues=3, retries=2, runs=None)

    assert str(one).endswith("times 4 if all are requeued, times 3 if all are tried again)")


@pytest.mark.parametrize(("minutes", "hours"), [(1, "0.017"), (5, "0.083"), (60, "1.0"), (1000, "17"), (10_000, "167")])
def test_node_hours_have_two_digits_that_mean_something(minutes, hours):
    assert str(price.Price(1, minutes, 0, 0, None)).startswith(f"{hours} node-hours at most")
