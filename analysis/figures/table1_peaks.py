"""Table I as a figure: what the storages give when one file is read and written, beside the published numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import paper
from analysis.figures.fig4_threads import PAPER_LINE, PAPER_MARK
from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, figures, statistic
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, grouped, rows_of
from analysis.records.settings import Settings, family_key
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.selection import in_order, of_done, settled

TITLE = "Table I. What the storages give by themselves"
ACCESSES = ("read", "write")
NUMBERS = ["mb_per_s", "mb_per_s_min", "mb_per_s_max"]
PLACE = ["storage", "access"]
COLUMNS = [
    "storage", "storage_name", "access", *NUMBERS, "n_valid", "unstable", "paper_mb_per_s", "engine", "status", "host",
    "cell",
]  # fmt: skip
SIZES = ("benchmark.file_mb", "benchmark.transfer_mib")
WIDTH = 0.36
# Where the bar of an access stands beside the middle of its storage.
BESIDE = {"read": -0.21, "write": 0.21}


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per set of settings of baselines that read or write a file, as far as any cell is done."""
    sets = {key: cells.assign(tensorflow="") for key, cells in _sets(table).items()}
    return figures("table1", TITLE, read_and_written, sets, bars, _what, always=SIZES)


def _what(_: Settings, shown: pd.DataFrame, _frame: pd.DataFrame) -> str:
    engines = ", ".join(sorted(set(shown["engine"]) - {""}))
    return f"{statistic(shown)} Measured by {engines or 'an unknown engine'}."


def _sets(table: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells that read or write a file from end to end, by what they must not differ in."""
    if ACCESS not in table:
        return {}
    cells = table[is_baseline(table) & table[ACCESS].isin(ACCESSES)]
    keys = cells["set_key"].map(lambda key: family_key(key, frozenset({ACCESS})))
    return grouped(cells, keys)


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order, MB/s; a cell without a bar keeps its row, without numbers."""
    cells = cells.assign(access=cells[ACCESS])
    frame = of_done(settled(cells, PLACE, "mb_per_s"), NUMBERS).copy()
    pairs = zip(frame["storage_name"], frame["access"], strict=True)
    published = [paper.peak(name, access) for name, access in pairs]
    frame["paper_mb_per_s"] = pd.Series(published, index=frame.index, dtype="float64")
    return in_order(frame, ["access"])[COLUMNS]


@panels.framed
def read_and_written(frame: pd.DataFrame) -> Panels:
    """Draw MB/s per storage, read in its colour and written in white, min-max as whiskers, published as dashes."""
    storages = list(dict.fromkeys(frame["storage"]))
    shown = frame[frame["mb_per_s"].notna()]
    beside = BESIDE if len(set(frame["access"])) > 1 else dict.fromkeys(BESIDE, 0.0)
    figure = Figure(figsize=(max(6.2, 0.9 + 1.15 * len(storages)), 2.9))  # as wide as its signs
    axes = figure.subplots()
    heights = chain(shown["mb_per_s_max"], frame["paper_mb_per_s"].dropna())
    axes.set_ylim(0, (max(heights, default=0) or 1.0) * panels.HEADROOM)
    for row in rows_of(frame):
        _bar(axes, storages.index(row["storage"]) + beside[row["access"]], row, n=panels.several_n(shown))
    axes.set_xticks(range(len(storages)), [_name(frame, each) for each in storages])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(storages) - 0.4)
    axes.set_ylabel("MB/s")
    return figure, [*_signs(frame), *panels.unstable_sign(shown)]


def _bar(axes: Axes, x: float, row: Row, *, n: bool) -> None:
    height, published = row["mb_per_s"], row["paper_mb_per_s"]
    if math.isnan(height):
        panels.gap(axes, x, row["status"])
        return
    color = storage_colours.look(row["storage_name"]).color if row["access"] == "read" else "white"
    panels.bar(axes, x, height, row, width=WIDTH, color=color)
    panels.whiskers(axes, [x], [row], "mb_per_s")
    if published > 0:
        inner, outer = WIDTH / 2 + 0.01, WIDTH / 2 + 0.03
        axes.hlines([published] * 2, [x - outer, x + inner - 0.03], [x - inner + 0.03, x + outer], **PAPER_MARK)
        axes.hlines(published, x - inner, x + inner, **PAPER_LINE)
    foot = panels.clear_of(axes, row["mb_per_s_max"], published, n=n)
    panels.number(axes, (x, foot), panels.median_text(row, "mb_per_s", n=n))


def _name(frame: pd.DataFrame, storage: str) -> str:
    """Return a storage's name, with its host where the figure has several."""
    hosts = ", ".join(sorted(set(frame["host"][frame["storage"] == storage]) - {""}))
    several = len(set(frame["host"]) - {""}) > 1
    return panels.wrapped(f"{storage} on {hosts}" if several and hosts else storage)


def _signs(frame: pd.DataFrame) -> list[Artist]:
    """Return what the legend must explain: how the accesses look, and the published numbers where there are any."""
    drawn = set(frame["access"])
    colors = {"read": "0.6", "write": "white"}
    signs: list[Artist] = [
        Patch(facecolor=color, edgecolor="black", label=access) for access, color in colors.items() if access in drawn
    ]
    if frame["paper_mb_per_s"].notna().any():
        signs.append(Line2D([], [], label=paper.TABLE_1_SOURCE, **PAPER_MARK, dashes=(3, 3.5)))
    return signs
