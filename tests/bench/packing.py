"""What packing cells into jobs saves: 200 cells in four jobs against an array task for each cell.

A cell is trivial: it reads 24 small files, once.

    python tests/bench/packing.py [--cells 200] [--workers 4]

On the four-node lab (tests/slurm/lab.py: needs root, slurm-wlm, munge). A worker imports TensorFlow once, so that the
array task of a single cell pays an import for each run; as many jobs run at once in both. It prints wall times and
their ratio (goal: at least 10), the largest memory of the front process itself (goal: below 150 MB) and how often it
asked the scheduler (goal: at most once a tick of a second).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.bench.bench import options

sys.path.insert(0, str(Path(__file__).parents[1] / "slurm"))

from tests.slurm import lab as laboratory
from tests.slurm.campaigns import WORDS

TRIVIAL = (
    "runs=1", "warmup_runs=0", "min_valid_runs=1", "cache=as_is", "storage.exclusive=none", "cluster.cpus_per_task=1",
    "cluster.oversubscribe=true", "benchmark.private_threads=1", "benchmark.preprocess=false",
)  # fmt: skip


def main() -> None:
    """Run both, one after the other, and print what they took."""
    asked = options(__doc__, cells=200, workers=4)
    reason = laboratory.missing()
    if reason:
        sys.exit(reason)
    walls = []
    with laboratory.lab(nodes=4, cpus=2) as cluster:
        for name, cells_per_job in (("packed", -(-asked.cells // asked.workers)), ("one a job", 1)):
            words = (f"threads=range(1,{asked.cells + 1})", f"cluster.cells_per_job={cells_per_job}")
            wall_s, memory, calls = campaign(cluster, *words, f"cluster.parallel={asked.workers}")
            walls.append(wall_s)
            print(
                f"{name:9}  {wall_s:6.1f} s, front process {memory / 1e6:.0f} MB, {calls} squeue in {wall_s:.0f} ticks"
            )
            cluster.mend()
    print(f"ratio      {walls[1] / walls[0]:.1f}")


def campaign(cluster: laboratory.Lab, *words: str) -> tuple[float, int, int]:
    """Run a campaign in a new folder; returns wall seconds, the front process's largest memory, calls of squeue."""
    with tempfile.TemporaryDirectory() as folder:
        started, memory = time.monotonic(), 0
        command = [sys.executable, "-m", "campaign", *WORDS, *TRIVIAL, *words]
        with Path(folder, "said").open("wb") as said:
            front = psutil.Popen(
                command, cwd=folder, env=cluster.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
            while front.poll() is None:
                with contextlib.suppress(psutil.Error):
                    memory = max(memory, front.memory_info().rss)
                time.sleep(0.2)
        wall_s = time.monotonic() - started
        if front.returncode != 0:
            sys.exit(Path(folder, "said").read_text())
        return wall_s, memory, cluster.calls("squeue")


if __name__ == "__main__":
    main()
