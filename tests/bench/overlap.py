"""Does prefetch hide the input? The mini-application on a storage as slow as Table I's HDD, one second a step.

The accelerator is emulated: a step takes in the whole batch and waits. The excess without prefetch is its runtime less
that without any input (``control=no_io``); prefetch 1 hides what it does not leave of it. The first batch of all cannot
be hidden. ``--iops`` also limits the reads a second, as a disk's head does (not in Table I): with 80 a batch takes
most of a step, and the excess is well above the tens of milliseconds that the first TensorFlow operation after an idle
second costs on a virtual machine. Takes about a quarter of an hour.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench import Figure, said
from tests.bench.throttled import HDD, throttled
from tests.judged import records_of

NEEDS = "root"
SIZES = {
    # In the suite another test runs beside it.
    "smoke": {"iterations": 2, "runs": 1, "threads": 4, "iops": 0, "batch": 8, "other_cpu": 1000.0},
    "full": {"iterations": 60, "runs": 3, "threads": 4, "iops": 80, "batch": 64, "other_cpu": 0.5},
}


def measure(  # noqa: PLR0913, PLR0917 - the keys of a size
    iterations: int, runs: int, threads: int, iops: int, batch: int, other_cpu: float
) -> Iterator[Figure]:
    """Measure the three cells."""
    with tempfile.TemporaryDirectory(prefix="tfio-overlap-") as place:
        with throttled(Path(place, "hdd"), dataclasses.replace(HDD, read_iops=iops or None)) as root:
            common = (
                "cluster=local", f"campaign_dir={place}/results", "storage.name=hdd", f"storage.root={root}",
                "benchmark=alexnet", "accelerator=emulated", f"threads={threads}", f"batch_size={batch}",
                f"iterations={iterations}", "dataset=caltech101", f"dataset.files={iterations * batch}",
                f"dataset.classes={min(102, iterations * batch)}",
                f"runs={runs + 1}", "min_valid_runs=1", f"checks.other_cpu_max={other_cpu}",
            )  # fmt: skip
            for words in ("prefetch=0,1", "benchmark.control=no_io"):
                said([sys.executable, "-m", "campaign", *common, words])
        records = records_of(Path(place, "results"))
    took = {_what(each): _runtime(each) for each in records}
    for what, runtime in sorted(took.items()):
        yield Figure(f"{iterations} steps of 1 s, {what}", runtime, "s")
    alone, without, with_it = took["no input"], took["prefetch 0"], took["prefetch 1"]
    yield Figure(
        "of the input hidden by prefetch 1", 100 * (1 - (with_it - alone) / (without - alone)), "%", "at least 95"
    )


def _what(record: dict[str, Any]) -> str:
    settings = record["cell"]["settings"]
    return "no input" if settings["benchmark"]["control"] == "no_io" else f"prefetch {settings['prefetch']}"


def _runtime(record: dict[str, Any]) -> float:
    runs = [run for run in record["runs"] if run["role"] == "measured" and run["status"] == "valid"]
    return statistics.median(run["wall_s"] for run in runs)
