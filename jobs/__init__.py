"""Benchmarks and the probes around them; each runs by hand on a node without Hydra or Slurm."""

import os
import sys
import time
from pathlib import Path

MARK = "TFIO_MARK"
"""The environment variable with the path of the file of marks."""

# As in `campaign`; a user's program that is started with -m and imports us keeps its folder on the path.
if (
    sys.argv[:1] == ["-m"]
    and any(word.partition(".")[0].endswith("jobs") for word in sys.orig_argv)
    and (sys.flags.safe_path or f"{sys.path[0]}/jobs" not in __path__)
):
    os.environ["PYTHONSAFEPATH"] = "1"
    if not sys.flags.safe_path:
        del sys.path[0]


def mark() -> None:
    """Start the timed part of a program now; the first mark of a run counts. Does nothing outside a measurement."""
    if path := os.environ.get(MARK):
        with Path(path).open("a", encoding="ascii") as file:
            file.write(f"{time.perf_counter_ns()}\n")
