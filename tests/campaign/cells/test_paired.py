"""Pairs of runs, one with a profile and one without: what the profile costs."""

import pytest

from campaign.cells import cell_plan
from campaign.config.collect import make_cells
from campaign.errors import UsageError
from campaign.worker.session import WorkerStoppedError
from jobs.judging import stopping
from tests.campaign.fake_template import figures, invalid
from tests.campaign.work_lists import asked_again, compose, walk, work_list

pytestmark = pytest.mark.usefixtures("cpus")
ASKED = ("profile.posix=trace", "profile.compare=true")


def took(*seconds):
    """The figures of runs that took so long, after a warm-up."""
    return [figures(wall_s=each, wall_parts=["wall_s"]) for each in (9.0, *seconds)]


@pytest.fixture
def compared(folder):
    """The cell, the conduct and the work list of three pairs."""
    cells, conduct = make_cells([compose(*ASKED, "runs=4")])
    return cells, conduct, work_list(folder, cells, conduct)


def test_each_profiled_run_has_one_without_beside_it_and_the_record_says_what_it_cost(folder, compared):
    cells, conduct, work = compared

    template, (recorded,) = walk(folder, work, *took(2.2, 2.0, 1.0, 1.2, 3.0, 2.0))

    roles = [run["role"] for run in recorded["runs"]]
    assert roles == ["warmup", "measured", "unprofiled", "unprofiled", "measured", "measured", "unprofiled"]
    assert [bool(asked["profile"]) for asked, *_ in template.asked] == [role != "unprofiled" for role in roles]
    cost = recorded["profile_cost"]
    assert cost == {"pairs": 3, "median": pytest.approx(0.2), "min": pytest.approx(0.1), "max": 0.5}
    assert recorded["checks"][0]["message"].endswith("of 3 measured runs is 0.00% (at most 4.00%)")
    assert stopping.cost_in_words(cost) == "+20.00% of wall time (median of 3 pairs of runs, +10.00% to +50.00%)"
    assert cell_plan.make_plan(cells, conduct, folder).entries[0].missing == 0


def test_to_compare_changes_no_cell_and_asks_for_pairs_where_there_are_none_yet(folder, compared):
    cells, conduct, work = compared
    (plain,), alone = make_cells([compose(ASKED[0], "runs=4")])
    assert plain.id == cells[0].id
    walk(folder, work_list(folder, [plain], alone))

    (entry,) = cell_plan.make_plan(cells, conduct, folder).entries
    template, (recorded,) = walk(folder, asked_again(work))

    assert (entry.state, entry.missing) == ("done", 6)
    assert len(template.asked) == 1 + 6
    assert (recorded["profile_cost"]["pairs"], len(recorded["runs"])) == (3, 4 + 7)


def test_a_pair_of_which_one_run_does_not_count_is_made_again_and_is_in_no_cost(folder, compared):
    cells, conduct, work = compared
    with pytest.raises(WorkerStoppedError):
        walk(folder, work, *took(1.0), invalid(), *took(1.0)[1:], WorkerStoppedError())

    (entry,) = cell_plan.make_plan(cells, conduct, folder).entries
    _, (recorded,) = walk(folder, asked_again(work))

    assert entry.missing == 6
    assert (recorded["profile_cost"]["pairs"], len(stopping.profile_pairs(recorded, None))) == (3, 5)


def test_a_run_of_a_pair_that_was_begun_again_stands_in_no_pair():
    made = [("unprofiled", "valid", 5.0), ("unprofiled", "invalid", 1.0), ("measured", "valid", 1.0)]
    runs = [{"pair": 1, "role": role, "status": status, "wall_s": wall_s} for role, status, wall_s in made]

    assert stopping.profile_cost({"runs": runs}) is None
    assert stopping.profile_pairs({"runs": runs}, None) == [(runs[2], runs[1])]


@pytest.mark.parametrize(("words", "missing"), [(["benchmark=baseline"], [5]), (["profile.posix=none"], [5])])
def test_only_the_profiled_cells_of_a_grid_are_compared(words, missing, folder):
    cells, conduct = make_cells([compose(*ASKED), compose(*ASKED, *words)])

    assert [each.missing for each in cell_plan.make_plan(cells, conduct, folder).entries] == [10, *missing]
    with pytest.raises(UsageError, match="nothing to compare"):
        make_cells([compose("profile.compare=true")])
