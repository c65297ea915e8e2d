"""What runs are expected to take, from those that were, and what is said of it before and while they are under way.

Jobs that ask for far more than their runs take are packed, by what earlier runs took.
"""

import pytest

from campaign.cells import cell_plan
from campaign.cluster import price, submission
from campaign.cluster.cell_state import WorkerState
from campaign.cluster.price import ExpectedCost, JobCost
from campaign.cluster.progress import Follower, WatchedWorkers
from campaign.config.collect import make_cells
from campaign.worker.batch import CampaignCall
from jobs.system.files import write_json
from tests.campaign.fake_template import failed
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import UTC
from tests.campaign.work_lists import grid as compose_grid

START_S = 15.0

FAILED = WorkerState("ended", None, "", {"code": "FAILED"})


@pytest.fixture
def leave(folder):
    """Record a cell whose runs took these seconds."""

    def leave(cell, *seconds):
        leave_record(folder, cell, *({**failed(), "elapsed_s_with_fork": s} for s in seconds))

    return leave


@pytest.fixture
def grid():
    """A baseline of a whole file, which has no dataset, and a cell that reads images."""
    return make_cells(compose_grid("benchmark=baseline,micro"))


@pytest.fixture
def expect(folder):
    """A function that expects of one worker what these cells take; `begun` where it has begun a run."""

    def expect(cells, conduct):
        entries = cell_plan.make_plan(cells, conduct, folder).entries
        return price.expect_times([Follower.of_entries(folder, entries, conduct)], price.RunTimes(folder))

    return expect


def test_runs_take_the_mean_of_their_kind_or_of_all_and_the_start_of_their_worker(grid, expect, leave):
    cells, conduct = grid
    baseline, micro = sorted(cells, key=lambda cell: cell.benchmark)
    assert expect(cells, conduct) is None
    leave(micro, 10.0, 26.0, 12.0)
    assert expect([baseline], conduct).least.seconds == START_S + 6 * 16.0
    leave(baseline, 2.0, 3.0, 10.0)

    found = expect(cells, conduct)

    assert found.least.seconds == found.most.seconds == START_S + 6 * 5.0 + 6 * 16.0  # five measured runs and a warm-up
    assert str(found) == "about 2 min expected, from 6 earlier runs"


def test_runs_that_may_be_added_are_expected_too(expect, leave):
    cells, conduct = make_cells(compose_grid("until_spread=0.01", "max_runs=12"))
    leave(cells[0], 100.0)

    found = expect(cells, conduct)

    assert (found.least.seconds, found.most.seconds) == (START_S + 600.0, START_S + 1200.0)
    assert str(found).startswith("about 10 to 20 min")


@pytest.fixture
def submitted(folder):
    """A function that makes the arrays of cells, as ``--dry-run`` does, and their workers, as ``status`` does."""

    def submit(cells, conduct):
        request = CampaignCall(folder, conduct, "0a1b2c3d", UTC, ())
        arrays = list(submission.make_arrays(cell_plan.make_plan(cells, conduct, folder).to_do, request, 1001))
        workers = []
        for array in arrays:
            array.make_batch().save()
            for index, task in enumerate(array.tasks):
                data = dict.fromkeys((entry.cell.id for entry in task), None)
                write_json(array.make_batch().work_list(index), request.work_list("slurm", task, data))
            workers += [Follower.of_worker(folder, array.make_batch(), index) for index in range(len(array.tasks))]
        return arrays, workers

    return submit


@pytest.mark.parametrize(
    ("words", "minutes"),
    [((), 12), (("cluster.cells_per_job=10",), 3), (("cluster.parallel=4",), 3), (("until_spread=0.1",), 12)],
    ids=["a job each", "packed", "four at once", "runs may be added"],
)
def test_the_dry_run_status_and_the_live_view_give_one_number_and_it_has_every_job_s_start(
    words, minutes, folder, leave, submitted
):
    seeds = ",".join(map(str, range(41)))
    cells, conduct = make_cells(compose_grid("cluster=slurm", f"seed={seeds}", "runs=6", *words))
    leave(cells[0], *[0.5] * 6)
    arrays, workers = submitted(cells[1:], conduct)
    running = arrays[0].at_once

    before = price.price_arrays(arrays, folder).expected
    status = price.describe_remaining_runs(folder, workers, running)
    watched = WatchedWorkers(dict(enumerate(workers)))
    picture = watched.take_picture(dict.fromkeys(watched.followers, WorkerState("queued")))
    picture.counts["running"] = running
    eta_s = price.RemainingTime(folder)(picture)

    assert before.least.seconds == eta_s
    assert status == f"240 runs to go, {before}"
    assert eta_s / 60 == pytest.approx(minutes)


