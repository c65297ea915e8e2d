"""What the system trace takes of a core: CPU time of its thread over the time that it watched.

    python tests/bench/trace_cost.py [--seconds 30]

Nothing else is done meanwhile; within runs of `micro` a sample was found to cost the same. Goal: below 1 %.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from jobs.observe.trace import Trace
from tests.bench.bench import options


def main() -> None:
    """Print a line for each interval."""
    seconds = options(__doc__, seconds=30).seconds
    for interval_s in (1.0, 0.1):
        with tempfile.TemporaryDirectory() as folder:
            trace = Trace([Path.cwd()], interval_s, 0.0, Path(folder) / "trace.csv")
            with trace:
                time.sleep(seconds)
            found = trace.finish()
        cost, samples = found["cpu_s"] / seconds, found["samples"]
        print(f"each {interval_s} s  {cost:.2%} of a core, {found['cpu_s'] / samples * 1e6:.0f} µs each of {samples}")


if __name__ == "__main__":
    main()
