from __future__ import annotations

import copy

import pytest

from campaign.config.points import cells_of
from campaign.errors import UsageError
from tests.campaign.work_lists import compose


def test_equal_settings_are_one_cell(point):
    cells, _ = cells_of([point, copy.deepcopy(point), {**point, "threads": 9}])

    assert [cell.settings["threads"] for cell in cells] == [4, 9]


def test_cells_that_differ_only_in_how_jobs_are_kept_apart_are_one(point):
    other = {**point, "storage": {**point["storage"], "shared": False, "exclusive": "none"}}

    cells, _ = cells_of([point, other])

    assert len(cells) == 1


def test_an_option_of_sbatch_that_only_one_point_has_cannot_be_swept_either():
    other = compose("cluster=slurm", "+cluster.extra.nice=10")

    with pytest.raises(UsageError, match=r"cluster.extra.nice has several values \(None, 10\)"):
        cells_of([compose("cluster=slurm"), other])


def test_a_key_of_the_conduct_cannot_be_swept(point):
    with pytest.raises(UsageError, match=r"order_seed has several values \(0, 3\)"):
        cells_of([point, {**point, "order_seed": 3}])


def test_a_grid_without_points_is_an_error():
    with pytest.raises(UsageError, match="no points"):
        cells_of([])
