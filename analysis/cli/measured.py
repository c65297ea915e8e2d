"""What a folder of records holds, once they are read and their medians made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from analysis.output.notes import warn
from analysis.processes import keeping
from analysis.records.frame import cells_frame, runs_frame
from analysis.records.read_records import Found
from analysis.records.record import Record
from analysis.statistics.baselines import with_baselines
from analysis.statistics.medians import medians
from analysis.statistics.saving_costs import with_saving
from analysis.statistics.training import with_training
from analysis.traces.profile_parts import with_agreement


def measured(folder: Path, found: Found) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables (see there) of what was found in a folder, and name the records that cannot be read.

    Raises AnalysisError: there are no others.
    """
    warn(found, folder)
    with keeping():
        return tables(found.records)


def tables(records: Sequence[Record]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the medians of records, a row per cell with all that is derived of it, and every run."""
    runs = with_agreement(runs_frame(records), {each.cell: each.folder for each in records})
    table = with_saving(with_training(medians(cells_frame(records), runs), runs), runs)
    return with_baselines(table, runs), runs