def test_what_is_to_go_is_of_runs_not_begun_by_workers_that_have_not_ended(leave, submitted, folder):
    cells, conduct = make_cells(compose_grid("cluster=slurm", "seed=0,1,2"))
    leave(cells[0], 10.0)
    _, workers = submitted(cells[1:], conduct)
    watched, eta, maker = (
        WatchedWorkers(dict(enumerate(workers))),
        price.RemainingTime(folder),
        Follower(folder, [], 1, "0a1b2c3d"),
    )
    both = price.describe_remaining_runs(folder, workers, 1)
    assert both == "12 runs to go, about 2 min expected, from 1 earlier run"
    assert [price.describe_remaining_runs(folder, each, 1) for each in ([maker, *workers], [maker])] == [
        both,
        "",
    ]  # it has no run

    suspended = WorkerState("running", {"code": "suspended"})
    assert eta(watched.take_picture({0: suspended, 1: WorkerState("queued")})) is None
    one_failed = eta(watched.take_picture({0: FAILED, 1: WorkerState("queued")}))
    none_is_left = eta(watched.take_picture({0: FAILED, 1: FAILED}))
    leave_record(folder, cells[1], {"status": "valid", "elapsed_s_with_fork": 10.0}, None, token="0a1b2c3d")

    assert (one_failed, none_is_left) == (START_S + 6 * 10.0, None)
    begun = price.describe_remaining_runs(folder, workers[:1], 1)  # its start is behind it
    assert begun == "5 runs to go, about 50 s expected, from 2 earlier runs"


def test_the_price_of_jobs_is_from_the_fewest_runs_to_the_most():
    times = ExpectedCost(JobCost(1800.0, 0.5), JobCost(7200.0, 2.0), 1, 6)

    one = price.Price(jobs=1, timeout_min=60, max_requeues=0, retries=0, expected=times)

    assert str(one).endswith("; 0.50 to 2.0 node-hours in about 30 to 120 min expected, from 6 earlier runs")


@pytest.mark.parametrize(
    ("minutes", "again", "words"),
    [
        (1, (0, 0), "0.017 node-hours at most (1 job of at most 1 min)"),
        (5, (0, 0), "0.083 node-hours at most (1 job of at most 5 min)"),
        (60, (3, 0), "1.0 node-hours, at most 4.0 after requeues (1 job of at most 60 min)"),
        (60, (0, 2), "1.0 node-hours, at most 3.0 after retries (1 job of at most 60 min)"),
        (1000, (3, 2), "17 node-hours, at most 200 after requeues and retries (1 job of at most 1000 min)"),
        (10_000, (0, 0), "167 node-hours at most (1 job of at most 10000 min)"),
    ],
)
def test_the_price_is_that_of_each_job_once_and_the_most_is_after_all_requeues_and_retries(minutes, again, words):
    assert str(price.Price(1, minutes, *again, None)) == words


def test_jobs_that_make_data_cost_node_hours_too(folder):
    cells, conduct = make_cells(compose_grid("cluster=slurm", "seed=0,1", "site.timeout_max_min=1440"))
    entries = cell_plan.make_plan(cells, conduct, folder).to_do
    made_by_job = {cell.id for cell in cells}
    arrays = list(
        submission.make_arrays(entries, CampaignCall(folder, conduct, "0a1b2c3d", UTC, ()), 1001, made_by_job)
    )

    cost = price.price_arrays(arrays, folder)

    assert (cost.jobs, cost.at_most_h) == (2, 26.0)
    assert "2 jobs of at most 60 min, and 24 to make data" in str(cost)
