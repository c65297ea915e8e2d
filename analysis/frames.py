"""The Python interface: the cells and the runs of a campaign as pandas frames (`analysis.load`, `analysis.runs`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.errors import AnalysisError
from analysis.output.notes import warn_of_skipped
from analysis.output.tables import without_internal_columns
from analysis.processes import garbage_collection_off
from analysis.records.frame import cells_frame, runs_frame
from analysis.records.read_records import FoundRecords, read_records
from analysis.records.record import Record
from analysis.statistics.baselines import add_baselines
from analysis.statistics.medians import add_statistics
from analysis.statistics.training import add_checkpoint_columns, add_training_columns
from analysis.traces.posix import add_agreement
from jobs.model.results import METRICS


def medians_and_runs(folder: Path, found: FoundRecords) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frame of medians and the frame of runs (see `frames_of_records`) for the records found in a folder.

    Prints a warning for each record that cannot be read. Raises AnalysisError if no record can be read.
    """
    warn_of_skipped(found, folder)
    with garbage_collection_off():
        return frames_of_records(found.records)


def frames_of_records(records: Sequence[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frame of medians, which has one row per cell with all derived columns, and the frame of runs.

    The metrics are deleted from each record in `records` to free memory, because the frame of runs has the metrics.
    """
    runs = add_agreement(runs_frame(records), {record.cell: record.folder for record in records})
    for record in records:
        record.runs.delete_metrics()
    table = add_checkpoint_columns(add_training_columns(add_statistics(cells_frame(records), runs), runs), runs)
    return add_baselines(table, runs), runs


def load(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the frame of cells, which has one row per cell: settings, medians, limiting resource (`bound`) and checks.

    The frame has the columns of `tables/medians.csv`. The column of a metric such as `images_per_s` has the median over
    the valid measured runs. The columns `images_per_s_min` and `images_per_s_max` have the minimum and the maximum.

    Parameters
    ----------
    folder
        A campaign folder (`results`), its `records` folder, or the folder of one record.

    Returns
    -------
    pandas.DataFrame
        `attrs["units"]` maps the column of each metric to the unit of the metric. `attrs["skipped"]` maps the path of
        each record that cannot be read to the reason.

    Raises
    ------
    analysis.errors.AnalysisError
        If the folder does not exist, or if the folder has no record that can be read.
    """
    return _frames(folder)[0]


def runs(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the frame of runs, which has one row per run: settings, raw metrics and the result of each check.

    The frame has the columns of `tables/runs.csv`. The parameter, `attrs` and the errors are the same as for `load`.
    """
    return _frames(folder)[1]


def _frames(folder: str | os.PathLike[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = read_records(Path(folder))
    skipped = {str(record.path): record.why for record in found.skipped}
    if not found.records:
        path, why = next(iter(skipped.items()))
        message = f"none of the {len(skipped)} records in {folder} can be read: for example, {path} {why}"
        raise AnalysisError(message, f"run `python -m analysis {folder}`, which prints the cure for each record")
    frames = without_internal_columns(*frames_of_records(found.records))
    for frame in frames:
        units = {f"{name}{end}": metric.unit for name, metric in METRICS.items() for end in ("", "_min", "_max")}
        frame.attrs = {"units": {name: unit for name, unit in units.items() if name in frame}, "skipped": skipped}
    return frames
