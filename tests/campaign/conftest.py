from __future__ import annotations

import copy
from functools import lru_cache

import pytest

from campaign.cells.folder import opened
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.worker import __main__ as worker
from tests.campaign.command_line import CommandLine
from tests.campaign.fake_slurm import Clock, Programs
from tests.campaign.work_lists import slurm_conduct, work_list


@lru_cache
def _composed(*words):
    return collect(["-m", *words])[0]


def _point(*words):
    """The configuration of one cell, composed once; the test's own copy."""
    return copy.deepcopy(_composed(*words))


@pytest.fixture
def point():
    """The default configuration."""
    return _point()


@pytest.fixture
def alexnet_point():
    """The same with the mini-application."""
    return _point("benchmark=alexnet")


@pytest.fixture
def direct_point():
    """The same with snapshots on a storage."""
    return _point("benchmark=alexnet", "checkpoint=local", "checkpoint.every=2")


@pytest.fixture
def buffered_point():
    """The same with snapshots through a burst buffer."""
    words = ("checkpoint=burst_buffer", "checkpoint.every=2", "checkpoint.fast.root=fast", "checkpoint.slow.root=slow")
    return _point("benchmark=alexnet", *words)


@pytest.fixture
def read_point():
    """The same with what a storage gives to one reader."""
    return _point("benchmark=baseline")


@pytest.fixture
def random_read_point():
    """The same with what it gives to readers at random places."""
    return _point("benchmark=baseline", "benchmark.access=random_read")


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
def clock(monkeypatch):
    """A function that gives modules a clock that nobody waits for; returns it."""

    def give(*modules):
        clock = Clock()
        for module in modules:
            monkeypatch.setattr(module, "time", clock)  # not time.sleep itself: subprocess naps with it
        return clock

    return give


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Slurm's clients as scripts, the only programs on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Programs(folder)
