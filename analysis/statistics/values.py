"""The figure that a cell is there for, and what its runs gave of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.statistics.medians import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    Runs = Mapping[str, Sequence[float]]

RATE, RUNTIME = "images_per_s", "wall_s"
READ, WRITTEN = "read_mb_per_s", "write_mb_per_s"


def values_of(runs: pd.DataFrame, figure: str) -> Runs:
    """Return the figure of each cell's valid measured runs."""
    good = counted(runs, [figure])
    good = good[good[figure] > 0]
    return {str(cell): values.tolist() for cell, values in good.groupby("cell")[figure]}
