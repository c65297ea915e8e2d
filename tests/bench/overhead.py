"""What a run costs beyond its measured work: a fork of the template against a fresh interpreter, in one go.

    python tests/bench/overhead.py [--runs 11]

Both do the same run of the `demo` dataset (made in ./data if it is not there), eviction and proof included; the cost is
the time from the request to the answer less the wall time that the run itself measured. Goal: median of the forked
runs at most 0.5 s, and at least 10 times less than the fresh interpreter, which imports TensorFlow each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from campaign.worker.runner import Template
from tests.bench.bench import demo, medians, options, request


def main() -> None:
    """Alternate the two, so that a drift of the machine meets both, and print medians and their ratio."""
    runs = options(__doc__, runs=11).runs
    folder = demo()
    fresh, forked = [], []
    with tempfile.TemporaryDirectory() as logs:
        template = Template(Path(logs) / "template.log")
        template.run(request(folder), Path(logs) / "run.log", 600)  # imports TensorFlow, once
        for _ in range(runs):
            started = time.perf_counter()
            answer = template.run(request(folder), Path(logs) / "run.log", 600)
            forked.append(time.perf_counter() - started - answer["wall_s"])
            fresh.append(_fresh(folder))
        template.close()
    ours, theirs = medians(forked, fresh)
    print(f"forked run       {ours:.3f} s beyond the measured work, median of {runs}")
    print(f"fresh interpreter {theirs:.3f} s, median of {runs}")
    print(f"ratio            {theirs / ours:.1f}")


def _fresh(folder: Path) -> float:
    """Run the same benchmark by hand, in an interpreter of its own."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "jobs.benchmarks.micro", str(folder), "--threads", "4"],
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - started - float(json.loads(done.stdout)["wall_s"])


if __name__ == "__main__":
    main()
