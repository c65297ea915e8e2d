"""Draw Table I of the paper as a figure: the MB/s at which one file is read or written on each storage."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.claims import chien2018
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, figure_specs, sentences_on_statistic
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, group_rows, rows_of
from analysis.records.settings import Settings, reduced_set_key
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.selection import numbers_of_done_cells, sort_as_in_paper, with_status_of_drawing

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
# The x distance of the bar for reading, and of the bar for writing, from the centre of the storage.
BESIDE = {"read": -0.21, "write": 0.21}


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of settings that has a done baseline which reads or writes a whole file."""
    sets = {key: cells.assign(tensorflow="") for key, cells in _sets(table).items()}
    return figure_specs("table1", TITLE, draw_peaks, sets, chart_table, _what, always=SIZES)


def _what(_: Settings, shown: pd.DataFrame, _frame: pd.DataFrame) -> str:
    engines = ", ".join(sorted(set(shown["engine"]) - {""}))
    return f"{sentences_on_statistic(shown)} Measured by {engines or 'an unknown engine'}."


def _sets(table: pd.DataFrame) -> Mapping[Settings, pd.DataFrame]:
    """Return the cells that read or write a whole file, grouped by all settings except storage, threads and access."""
    if ACCESS not in table:
        return {}
    cells = table[is_baseline(table) & table[ACCESS].isin(ACCESSES)]
    keys = cells["set_key"].map(lambda key: reduced_set_key(key, frozenset({ACCESS})))
    return group_rows(cells, keys)


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart with MB/s, in the paper's order.

    A cell that cannot be drawn has a row without numbers.
    """
    cells = cells.assign(access=cells[ACCESS])
    frame = numbers_of_done_cells(with_status_of_drawing(cells, PLACE, "mb_per_s"), NUMBERS).copy()
    pairs = zip(frame["storage_name"], frame["access"], strict=True)
    published = [chien2018.published_number(chien2018.TABLE_1, name, access) for name, access in pairs]
    frame["paper_mb_per_s"] = pd.Series(published, index=frame.index, dtype="float64")
    return sort_as_in_paper(frame, ["access"])[COLUMNS]


@panels.complete_figure
def draw_peaks(frame: pd.DataFrame) -> Panels:
    """Draw the MB/s of each storage with whiskers, and the published numbers as dashes.

    The bar for reading has the colour of the storage, and the bar for writing is white.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    shown = frame[frame["mb_per_s"].notna()]
    beside = BESIDE if len(set(frame["access"])) > 1 else dict.fromkeys(BESIDE, 0.0)
    figure = Figure(figsize=(max(6.2, 0.9 + 1.15 * len(storages)), 2.9))  # wide enough for the legend
    axes = figure.subplots()
    axes.set_ylim(0, panels.axis_top(frame, "mb_per_s_max", "paper_mb_per_s"))
    places = [storages.index(row["storage"]) + beside[row["access"]] for row in rows_of(frame)]
    n, dash = panels.needs_run_counts(shown), (-0.02, 0.03)
    panels.draw_bars(
        axes, places, rows_of(frame), "mb_per_s", WIDTH, fill=_fill, published="paper_mb_per_s", dash=dash, n=n
    )
    axes.set_xticks(range(len(storages)), [_name(frame, each) for each in storages])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(storages) - 0.4)
    axes.set_ylabel("MB/s")
    return figure, _signs(frame)


def _fill(row: Row) -> str:
    return panels.storage_fill(row) if row["access"] == "read" else "white"


def _name(frame: pd.DataFrame, storage: str) -> str:
    """Return the name of a storage for the x axis. If the figure has several hosts, also return the storage's host."""
    hosts = ", ".join(sorted(set(frame["host"][frame["storage"] == storage]) - {""}))
    several = len(set(frame["host"]) - {""}) > 1
    return panels.wrap_name(f"{storage} on {hosts}" if several and hosts else storage)


def _signs(frame: pd.DataFrame) -> list[Artist]:
    """Return the entries of the legend: the access patterns, and the published numbers if the figure has any.

    If the bars for reading have several colours, the entry for reading is grey.
    """
    drawn = set(frame["access"])
    fills = {_fill(row) for row in rows_of(frame) if row["access"] == "read"}
    colors = {"read": fills.pop() if len(fills) == 1 else "0.6", "write": "white"}
    signs: list[Artist] = [
        Patch(facecolor=color, edgecolor="black", label=access) for access, color in colors.items() if access in drawn
    ]
    if frame["paper_mb_per_s"].notna().any():
        signs.append(panels.published_sign(chien2018.TABLE_1_SOURCE))
    return signs
