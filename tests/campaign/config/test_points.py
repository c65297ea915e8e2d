import copy

import pytest

from campaign.config.points import cells_of
from campaign.errors import UsageError
from tests.campaign.work_lists import compose


def test_equal_settings_are_one_cell(point):
    cells, _ = cells_of([point, copy.deepcopy(point), {**point, "threads": 9}])

    assert [cell.settings["threads"] for cell in cells] == [4, 9]


def test_an_option_of_sbatch_that_only_one_point_has_cannot_be_swept_either():
    other = compose("cluster=slurm", "+cluster.extra.nice=10")

    with pytest.raises(UsageError, match=r"cluster.extra.nice has several values \(None, 10\)"):
        cells_of([compose("cluster=slurm"), other])
