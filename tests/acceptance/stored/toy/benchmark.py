"""A benchmark of somebody's own: how fast this machine adds."""

import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from jobs.benchmarks.benchmark import Benchmark, Figure
from jobs.model.declared import Setting
from jobs.model.settings import NodeWithName
from jobs.ready_run import ReadyRun


class Keys(NodeWithName):
    """The settings of the benchmark."""

    size: Annotated[int, Meta(ge=1, le=10), Setting("how much there is to do")] = 1


@contextmanager
def begin(request):
    """Get ready for a run."""
    size = request["settings"]["benchmark"]["size"]

    def measure(watched):
        with watched:
            start = time.perf_counter()
            sum(range(size * 100_000))
            wall_s = time.perf_counter() - start
        return {"wall_s": wall_s, "work_s": wall_s, "sums_per_s": size / wall_s}

    yield ReadyRun(measure, Path(request["dataset"]))


BENCHMARK = Benchmark(
    name="toy",
    version=1,
    kind="storage",
    keys=Keys,
    begin=begin,
    figure=Figure("sums_per_s", "sums/s"),
    data="nothing",
    settings=("benchmark", "storage"),
    wall_parts=("work_s",),
)
