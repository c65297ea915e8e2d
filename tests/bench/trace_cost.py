"""What the system trace costs: CPU time of its thread over the time that it sampled.

Nothing else runs meanwhile; within runs of `micro` a sample costs the same.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jobs.observe.trace import SystemTrace
from tests.bench.bench import Figure

SIZES = {"smoke": {"seconds": 0.5}, "full": {"seconds": 30.0}}


def measure(seconds: float) -> Iterator[Figure]:
    """Sample an idle process, at the default interval and at a tenth of it."""
    for interval_s in (1.0, 0.1):
        with tempfile.TemporaryDirectory() as folder:
            trace = SystemTrace([Path.cwd()], interval_s, 0.0, Path(folder, "trace.csv"))
            trace.start()
            time.sleep(seconds)
            trace.stop()
            found = trace.finish()
        yield Figure(f"a sample each {interval_s:g} s", 100 * found["cpu_s"] / seconds, "% of a core", "below 1")
        yield Figure(f"a sample, each {interval_s:g} s", 1e6 * found["cpu_s"] / found["samples"], "µs")
