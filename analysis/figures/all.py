"""What each figure shows, as numbers: which cells stand in it, in what order, under what words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures import (
    batches,
    calls,
    durability,
    nodes,
    peaks,
    reading,
    runtime,
    scaling,
    steps,
    sweep,
    targets,
    writing,
)
from analysis.figures.nersc import readers
from analysis.figures.tfdarshan import profiled, windows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from analysis.figures.kit.figure import FigureSpec


def specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return all figures that the records give, in the order of the paper, then ours.

    `table` and `runs` are those of `analysis.cli.measured.measured`, `folders` says where each cell lies.
    """
    return [
        *peaks.specs(table),
        *scaling.specs(table),
        *runtime.specs(table),
        *batches.specs(table),
        *reading.specs(table, runs, folders),
        *targets.specs(table),
        *writing.specs(table, runs, folders),
        *durability.specs(table),
        *nodes.specs(table, runs, folders),
        *readers.specs(table),
        *windows.specs(table, runs, folders),
        *profiled.specs(table, runs),
        *sweep.specs(table),
        *calls.specs(table, runs, folders),
        *steps.specs(table, runs, folders),
    ]
