"""What Figures 4 and 5 show, as numbers: which cells share a figure and what stands beside each bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis import paper
from analysis.settings import describe, facts_of, suffixes, telling
from analysis.signs import DASH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COLUMNS = [
    "storage", "storage_name", "threads", "images_per_s", "images_per_s_min", "images_per_s_max",
    "read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max", "n_valid", "unstable", "scaling",
    "paper_ratio", "paper_images_per_s", "bytes_per_image", "status", "host", "cell",
]  # fmt: skip

# {figure: (value of benchmark.preprocess, title)}; paper, Sections III.A and IV.A.
FIGURES = {
    "fig4": (True, "Fig. 4. Micro-benchmark: read, decode and resize"),
    "fig5": (False, "Fig. 5. Micro-benchmark: read only"),
}


@dataclass(frozen=True)
class Plate:
    """One figure before it is drawn: its file name, its words and its numbers (`COLUMNS`)."""

    stem: str
    title: str
    caption: str
    frame: pd.DataFrame

    @property
    def left_out(self) -> pd.DataFrame:
        """The cells that belong here and have no bar."""
        return self.frame[self.frame["images_per_s"].isna()]


def plates(table: pd.DataFrame) -> list[Plate]:
    """Return one plate per figure and per set of settings that must not be mixed, as far as any cell is done.

    Parameters
    ----------
    table
        Medians, one row per cell, as `analysis.medians.medians` returns them.
    """
    made = []
    for figure, (preprocess, title) in FIGURES.items():
        sets = figure_sets(table, preprocess=preprocess)
        names = suffixes(list(sets)) if sets else {}
        apart = telling([facts_of(key) for key in sets])
        for key, cells in sets.items():
            stem = f"{figure}-{names[key]}" if names[key] else figure
            frame = bars(cells)
            made.append(Plate(stem, title, caption(facts_of(key), apart, cells), frame))
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
    alone = ~cells.duplicated(["storage", "threads"], keep=False)
    return (cells["status"] == "done") & cells["images_per_s"].notna() & alone


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order; a cell without a bar keeps its row, without numbers."""
    frame = cells.assign(threads=cells["threads"].astype("int64"))
    shown = drawable(frame)
    frame["status"] = frame["status"].where(~frame.duplicated(["storage", "threads"], keep=False), "ambiguous")
    pairs = zip(frame["storage_name"], frame["threads"], strict=True)
    ratios = [paper.ratio(name, threads) for name, threads in pairs]
    frame["paper_ratio"] = pd.Series(ratios, index=frame.index, dtype="float64").where(frame["scaling"].notna())
    frame["paper_images_per_s"] = frame["paper_ratio"] * frame["images_per_s"] / frame["scaling"]
    numbers = [name for name in COLUMNS if name.startswith(("images", "read", "scaling", "paper", "bytes"))]
    frame[numbers] = frame[numbers].where(shown)
    order = frame["storage_name"].map(paper.place)
    frame = frame.assign(order=order).sort_values(["order", "storage", "threads", "cell"])
    return frame[COLUMNS].reset_index(drop=True)


def caption(facts: Mapping[str, object], apart: Iterable[str], cells: pd.DataFrame) -> str:
    """Return what the reader must know: the statistic, its n, the settings, the hosts and the software."""
    shown = cells[drawable(cells)]
    hosts, versions = _listed(shown["host"]), _listed(shown["tensorflow"])
    where = f"Host{'s' * (',' in hosts)} {hosts}" if hosts else "Host unknown"
    software = f"; TensorFlow {versions}" if versions else ""
    return f"{statistic(shown)} {_capital(describe(facts, apart))}. {where}{software}."


def statistic(shown: pd.DataFrame) -> str:
    """Return the statistic in words, with the number of runs and what min-max means for it."""
    few, many = int(shown["n_valid"].min()), int(shown["n_valid"].max())
    if many == 1:
        return "A single valid run per bar (n = 1)."
    count = f"n = {few}" if few == many else f"n = {few}{DASH}{many}, see bars"
    # Rounded down: what is claimed must hold.
    sure = math.floor(10_000 * float(shown["coverage"].min())) / 100
    return f"Median of valid runs ({count}); whiskers min{DASH}max hold the true median with p ≥ {sure:g} %."


def same_size(frame: pd.DataFrame, tolerance: float = 0.01) -> bool:
    """Say whether all bars agree in bytes per image, so that one right axis is true for each of them.

    The tolerance of 1 % is less than the height of a tick label on the axis.
    """
    size = frame["bytes_per_image"].dropna()
    return bool(len(size) and size.max() - size.min() <= tolerance * size.median())


def _listed(values: pd.Series[str]) -> str:
    return ", ".join(sorted(set(values) - {""}))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
