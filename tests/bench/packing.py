"""What packing cells into jobs saves, and what thousands of cells cost, on the four-node lab (tests/slurm/lab.py).

First 200 cells in four jobs against an array task for each cell. A cell is trivial: it reads 24 small files, once. A
worker imports TensorFlow once, so that the array task of a single cell pays an import for each run; as many jobs run at
once in both. Then so `many` cells whose run takes a second, packed: submitted, taken up again by the same command, run
to their end and reported. A cell's cost beyond its run is the time from the start of its run to that of the next one of
its job, less the run.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import psutil

from tests.bench.bench import QUIET, Figure, of_children_cpu_s
from tests.slurm import lab as laboratory
from tests.slurm.campaigns import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDS = "lab"
SIZES = {"smoke": {"cells": 2, "workers": 1, "many": 4}, "full": {"cells": 200, "workers": 4, "many": 2000}}
TRIVIAL = (
    *WORDS, "runs=1", "warmup_runs=0", "min_valid_runs=1", "cache=as_is", "storage.exclusive=none",
    "benchmark.private_threads=1", "benchmark.preprocess=false", "cluster.cpus_per_task=1",
    "cluster.oversubscribe=true", "checks.time_error_max=1",
)  # fmt: skip
OF_A_SECOND = ("trace.interval_s=0.2", "trace.tail_s=0.8", "cluster.timeout_min=60")  # and the processors are free


class Ran(NamedTuple):
    """What a command took: its front process's largest memory, CPU seconds with those of what it started."""

    wall_s: float
    cpu_s: float
    memory_mb: float
    squeue_a_minute: float


def measure(cells: int, workers: int, many: int) -> Iterator[Figure]:
    """Run all, one after the other."""
    walls = []
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        for name, cells_per_job in (("packed", -(-cells // workers)), ("one a job", 1)):
            words = (f"threads=range(1,{cells + 1})", f"cluster.cells_per_job={cells_per_job}")
            with tempfile.TemporaryDirectory() as folder:
                ran = command(cluster, folder, *TRIVIAL, *words, f"cluster.parallel={workers}")
            walls.append(ran.wall_s)
            yield Figure(f"{cells} cells, {name}", ran.wall_s, "s")
            yield from _of_front(f"{cells} cells, {name}", ran)
            cluster.mend()
        yield Figure("ratio of the two", walls[1] / walls[0], "", "at least 10")
        with tempfile.TemporaryDirectory() as folder:
            yield from thousands(cluster, folder, workers, many)


def thousands(cluster: laboratory.Lab, folder: str, workers: int, many: int) -> Iterator[Figure]:
    """Run so many cells of a second to their end."""
    grid = (f"seed=range({many // 2})", "threads=1,2")
    jobs = (f"cluster.cells_per_job={-(-many // workers)}", f"cluster.parallel={workers}")
    words, what = (*TRIVIAL, *OF_A_SECOND, *grid, *jobs), f"{many:,} cells of 1 s"
    yield Figure(f"{what}: submit", command(cluster, folder, *words, "detach=true").cpu_s, "CPU s", "at most 5")
    to_end = command(cluster, folder, *words)
    yield Figure(f"{what}: to their end", to_end.wall_s, "s")
    yield from _of_front(what, to_end)
    yield Figure(f"{what}: each beyond its run", beyond(Path(folder), many), "s", "at most 0.1")
    again, before = command(cluster, folder, *words), cluster.calls("sbatch")
    yield Figure(f"{what}: the same command again, its report included", again.wall_s, "s")
    assert cluster.calls("sbatch") == before == 1, "something was submitted twice"
    for verb in ("status", "watch", "report"):
        yield Figure(f"{what}: `{verb}` afterwards", command(cluster, folder, verb).wall_s, "s")


def _of_front(what: str, ran: Ran) -> Iterator[Figure]:
    yield Figure(f"{what}: memory of the front process", ran.memory_mb, "MB", "at most 100")
    yield Figure(f"{what}: `squeue`", ran.squeue_a_minute, "a minute", "at most 20")


def beyond(folder: Path, many: int) -> float:
    """Return the mean seconds of a cell beyond its run; each cell must be done, by one run."""
    records = [json.loads(path.read_text()) for path in folder.glob("results/records/*/record.json")]
    ends = Counter((one["status"], *((run["status"], run["reason"]) for run in one["runs"])) for one in records)
    assert ends == {("done", ("valid", None)): many}, f"cells were lost or repeated: {ends}"
    runs = {one["cell"]["id"]: one["runs"][0] for one in records}
    begun = {cell: dt.datetime.fromisoformat(run["started_utc"]).timestamp() for cell, run in runs.items()}
    batches = [json.loads(path.read_text()) for path in folder.glob("results/workers/*/batch.json")]
    pairs = [pair for batch in batches for cells in batch["cells"] for pair in pairwise(cells)]
    return fmean(begun[later] - begun[cell] - runs[cell]["elapsed_s_with_fork"] for cell, later in pairs)


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
