"""What a folder of records holds, once they are read and their medians and verdicts made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.errors import AnalysisError
from analysis.output.notes import warn
from analysis.records import read
from analysis.records.frame import cells_frame, runs_frame
from analysis.statistics.baselines import with_baselines
from analysis.statistics.checkpoints import with_saving
from analysis.statistics.medians import medians
from analysis.statistics.training import with_training
from analysis.traces.windows import with_agreement
from analysis.verdicts.checklist import verdicts

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


@dataclass(frozen=True)
class Measured:
    """What a folder holds: the records, their medians, every run, and the verdicts on the paper's claims."""

    found: read.Found
    table: pd.DataFrame
    runs: pd.DataFrame
    tested: pd.DataFrame


def measured(folder: Path) -> Measured:
    """Read the records of a campaign, and name those that cannot be read.

    Raises
    ------
    AnalysisError
        If there is nothing to read.
    """
    found = read.read(folder)
    warn(found.skipped)
    if not found.records:
        message = f"none of the {len(found.skipped)} records in {folder} can be read"
        raise AnalysisError(message, "see the warnings above, each with its cure")
    runs = with_agreement(runs_frame(found.records), {each.cell: each.folder for each in found.records})
    table = with_saving(with_training(medians(cells_frame(found.records), runs), runs), runs)
    table = with_baselines(table, runs)
    return Measured(found, table, runs, verdicts(table, runs))
