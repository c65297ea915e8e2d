"""Run a benchmark once and observe the run; `python -m jobs` does so without a campaign, Hydra or Slurm."""

import os
import sys
import time
from pathlib import Path

MARK = "TFIO_MARK"
"""The environment variable with the path of the file into which `mark` writes times."""

# The first entry of sys.path is removed, as in `campaign/__init__.py`, so that modules in the current folder are not
# imported by mistake. A user's program that is started with -m and imports `jobs` keeps its folder on sys.path.
if (
    sys.argv[:1] == ["-m"]
    and any(word.partition(".")[0].endswith("jobs") for word in sys.orig_argv)
    and (sys.flags.safe_path or f"{sys.path[0]}/jobs" not in __path__)
):
    os.environ["PYTHONSAFEPATH"] = "1"
    if not sys.flags.safe_path:
        del sys.path[0]


def mark() -> None:
    """Mark the start of the timed part of a user's program.

    Only the first mark of a run counts. Outside a measurement, this function does nothing.
    """
    if path := os.environ.get(MARK):
        with Path(path).open("a", encoding="ascii") as file:
            file.write(f"{time.perf_counter_ns()}\n")
