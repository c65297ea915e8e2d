"""Table I: what the storages give when one file is read and written, and the published numbers beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from analysis import paper
from analysis.figures.kit.figure import Plate, caption, settled, statistic, stems, told_apart
from analysis.figures.peaks import read_and_written
from analysis.records.settings import facts_of, family_key
from analysis.statistics.baselines import ACCESS, is_baseline

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLE = "Table I. What the storages give by themselves"
ACCESSES = ("read", "write")
NUMBERS = ["mb_per_s", "mb_per_s_min", "mb_per_s_max"]
PLACE = ["storage", "access"]
COLUMNS = [
    "storage", "storage_name", "access", *NUMBERS, "n_valid", "unstable", "paper_mb_per_s", "engine", "status", "host",
    "cell",
]  # fmt: skip
SIZES = ("benchmark.file_mb", "benchmark.transfer_mib")


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return a plate per set of settings of baselines that read or write a file, as far as any cell is done."""
    sets = {key: (cells, bars(cells)) for key, cells in _sets(table).items()}
    sets = {key: both for key, both in sets.items() if (both[1]["status"] == "done").any()}
    names, apart = stems("table1", list(sets)), told_apart(sets)
    made = []
    for key, (cells, frame) in sets.items():
        shown = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        engines = ", ".join(sorted(set(shown["engine"]) - {""}))
        what = f"{statistic(shown)} Measured by {engines or 'an unknown engine'}."
        words = caption(facts_of(key), dict.fromkeys([*SIZES, *apart]), shown.assign(tensorflow=""), what)
        made.append(Plate(names[key], TITLE, words, frame, read_and_written))
    return made


def _sets(table: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Return the cells that read or write a file from end to end, by what they must not differ in."""
    if ACCESS not in table:
        return {}
    cells = table[is_baseline(table) & table[ACCESS].isin(ACCESSES)]
    keys = cells["set_key"].map(lambda key: family_key(key, frozenset({ACCESS})))
    return {str(key): group for key, group in cells.groupby(keys, sort=True)}


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order, MB/s; a cell without a bar keeps its row, without numbers."""
    cells = cells.assign(access=cells[ACCESS])
    frame = settled(cells, PLACE, "mb_per_s").astype({"n_valid": "Int64"}).copy()
    pairs = zip(frame["storage_name"], frame["access"], strict=True)
    published = [paper.peak(name, access) for name, access in pairs]
    frame["paper_mb_per_s"] = pd.Series(published, index=frame.index, dtype="float64")
    numbers = [*NUMBERS, "n_valid", "unstable"]
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    order = frame["storage_name"].map(paper.place)
    frame = frame.assign(order=order).sort_values(["order", "storage", "access", "cell"])
    return frame[COLUMNS].reset_index(drop=True)
