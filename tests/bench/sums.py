"""What it costs to add gradients up at our hub, which asks for a secret, beside TensorFlow's ring, which does not.

The ranks are processes of this machine, forked from one template as a campaign's are, and add up gradients of the sizes
of HEPCNNB's network (594,178 numbers, 2.4 MB) or of one number, as ``micro`` does. A step's time is that of the slowest
rank, from before it meets the others until it has the sums; the first step of each run is not counted. On one machine
all bytes go through memory: on a cluster the hub moves twice the gradients of every rank through the link of one node,
the ring twice a rank's own through each.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from campaign.worker.runner import Template, local_ranks
from jobs.benchmarks.nersc_trainer import hep_kernels
from jobs.lazy_imports import np
from jobs.ranks.hub import Hub
from jobs.ranks.rank import join_ranks
from tests.bench.bench import Figure

SIZES = {"smoke": {"steps": 3, "ranks": 2}, "full": {"steps": 100, "ranks": 4}}
_TIMEOUT_S = 300.0
_KERNELS = hep_kernels(1.0)
_SHAPES = {"HEPCNNB's gradients": [each for shape in _KERNELS for each in (shape, shape[-1:])], "one number": [()]}
_WAYS = {"allreduce": "our hub", "ring": "TensorFlow's ring"}


def measure(steps: int, ranks: int) -> Iterator[Figure]:
    """Measure both ways on 2 ranks, 4, … and so many."""
    with tempfile.TemporaryDirectory() as place:
        template = Template(Path(place, "template.log"), ("tensorflow", "tests.bench.sums"))
        with closing(template):
            for size in range(2, ranks + 1, 2):
                for what, shapes in _SHAPES.items():
                    for sync, way in _WAYS.items():
                        seconds = _together(template, size, {"sync": sync, "shapes": shapes, "steps": steps}, place)
                        median_s = statistics.median(map(max, zip(*seconds, strict=True)))
                        yield Figure(f"a sum of {what} over {size} ranks, {way}", 1e3 * median_s, "ms")


def _together(template: Template, size: int, asked: dict[str, Any], place: str) -> list[list[float]]:
    """Return the seconds of each rank's steps."""
    here = local_ranks(template, size)
    with closing(Hub(size, _TIMEOUT_S, here.addresses[0], here.hub_secret)) as hub:
        common = {"size": size, "sync": asked["sync"], "hub": here.addresses[0], "port": hub.port}
        common |= {"secret": hub.secret, "address": here.addresses[0], "timeout_s": _TIMEOUT_S}
        arguments = [{**asked, "rank": {**common, "rank": rank}} for rank in range(size)]
        logs = [Path(place, f"{rank}.log") for rank in range(size)]
        outcomes = template.run_together(arguments, logs, _TIMEOUT_S, "tests.bench.sums:steps_of")
    return [each.run["seconds"] for each in outcomes]


def steps_of(argument: dict[str, Any]) -> dict[str, Any]:
    """Take the steps of one rank; returns their seconds."""
    with join_ranks(argument) as rank:
        gradients = [np.ones(shape, np.float32) for shape in argument["shapes"]]
        rank.meet(gradients)
        seconds = []
        for _ in range(argument["steps"]):
            rank.barrier()
            before = time.perf_counter()
            rank.meet(gradients)
            seconds.append(time.perf_counter() - before)
    return {"seconds": seconds}
