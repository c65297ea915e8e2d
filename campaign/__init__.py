"""Plan, submit, watch and record benchmark campaigns that measure storage under TensorFlow."""

import os
import sys

# `python -m campaign` puts the current folder first into sys.path, where a file `numpy.py` may lie. The folder must be
# removed before any other import.
if sys.argv[:1] == ["-m"] and (sys.flags.safe_path or f"{sys.path[0]}/campaign" not in __path__):
    os.environ["PYTHONSAFEPATH"] = "1"  # for the child processes of this process
    if not sys.flags.safe_path:
        del sys.path[0]
