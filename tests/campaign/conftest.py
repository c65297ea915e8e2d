from __future__ import annotations

import copy

import pytest

from campaign.cells.folder import opened
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.worker import __main__ as worker
from tests.campaign.command_line import CommandLine
from tests.campaign.fake_slurm import Programs
from tests.campaign.work_lists import slurm_conduct, work_list


@pytest.fixture(scope="session")
def _default_point():
    return collect(["-m"])[0]


@pytest.fixture
def point(_default_point):
    """The default configuration, composed; the test's own copy."""
    return copy.deepcopy(_default_point)


@pytest.fixture(scope="session")
def _alexnet_point():
    return collect(["-m", "benchmark=alexnet"])[0]


@pytest.fixture
def alexnet_point(_alexnet_point):
    """The same with the mini-application."""
    return copy.deepcopy(_alexnet_point)


@pytest.fixture
def direct_point():
    """The same with snapshots on a storage."""
    return collect(["-m", "benchmark=alexnet", "checkpoint=local", "checkpoint.every=2"])[0]


@pytest.fixture
def buffered_point():
    """The same with snapshots through a burst buffer."""
    words = ["checkpoint=burst_buffer", "checkpoint.every=2", "checkpoint.fast.root=fast", "checkpoint.slow.root=slow"]
    return collect(["-m", "benchmark=alexnet", *words])[0]


@pytest.fixture
def read_point():
    """The same with what a storage gives to one reader."""
    return collect(["-m", "benchmark=baseline"])[0]


@pytest.fixture
def random_read_point():
    """The same with what it gives to readers at random places."""
    return collect(["-m", "benchmark=baseline", "benchmark.access=random_read"])[0]


@pytest.fixture
def cells(point):
    """Three cells and the conduct."""
    points = [{**copy.deepcopy(point), "threads": threads} for threads in (1, 2, 4)]
    return cells_of(points)


@pytest.fixture
def folder(tmp_path):
    """An open campaign folder."""
    return opened(tmp_path / "results")[0]


@pytest.fixture
def command(tmp_path):
    """Run the command line in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture
def work(cells, folder):
    """A work list for three cells, on this machine."""
    return work_list(folder, *cells)


@pytest.fixture
def job(cells, folder):
    """A function that makes the work list of a Slurm job for the three cells."""

    def make(**cluster):
        made, conduct = cells
        return work_list(folder, made, slurm_conduct(conduct, **cluster), "slurm")

    return make


@pytest.fixture
def cpus(monkeypatch):
    """As many CPUs as any cell has threads; a function that changes the number."""

    def have(number):
        monkeypatch.setattr(worker, "place", lambda: {"host": "h", "node": "n1", "job": "77", "cpus": number})

    have(4)
    return have


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Slurm's clients as scripts, the only programs on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)
