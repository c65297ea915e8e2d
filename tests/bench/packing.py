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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.bench.bench import QUIET, Figure, of_children_cpu_s
from tests.slurm import lab as laboratory
from tests.slurm.campaigns import WORDS

NEEDS = "lab"
SIZES = {"smoke": {"cells": 2, "workers": 1}, "full": {"cells": 200, "workers": 4}}
TRIVIAL = (
    *WORDS, "runs=1", "warmup_runs=0", "min_valid_runs=1", "cache=as_is", "storage.exclusive=none",
    "benchmark.private_threads=1", "benchmark.preprocess=false", "cluster.cpus_per_task=1",
    "cluster.oversubscribe=true", "checks.time_error_max=1",
)  # fmt: skip


class Ran(NamedTuple):
    """What a command took: its front process's largest memory, CPU seconds with those of what it started."""

    wall_s: float
    cpu_s: float
    memory_mb: float
    squeue_a_minute: float


def measure(cells: int, workers: int) -> Iterator[Figure]:
    """Run both, one after the other."""
    walls = []
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        for name, cells_per_job in (("packed", -(-cells // workers)), ("one a job", 1)):
            words = (f"threads=range(1,{cells + 1})", f"cluster.cells_per_job={cells_per_job}")
            with tempfile.TemporaryDirectory() as folder:
                ran = command(cluster, folder, "--yes", *TRIVIAL, *words, f"cluster.parallel={workers}")
            walls.append(ran.wall_s)
            yield Figure(f"{cells} cells, {name}", ran.wall_s, "s")
            yield from of_front(f"{cells} cells, {name}", ran)
            cluster.mend()
    yield Figure("ratio of the two", walls[1] / walls[0], "", "at least 10")


def of_front(what: str, ran: Ran) -> Iterator[Figure]:
    """Yield what a front process took and asked."""
    yield Figure(f"{what}: memory of the front process", ran.memory_mb, "MB", "at most 100")
    yield Figure(f"{what}: `squeue`", ran.squeue_a_minute, "a minute", "at most 20")


def command(cluster: laboratory.Lab, folder: str, *words: str) -> Ran:
    """Give a command in a folder, and wait for its end."""
    started, used, asked, memory = time.monotonic(), of_children_cpu_s(), cluster.calls("squeue"), 0
    with Path(folder, "said").open("wb") as said:
        front = psutil.Popen(
            [sys.executable, "-m", "campaign", *words], cwd=folder, env=QUIET | cluster.environment,
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
        while front.poll() is None:
            with contextlib.suppress(psutil.Error):
                memory = max(memory, front.memory_info().rss)
            time.sleep(0.1)
    if front.returncode != 0:
        sys.exit(Path(folder, "said").read_text())
    wall_s, calls = time.monotonic() - started, cluster.calls("squeue") - asked
    return Ran(wall_s, of_children_cpu_s() - used, memory / 1e6, calls / max(1, wall_s / 60))
