"""A figure of ours: how long training stands still for a checkpoint, and when it is durable where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.durability import seconds_per_checkpoint
from analysis.figures.kit.figure import Plate, caption, how_many, settled, statistic, stems, told_apart
from analysis.records.settings import facts_of
from analysis.statistics.checkpoints import NO_TARGET, TIMES
from analysis.statistics.selection_saving import HOW, saving_sets, told_of

if TYPE_CHECKING:
    import pandas as pd

TITLE = "One checkpoint: training stands still, durable, drained"
PLACE = ["target", "target_name", "mode"]
NUMBERS = [f"{name}{end}" for name in TIMES for end in ("", "_min", "_max")]
COLUMNS = [*PLACE, *NUMBERS, "n_valid", "unstable", "status", "host", "accelerator", "cell"]


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return a plate per set of settings in which a training was saved, all modes together."""
    sets = {}
    for key, cells in saving_sets(table, HOW).items():
        frame = bars(cells[cells["target"] != NO_TARGET])
        if (frame["status"] == "done").any():
            sets[key] = cells, frame
    names, apart = stems("checkpoints", list(sets)), told_apart(sets)
    made = []
    for key, (cells, frame) in sets.items():
        shown = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        what = f"{statistic(shown)} Of a run, the median of its checkpoints. {how_many(shown)} {told_of(facts_of(key))}"
        words = caption(facts_of(key), [name for name in apart if name not in HOW], shown, what)
        made.append(Plate(names[key], TITLE, words, frame, seconds_per_checkpoint))
    return made


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per target and mode; seconds from the end of the step that is saved."""
    frame = settled(cells, PLACE, "snapshot_blocked_s").astype({"n_valid": "Int64"}).reindex(columns=COLUMNS)
    numbers = [*NUMBERS, "n_valid", "unstable"]
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    return frame
