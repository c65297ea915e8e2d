"""What packing cells into jobs saves: 200 cells in four jobs against an array task for each cell.

A cell is trivial: it reads 24 small files, once. On the four-node lab (tests/slurm/lab.py). A worker imports TensorFlow
once, so that the array task of a single cell pays an import for each run; as many jobs run at once in both.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.bench.bench import QUIET, Figure
from tests.slurm import lab as laboratory
from tests.slurm.campaigns import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDS = "lab"
SIZES = {"smoke": {"cells": 2, "workers": 1}, "full": {"cells": 200, "workers": 4}}
TRIVIAL = (
    "runs=1", "warmup_runs=0", "min_valid_runs=1", "cache=as_is", "storage.exclusive=none", "cluster.cpus_per_task=1",
    "cluster.oversubscribe=true", "benchmark.private_threads=1", "benchmark.preprocess=false",
)  # fmt: skip


def measure(cells: int, workers: int) -> Iterator[Figure]:
    """Run both, one after the other."""
    walls = []
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        for name, cells_per_job in (("packed", -(-cells // workers)), ("one a job", 1)):
            words = (f"threads=range(1,{cells + 1})", f"cluster.cells_per_job={cells_per_job}")
            wall_s, memory, calls = campaign(cluster, *words, f"cluster.parallel={workers}")
            walls.append(wall_s)
            yield Figure(f"{cells} cells, {name}", wall_s, "s")
            yield Figure(f"{cells} cells, {name}, memory of the front process", memory / 1e6, "MB", "below 150")
            yield Figure(f"{cells} cells, {name}, `squeue`", calls / wall_s, "a second", "at most 1")
            cluster.mend()
    yield Figure("ratio of the two", walls[1] / walls[0], "", "at least 10")


def campaign(cluster: laboratory.Lab, *words: str) -> tuple[float, int, int]:
    """Run a campaign in a new folder; returns wall seconds, the front process's largest memory, calls of squeue."""
    with tempfile.TemporaryDirectory() as folder:
        started, memory = time.monotonic(), 0
        command = [sys.executable, "-m", "campaign", *WORDS, *TRIVIAL, *words]
        with Path(folder, "said").open("wb") as said:
            front = psutil.Popen(
                command, cwd=folder, env=QUIET | cluster.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            while front.poll() is None:
                with contextlib.suppress(psutil.Error):
                    memory = max(memory, front.memory_info().rss)
                time.sleep(0.2)
        wall_s = time.monotonic() - started
        if front.returncode != 0:
            sys.exit(Path(folder, "said").read_text())
        return wall_s, memory, cluster.calls("squeue")
