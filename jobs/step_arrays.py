"""A number for each step of a run: too many for a record, which has what of them is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobs.system import files

_PREFIX = "step_"


def put_apart(run: Mapping[str, Any], file: Path | None) -> dict[str, Any]:
    """Return a run's figures with ``steps`` in the place of its lists of steps, which go into a file.

    Parameters
    ----------
    run
        Figures; the lists whose names begin with ``step_`` have one number for each step, seconds or a loss (None: it
        was infinite or no number).
    file
        The .npz that gets these lists as arrays of float64, NaN for None; without one they stay in the figures, too.

    Returns
    -------
        ``steps`` says how many there were (``number``), how long the first batch was waited for (``first_load_s``), of
        a training the last loss and the number of the first step that has none; ``file`` is None where it could not be
        written, and ``error`` says why.
    """
    lists = {name: values for name, values in run.items() if name.startswith(_PREFIX) and isinstance(values, list)}
    if not lists:
        return {**run}
    loads, losses = lists.get("step_load_s", []), lists.get("step_loss", [])
    steps: dict[str, Any] = {"number": len(loads), "first_load_s": loads[0] if loads else None}
    if losses:
        steps |= {"last_loss": losses[-1], "lost_loss": losses.index(None) + 1 if None in losses else None}
    if file is None:
        return {**run, "steps": steps}
    error = _written(file, lists)
    others = {name: value for name, value in run.items() if name not in lists}
    return {**others, "steps": {**steps, "file": None if error else file.name, "error": error}}


def _written(file: Path, lists: Mapping[str, Any]) -> str | None:
    """Write the lists, and return why that failed: a full disk takes them away, not the run."""
    arrays: dict[str, Any] = {name: np.array(values, np.float64) for name, values in lists.items()}
    try:
        with files.whole(file) as opened:
            np.savez(opened, **arrays)
    except OSError as error:
        return str(error)
    return None
