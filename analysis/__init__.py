"""The analysis makes medians and charts from records; it imports no TensorFlow and no Hydra.

`analysis.load("results")` returns the cells of a campaign as a pandas frame, `analysis.runs("results")` its runs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.frames import load, runs

__all__ = ["load", "runs"]

# `python -m analysis` puts the current folder, which may hold a `numpy.py`, first on the path: it is removed here.
if sys.argv[:1] == ["-m"] and (sys.flags.safe_path or f"{sys.path[0]}/analysis" not in __path__):
    os.environ["PYTHONSAFEPATH"] = "1"  # for child processes
    if not sys.flags.safe_path:
        del sys.path[0]


def __getattr__(name: str) -> Any:
    """Return `load` or `runs`; pandas is imported only when one of them is first used."""
    if name in __all__:
        from analysis import frames  # noqa: PLC0415

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
