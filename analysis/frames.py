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
    """Return the medians and runs (see `frames_of_records`) of a folder, and print which records cannot be read.

    Raises AnalysisError if no record can be read.
    """
    warn_of_skipped(found, folder)
    with garbage_collection_off():
        return frames_of_records(found.records)


def frames_of_records(records: Sequence[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the medians of the records, one row per cell with all derived columns, and the frame of runs.

    The `runs` of each record lose their metrics, which are now in the frame of runs.
    """
    runs = add_agreement(runs_frame(records), {each.cell: each.folder for each in records})
    for record in records:
        record.runs.release()
    table = add_checkpoint_columns(add_training_columns(add_statistics(cells_frame(records), runs), runs), runs)
    return add_baselines(table, runs), runs


def load(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the frame of cells: one row per cell with its settings, medians, speed limit (`bound`) and checks.

    The columns are those of `tables/medians.csv`: of a metric such as `images_per_s` the median over the valid measured
    runs, with `_min` and `_max`.

    Parameters
    ----------
    folder
        A campaign folder (`results`), its `records` folder, or the folder of one record.

    Returns
    -------
    pandas.DataFrame
        `attrs["units"]` has the unit of each metric by its column, `attrs["skipped"]` the records that cannot be read,
        each with the reason.

    Raises
    ------
    analysis.errors.AnalysisError
        If there is no such folder, or no record in it that can be read.
    """
    return _frames(folder)[0]


def runs(folder: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the frame of runs: one row per run with its raw metrics and the result of each check.

    The columns are those of `tables/runs.csv`. Parameters, `attrs` and errors are those of `load`.
    """
    return _frames(folder)[1]


def _frames(folder: str | os.PathLike[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    found = read_records(Path(folder))
    skipped = {str(each.path): each.why for each in found.skipped}
    if not found.records:
        path, why = next(iter(skipped.items()))
        message = f"none of the {len(skipped)} records in {folder} can be read; the first, {path}, {why}"
        raise AnalysisError(message, f"python -m analysis {folder} names each with its cure")
    frames = without_internal_columns(*frames_of_records(found.records))
    for frame in frames:
        units = {f"{name}{end}": metric.unit for name, metric in METRICS.items() for end in ("", "_min", "_max")}
        frame.attrs = {"units": {name: unit for name, unit in units.items() if name in frame}, "skipped": skipped}
    return frames
