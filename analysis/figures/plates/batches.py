"""Figure 7: the throughput of the mini-application over the batch size, at one number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.batches import throughput_over_batch_size
from analysis.figures.kit.figure import Plate, caption, how_many, settled, statistic, stems, told_apart
from analysis.records.settings import facts_of
from analysis.statistics.selection import both_told, families, in_order, trained

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

TITLE = "Fig. 7. Mini-application: throughput over batch size"
FIGURE = "images_per_s"
NUMBERS = [FIGURE, f"{FIGURE}_min", f"{FIGURE}_max", "n_valid", "unstable"]
PLACE = ["storage", "batch_size", "prefetch"]
COLUMNS = ["storage", "storage_name", "batch_size", "prefetch", *NUMBERS, "status", "host", "accelerator", "cell"]


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return a plate per set of settings in which several batch sizes were measured."""
    asked = {key: cells for key, cells in batch_sets(trained(table)).items() if len(set(cells["batch_size"])) > 1}
    sets = {key: (cells, points(cells)) for key, cells in asked.items()}
    sets = {key: both for key, both in sets.items() if len(set(both[1]["batch_size"][both[1][FIGURE].notna()])) > 1}
    names, apart = stems("fig7", list(sets)), told_apart(sets)
    made = []
    for key, (cells, frame) in sets.items():
        shown = cells[cells["cell"].isin(frame["cell"][frame[FIGURE].notna()])]
        words = caption(
            facts_of(key) | both_told(cells), apart, shown, f"{statistic(shown, 'point')} {how_many(shown)}"
        )
        made.append(Plate(names[key], TITLE, words, frame, throughput_over_batch_size))
    return made


def batch_sets(cells: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Return the cells that differ at most in storage, batch size and prefetch.

    The number of batches may follow the batch size (an epoch each); where one batch size has several numbers of
    batches, each number is a set of its own.
    """
    sets: dict[str, pd.DataFrame] = {}
    for key, group in families(cells, {"prefetch", "batch_size", "iterations"}, ["threads"]).items():
        alike = families(group, {"prefetch", "batch_size"}, ["threads"])
        sets |= alike if group.duplicated(PLACE).any() or len(alike) == 1 else {key: group}
    return sets


def points(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order; a cell without a point keeps its row, without numbers."""
    frame = in_order(settled(cells, PLACE, FIGURE), ["batch_size"]).astype({"n_valid": "Int64"})
    frame[NUMBERS] = frame[NUMBERS].where(frame["status"] == "done")
    return frame[COLUMNS]
