"""What each figure shows, as numbers: which cells stand in it, in what order, under what words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.figures import (
    batches,
    calls,
    checkpoints,
    nodes,
    peaks,
    readers,
    reading,
    runtime,
    scaling,
    steps,
    sweep,
    writing,
)
from analysis.figures.kit.figure import FigureSpec
from analysis.figures.objects import sizes
from analysis.figures.tfdarshan import profiled, windows
from analysis.statistics.selection import trained, unsaved


def specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return all figures that the records give, in the order of the paper, then ours.

    `table` and `runs` are those of `analysis.cli.measured.tables`, `folders` says where each cell lies.
    """
    cells = trained(table)
    alone = unsaved(cells)
    return [
        *peaks.specs(table),
        *scaling.specs(table),
        *runtime.specs(alone),
        *batches.specs(alone),
        *reading.specs(alone, runs, folders),
        *checkpoints.figure_9(cells),
        *writing.specs(cells, runs, folders),
        *checkpoints.one_checkpoint(cells),
        *nodes.specs(table, runs, folders),
        *readers.specs(table),
        *windows.specs(table, runs, folders),
        *profiled.specs(table, runs),
        *sizes.specs(table),
        *sweep.specs(table),
        *calls.specs(table, runs, folders),
        *steps.specs(table, runs, folders),
    ]
