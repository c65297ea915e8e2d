"""Figures 4 and 5: the throughput of the micro-benchmark over threads, and the published ratios beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from analysis import paper
from analysis.figures.kit.figure import Plate, caption, settled, statistic, stems, told_apart
from analysis.figures.scaling import thread_scaling
from analysis.records.settings import facts_of
from analysis.statistics.baselines import of_baseline

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = [
    "storage", "storage_name", "threads", "images_per_s", "images_per_s_min", "images_per_s_max",
    "read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max", "percent_of_baseline", "n_valid", "unstable", "scaling",
    "paper_ratio", "paper_images_per_s", "bytes_per_image", "status", "host", "cell",
]  # fmt: skip
PLACE = ["storage", "threads"]

# {figure: (value of benchmark.preprocess, title)}; paper, Sections III.A and IV.A.
FIGURES = {
    "fig4": (True, "Fig. 4. Micro-benchmark: read, decode and resize"),
    "fig5": (False, "Fig. 5. Micro-benchmark: read only"),
}


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return one plate per figure and per set of settings that must not be mixed, as far as any cell is done.

    Parameters
    ----------
    table
        Medians, one row per cell, as `analysis.statistics.medians.medians` returns them.
    """
    made = []
    for figure, (preprocess, title) in FIGURES.items():
        sets = figure_sets(table, preprocess=preprocess)
        names, apart = stems(figure, list(sets)), told_apart(sets)
        for key, cells in sets.items():
            shown = cells[drawable(cells)]
            what = " ".join(filter(None, (statistic(shown), of_baseline(shown))))
            words = caption(facts_of(key), apart, shown, what)
            made.append(Plate(names[key], title, words, bars(cells), thread_scaling))
    return made


def figure_sets(table: pd.DataFrame, *, preprocess: bool) -> Mapping[str, pd.DataFrame]:
    """Return the cells of the micro-benchmark by set key, without the sets in which no cell is done."""
    if "benchmark.preprocess" not in table or "threads" not in table:
        return {}
    wanted = (table["benchmark"] == "micro") & (table["benchmark.preprocess"] == preprocess)
    counts = table["threads"].map(lambda threads: isinstance(threads, int))
    groups = table[wanted & counts].groupby("set_key", sort=True)
    return {str(key): cells for key, cells in groups if drawable(cells).any()}


def drawable(cells: pd.DataFrame) -> pd.Series[bool]:
    """Say which cells are drawn as a bar: done, with a figure, and alone at their place."""
    return settled(cells, PLACE, "images_per_s")["status"] == "done"


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order; a cell without a bar keeps its row, without numbers."""
    frame = settled(cells.assign(threads=cells["threads"].astype("int64")), PLACE, "images_per_s")
    pairs = zip(frame["storage_name"], frame["threads"], strict=True)
    ratios = [paper.ratio(name, threads) for name, threads in pairs]
    frame["paper_ratio"] = pd.Series(ratios, index=frame.index, dtype="float64").where(frame["scaling"].notna())
    frame["paper_images_per_s"] = frame["paper_ratio"] * frame["images_per_s"] / frame["scaling"]
    numbers = [name for name in COLUMNS if name.startswith(("images", "read", "scaling", "paper", "bytes"))]
    frame = frame.assign(percent_of_baseline=frame.get("percent_of_baseline"))
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    order = frame["storage_name"].map(paper.place)
    frame = frame.assign(order=order).sort_values(["order", "storage", "threads", "cell"])
    return frame[COLUMNS].reset_index(drop=True)
