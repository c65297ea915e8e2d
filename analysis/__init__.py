"""Make medians, charts and reports from the records of a campaign, without TensorFlow and Hydra.

`analysis.load("results")` returns a pandas frame with one row per cell of the campaign in `results`.
`analysis.runs("results")` returns a pandas frame with one row per run of this campaign.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.frames import load, runs

__all__ = ["load", "runs"]

# `python -m analysis` puts the current folder first on `sys.path`. A file `numpy.py` in the current folder would then
# be imported instead of NumPy, so the current folder is removed from `sys.path`.
if sys.argv[:1] == ["-m"] and (sys.flags.safe_path or f"{sys.path[0]}/analysis" not in __path__):
    os.environ["PYTHONSAFEPATH"] = "1"  # for child processes
    if not sys.flags.safe_path:
        del sys.path[0]


def __getattr__(name: str) -> Any:
    """Return the function `load` or `runs`.

    pandas is imported only when `load` or `runs` is first used, so that `import analysis` is fast.
    """
    if name in __all__:
        from analysis import frames  # noqa: PLC0415

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
