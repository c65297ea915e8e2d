"""Benchmarks and the probes around them; each runs by hand on a node without Hydra or Slurm."""

import os
import sys

from jobs.marks import mark as mark

# As in `campaign`; a program of somebody's that is started in this way, and imports us, keeps its folder.
if (
    sys.argv[:1] == ["-m"]
    and any(word.partition(".")[0].endswith("jobs") for word in sys.orig_argv)
    and (sys.flags.safe_path or f"{sys.path[0]}/jobs" not in __path__)
):
    os.environ["PYTHONSAFEPATH"] = "1"
    if not sys.flags.safe_path:
        del sys.path[0]
