"""Does prefetch hide the input? The mini-application on a storage as slow as Table I's HDD, one second a step.

    python tests/bench/overlap.py [--iterations 60] [--runs 3] [--iops 0] [--out DIR]

Needs root (a throttled loop device) and takes about a quarter of an hour. The accelerator is emulated: a step takes in
the whole batch and waits. The excess without prefetch is its runtime less that without any input
(``control=no_io``); prefetch 1 hides what it does not leave of it (goal: at least 95 %). The first batch of all can
hide behind nothing. ``--iops`` also bounds the reads a second, as a disk's head does (not in Table I): with 80 a batch
takes most of a step, and the excess stands out of the tens of milliseconds that the first TensorFlow operation after
an idle second costs on a virtual machine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.bench import options
from tests.bench.throttled import HDD, throttled


def main() -> None:
    """Measure the three cells for each number of threads, and print what prefetch hides."""
    if os.geteuid() != 0:
        sys.exit("a throttled device needs root")
    asked = options(__doc__, iterations=60, runs=3, threads=4, iops=0)
    out = Path(tempfile.mkdtemp(prefix="tfio-overlap-"))
    speed = dataclasses.replace(HDD, read_iops=asked.iops or None)
    with throttled(out / "hdd", speed) as root:
        common = (
            "cluster=local", f"campaign_dir={out}/results", "storage.name=hdd", f"storage.root={root}",
            "benchmark=alexnet", "accelerator=emulated", f"threads={asked.threads}", "batch_size=64",
            f"iterations={asked.iterations}", "dataset=caltech101", f"dataset.files={asked.iterations * 64}",
            f"runs={asked.runs}", "min_valid_runs=1",
        )  # fmt: skip
        _campaign(*common, "prefetch=0,1")
        _campaign(*common, "benchmark.control=no_io")
    _tell({_what(record): _runtime(record) for record in _records(out)})
    print(f"figures are in {out}/results/figures")


def _campaign(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "campaign", *words], stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        sys.exit(f"the campaign ended with {done.returncode}")


def _records(out: Path) -> list[dict]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in out.glob("results/records/*/record.json")]


def _what(record: dict) -> str:
    settings = record["cell"]["settings"]
    return "in memory" if settings["benchmark"]["control"] == "no_io" else f"prefetch {settings['prefetch']}"


def _runtime(record: dict) -> float:
    runs = [run for run in record["runs"] if run["role"] == "measured" and run["status"] == "valid"]
    return statistics.median(run["wall_s"] for run in runs)


def _tell(runtimes: dict[str, float]) -> None:
    for what, runtime in sorted(runtimes.items()):
        print(f"{what:10} {runtime:8.2f} s")
    excess, left = (runtimes[f"prefetch {number}"] - runtimes["in memory"] for number in (0, 1))
    print(f"excess     {excess:8.2f} s without prefetch, {left:.2f} s with it: {1 - left / excess:.1%} hidden")


if __name__ == "__main__":
    main()
