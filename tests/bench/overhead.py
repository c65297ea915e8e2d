"""What a run costs beyond its measured work: forked from the fork server against a fresh interpreter, in turns.

Both do the same run, eviction and proof included; the cost is the time from the request to the answer less the wall
time that the run itself measured. The fresh interpreter imports TensorFlow each time.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from campaign.worker.runner import Template
from tests.bench.bench import Figure, request, said

SIZES = {"smoke": {"runs": 1, "files": 24}, "full": {"runs": 11, "files": 512}}
_FRESH = "import json, sys; from jobs.run import execute; print(json.dumps(execute(json.load(sys.stdin))))"


def measure(runs: int, files: int) -> Iterator[Figure]:
    """Alternate the two, so that a drift of the machine meets both."""
    argument = request("threads=4", f"dataset.files={files}")
    forked, fresh, inside = [], [], []
    with tempfile.TemporaryDirectory() as logs:
        template = Template(Path(logs, "template.log"))
        template.start()  # imports TensorFlow, once
        for _ in range(runs):
            started = time.perf_counter()
            answer = template.run(argument, Path(logs, "run.log"), 600)
            forked.append(time.perf_counter() - started - answer["wall_s"])
            inside.append(answer["overhead_s"])
            started = time.perf_counter()
            answer = json.loads(said([sys.executable, "-c", _FRESH], json.dumps(argument)))
            fresh.append(time.perf_counter() - started - answer["wall_s"])
        template.close()
    ours, theirs = statistics.median(forked), statistics.median(fresh)
    yield Figure("a run beyond its work", ours, "s", "at most 0.12")
    yield Figure("of that, what the run itself does: cache, proof, graph, counters", statistics.median(inside), "s")
    yield Figure("a run beyond its work, in a fresh interpreter", theirs, "s")
    yield Figure("ratio of the two", theirs / ours, "", "at least 10")
