from __future__ import annotations

import copy
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from campaign import plan
from campaign.collect import collect
from campaign.folder import opened

TINY = (
    "dataset.files=24",
    "dataset.median_bytes=3000",
    "dataset.width=64",
    "dataset.height=64",
    "dataset.classes=3",
    "batch_size=8",
    "runs=3",
    # The tests share the machine with whatever else runs on it; the rule itself has tests of its own.
    "checks.other_cpu_max=1000",
    "checks.other_mb_per_s_max=100000",
)


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


@dataclass
class CommandLine:
    """`python -m campaign` as a user speaks it, from a folder of its own."""

    cwd: Path

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "campaign", *words],
            cwd=self.cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "campaign", *words],
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def command(tmp_path):
    """Run the command line in an empty folder."""
    return CommandLine(tmp_path)
