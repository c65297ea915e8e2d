"""Decide, submit, watch and record benchmark campaigns of storage under TensorFlow."""

import os
import sys

# `python -m campaign` has put the current folder first, where a `numpy.py` may lie. It goes before any import.
if sys.argv[:1] == ["-m"] and (sys.flags.safe_path or f"{sys.path[0]}/campaign" not in __path__):
    os.environ["PYTHONSAFEPATH"] = "1"  # of the processes that this one starts
    if not sys.flags.safe_path:
        del sys.path[0]
