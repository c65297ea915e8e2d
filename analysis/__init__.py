"""Records in, medians and figures out; needs no TensorFlow, no Hydra and nothing else of this project."""

import os
import sys

# `python -m analysis` has put the current folder first, where a `numpy.py` may lie. It goes before any import.
if sys.argv[:1] == ["-m"] and (sys.flags.safe_path or f"{sys.path[0]}/analysis" not in __path__):
    os.environ["PYTHONSAFEPATH"] = "1"  # of the processes that this one starts
    if not sys.flags.safe_path:
        del sys.path[0]
