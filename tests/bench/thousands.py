"""What thousands of cells cost, packed into four jobs on the four-node lab (tests/slurm/lab.py).

The run of each takes a second, in which the processors are free. They are submitted, taken up again by the same
command, run to their end and reported. A cell's cost beyond its run is the time from the start of its run to that of
the next one of its job, less the run.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from tests.bench.bench import Figure, said
from tests.slurm import lab as laboratory
from tests.slurm.campaigns import WORDS

SIZES = {"smoke": {"many": 4, "workers": 1}, "full": {"many": 2000, "workers": 4}}
OF_A_SECOND = (
    *WORDS, "runs=1", "warmup_runs=0", "min_valid_runs=1", "cache=as_is", "storage.exclusive=none",
    "benchmark.private_threads=1", "benchmark.preprocess=false", "cluster.cpus_per_task=1",
    "cluster.oversubscribe=true", "checks.time_error_max=1", "trace.interval_s=0.2", "trace.tail_s=0.8",
    "cluster.timeout_min=60",
)  # fmt: skip


def measure(many: int, workers: int) -> Iterator[Figure]:
    """Run them, and ask for them afterwards."""
    grid = (f"seed=range({many // 2})", "threads=1,2")
    jobs = (f"cluster.cells_per_job={-(-many // workers)}", f"cluster.parallel={workers}")
    words, what = (*OF_A_SECOND, *grid, *jobs), f"{many:,} cells of 1 s"
    with laboratory.lab(nodes=4, cpus=2) as cluster, tempfile.TemporaryDirectory() as folder:
        yield Figure(f"{what}: submit", _wall_s(cluster, folder, *words, "detach=true"), "s")
        asked, wall_s = cluster.calls("squeue"), _wall_s(cluster, folder, *words)
        yield Figure(f"{what}: to their end", wall_s, "s")
        a_minute = (cluster.calls("squeue") - asked) / max(1, wall_s / 60)
        yield Figure(f"{what}: `squeue`", a_minute, "a minute", "at most 20")
        yield Figure(f"{what}: each beyond its run", beyond(Path(folder), many), "s", "at most 0.1")
        again_s = _wall_s(cluster, folder, *words)
        yield Figure(f"{what}: the same command again, its report included", again_s, "s")
        for verb in ("status", "status --watch", "report"):
            yield Figure(f"{what}: `{verb}` afterwards", _wall_s(cluster, folder, *verb.split()), "s")
        assert len([*Path(folder).glob("results/workers/*/batch.json")]) == 1, "something was submitted twice"


def _wall_s(cluster: laboratory.Lab, folder: str, *words: str) -> float:
    """Give a command in a folder, and wait for its end."""
    started = time.monotonic()
    said([sys.executable, "-m", "campaign", *words], cwd=folder, more=cluster.environment)
    return time.monotonic() - started


def beyond(folder: Path, many: int) -> float:
    """Return the mean seconds of a cell beyond its run; each cell must be done, by one run."""
    records = [json.loads(path.read_text()) for path in folder.glob("results/records/*/record.json")]
    runs = {record["cell"]["id"]: run for record in records for run in record["runs"]}
    assert len(records) == len(runs) == many == sum(len(record["runs"]) for record in records), "lost or repeated cells"
    assert {run["status"] for run in runs.values()} == {"ended"}
    begun = {cell: dt.datetime.fromisoformat(run["started_utc"]).timestamp() for cell, run in runs.items()}
    batches = [json.loads(path.read_text()) for path in folder.glob("results/workers/*/batch.json")]
    pairs = [pair for batch in batches for cells in batch["cells"] for pair in pairwise(cells)]
    return fmean(begun[later] - begun[cell] - runs[cell]["elapsed_s_with_fork"] for cell, later in pairs)
