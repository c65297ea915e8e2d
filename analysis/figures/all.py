"""What each figure shows, as numbers: which cells stand in it, in what order, under what words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.figures import (
    fig4_threads,
    fig6_runtime,
    fig7_batch_sizes,
    fig8_read_rate,
    fig9_checkpoint_targets,
    fig10_write_rate,
    hdf5_readers,
    nersc_nodes,
    object_sizes,
    profiled_calls,
    step_timeline,
    swept_settings,
    table1_peaks,
    tfdarshan_bandwidth,
    tfdarshan_windows,
)
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.statistics.selection import trained, unsaved


def specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return all figures that the records give, in the order of the paper, then ours.

    `table` and `runs` are those of `analysis.cli.measured.tables`, `folders` says where each cell lies.
    """
    cells = trained(table)
    alone = unsaved(cells)
    return [
        *table1_peaks.specs(table),
        *fig4_threads.specs(table),
        *fig6_runtime.specs(alone),
        *fig7_batch_sizes.specs(alone),
        *fig8_read_rate.specs(alone, runs, folders),
        *fig9_checkpoint_targets.figure_9(cells),
        *fig10_write_rate.specs(cells, runs, folders),
        *fig9_checkpoint_targets.one_checkpoint(cells),
        *nersc_nodes.specs(table, runs, folders),
        *hdf5_readers.specs(table),
        *tfdarshan_windows.specs(table, runs, folders),
        *tfdarshan_bandwidth.specs(table, runs),
        *object_sizes.specs(table),
        *swept_settings.specs(table),
        *profiled_calls.specs(table, runs, folders),
        *step_timeline.specs(table, runs, folders),
    ]
