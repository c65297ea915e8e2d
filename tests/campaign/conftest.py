from __future__ import annotations

import copy

import pytest
from command_line import CommandLine

from campaign import plan
from campaign.collect import collect
from campaign.folder import opened


@pytest.fixture(scope="session")
def _default_point():
    return collect(["-m"])[0]


@pytest.fixture
def point(_default_point):
    """The default configuration, composed; the test's own copy."""
    return copy.deepcopy(_default_point)


@pytest.fixture
def cells(point):
    """Three cells and the conduct."""
    points = [{**copy.deepcopy(point), "threads": threads} for threads in (1, 2, 4)]
    return plan.cells_of(points)


@pytest.fixture
def folder(tmp_path):
    """An open campaign folder."""
    return opened(tmp_path / "results")[0]


@pytest.fixture
def command(tmp_path):
    """Run the command line in an empty folder."""
    return CommandLine(tmp_path)
