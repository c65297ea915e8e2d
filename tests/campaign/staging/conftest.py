"""Profiled runs of a storage whose costs are known, and a fast storage beside it."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from campaign.staging.cost import ReadCost
from campaign.staging.observed_runs import ObservedRuns, ProfiledRun

SLOW, FAST = ReadCost(5e-3, 6e-9), ReadCost(1e-4, 1e-9)
OTHER_S = 0.5  # of a run, beside its reads


@pytest.fixture
def observed(tmp_path):
    """A function: runs over files of these sizes; the half turn of a disk is as long as chance will have it."""

    def make(sizes, runs=5, own_s=0.0, chance_s=2.4e-3, waits=1.0):
        rng, sizes = np.random.default_rng(1), np.asarray(sizes, float)
        ones, made = np.ones(len(sizes)), []
        for _ in range(runs):
            spent = SLOW.seconds(ones, sizes) + own_s + rng.uniform(-1.7, 1.7, len(sizes)) * chance_s
            wall = spent.sum() + OTHER_S
            made.append(ProfiledRun(wall, waits * wall, spent.sum(), ones, sizes, spent, np.cumsum(spent)))
        return ObservedRuns(tmp_path / "data", [f"{number:05d}" for number in range(len(sizes))], made, "a cell")

    return make


@pytest.fixture
def fast_root():
    """A folder on another file system than pytest's."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
