"""List all figures of the report, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.figures import (
    feed_accelerators,
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
from analysis.figures.kit.figure_spec import FigureSpec, add_intervals
from analysis.statistics.selection import cells_without_snapshots, training_cells


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return the specs of all figures that can be drawn from the records.

    The figures of papers come first, then the figures that no paper has. `analysis.frames.frames_of_records` returns
    `table` and `runs`. `folders` maps the id of each cell to the folder of its record.
    """
    cells = training_cells(table)
    alone = cells_without_snapshots(cells)
    feed = feed_accelerators.chart_specs(table)
    of_feed = [cell for spec in feed for cell in spec.frame["cell"]]
    charts = [
        *table1_peaks.chart_specs(table),
        *fig4_threads.chart_specs(table),
        *fig6_runtime.chart_specs(alone),
        *fig7_batch_sizes.chart_specs(alone),
        *fig8_read_rate.chart_specs(alone, runs, folders),
        *fig9_checkpoint_targets.runtime_figures(cells),
        *fig10_write_rate.chart_specs(cells, runs, folders),
        *fig9_checkpoint_targets.checkpoint_figures(cells),
        *nersc_nodes.chart_specs(table, runs, folders),
        *hdf5_readers.chart_specs(table),
        *tfdarshan_windows.chart_specs(table, runs, folders),
        *tfdarshan_bandwidth.chart_specs(table, runs),
        *object_sizes.chart_specs(table),
        *feed,
        *swept_settings.chart_specs(table[~table["cell"].isin(of_feed)]),
        *profiled_calls.chart_specs(table, runs, folders),
        *step_timeline.chart_specs(table, runs, folders),
    ]
    return [add_intervals(spec, table, runs) for spec in charts]
