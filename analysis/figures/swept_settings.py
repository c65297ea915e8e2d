"""Any benchmark that the paper does not have: its figure of merit over each setting that was swept."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis import paper
from analysis.figures.kit import storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, caption, cut, how_many, legible, statistic
from analysis.figures.kit.panels import HEADROOM, WHISKER, Panels, framed, grid_of
from analysis.records.frame import Row, rows_of
from analysis.statistics.selection import of_done, settled
from analysis.statistics.sweeps import held, is_number, orderly, plain_sets, swept
from analysis.text.plain import DASH

STORAGE = "storage"
PLACE = ["swept", "value", "storage"]
COLUMNS = [
    "swept", "value", "held", "storage", "storage_name", "median", "min", "max", "n_valid", "unstable", "figure",
    "unit", "better", "status", "host", "cell",
]  # fmt: skip
IN_A_ROW = 3
ACROSS = 42  # letters above a panel
HOLLOW: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markerfacecolor": "white", "markeredgecolor": "black", "zorder": 3,
}  # fmt: skip
# More values than this and an axis names some of them.
MOST_TICKS = 12
# As many letters have room side by side below an axis.
LETTERS = 20
# Largest over smallest value from which an axis is logarithmic.
WIDE = 16


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per benchmark and version of which any cell is done: a panel per swept setting, the others held.

    Held at the values at which most was measured; where nothing but the storage was swept, the storages side by side.
    """
    made = []
    for shared, every in plain_sets(table):
        cells, left = legible(every, [STORAGE])
        frame = points(cells)
        shown = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        if shown.empty:
            continue
        facts = shared.facts
        left += [f"{len(shown)} of {len(every)} cells"] * (len(shown) < len(every))
        words = caption(facts, (), shown, f"{statistic(shown, 'point')} {how_many(shown)}{cut(left)}")
        several = len(set(table["benchmark_version"][table["benchmark"] == facts["benchmark"]])) > 1
        name = f"{facts['benchmark']} version {facts['benchmark_version']}" if several else str(facts["benchmark"])
        *first, last = dict.fromkeys(frame["swept"])
        title = f"{name}: {frame['figure'].iloc[0]} over {' and '.join(filter(None, (', '.join(first), last)))}"
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"sweep-{name}")
        made.append(FigureSpec(stem, title, words, frame, merit_over_settings))
    return made


def points(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per value of a swept setting and storage; a cell without a point keeps its row."""
    names = swept(cells)
    parts = []
    for name in names:
        others = [other for other in names if other != name]
        alike = held(cells, name, others)
        at = ", ".join(f"{other}={alike[other].iloc[0]}" for other in others)
        parts.append(alike.assign(swept=name, value=alike[name], held=at))
    parts = [part for part in parts if len(set(part["value"])) > 1] or [
        cells.assign(swept=STORAGE, value=cells["storage"], held="")
    ]
    frame = pd.concat(parts, ignore_index=True)
    figure = str(frame["figure"].iloc[0])
    ends = {"median": figure, "min": f"{figure}_min", "max": f"{figure}_max"}
    frame = frame.assign(**{name: frame.get(column) for name, column in ends.items()})
    frame = of_done(settled(frame.astype(dict.fromkeys(ends, "float64")), PLACE, "median"), ends)
    places = [
        (
            names.index(row["swept"]) if row["swept"] in names else 0,
            paper.place(row["storage_name"]),
            row["storage"],
            orderly(row["value"]),
            row["cell"],
        )
        for row in rows_of(frame[[*PLACE, "storage_name", "cell"]])
    ]
    return frame.iloc[sorted(range(len(frame)), key=places.__getitem__)][COLUMNS].reset_index(drop=True)


@framed
def merit_over_settings(frame: pd.DataFrame) -> Panels:
    """Draw the figure of merit over the swept settings, a panel each, a line per storage, min-max as whiskers."""
    panes = [rows for _, rows in frame.groupby("swept", sort=False)]
    figure, grid = grid_of(len(panes), IN_A_ROW, (2.6, 2.2), 4.2)
    merit = frame.iloc[0]
    label = f"{merit['figure']} ({merit['unit']})\n{merit['better']} is better"
    for place, (axes, rows) in enumerate(zip(grid, panes, strict=True)):
        _panel(axes, rows)
        axes.set_ylabel("" if place % IN_A_ROW else label)
    return figure, _signs(frame, frame[frame["median"].notna()])


def _panel(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the lines of one setting: over numbers at their place, over words side by side."""
    values = sorted(dict.fromkeys(rows["value"]), key=orderly)
    numbers = all(map(is_number, values))
    spots = {value: float(value) if numbers else float(place) for place, value in enumerate(values)}
    if numbers and values[0] > 0 and values[-1] / values[0] >= WIDE:
        axes.set_xscale("log", base=2)
    for _, line in rows.groupby("storage", sort=False):
        drawn = line[line["median"].notna()]
        # A line compares its points.
        _line(axes, rows_of(drawn), spots, joined=numbers and len(set(drawn["host"])) == 1)
    if not numbers or len(values) <= MOST_TICKS:
        step = math.ceil(len(values) / MOST_TICKS)
        words = [_tick(value) for value in values[::step]]
        turned, side = (20, "right") if sum(map(len, words)) > LETTERS else (0, "center")
        axes.set_xticks([spots[value] for value in values[::step]], words, rotation=turned, ha=side)
        axes.minorticks_off()
    axes.margins(x=0.08 if numbers else 0.25)
    axes.set_ylim(0, (float(rows["max"].fillna(0).max()) or 1.0) * HEADROOM)
    axes.set_xlabel(str(rows["swept"].iloc[0]))
    if rows["held"].iloc[0]:
        axes.set_title(textwrap.fill(f"at {rows['held'].iloc[0]}", ACROSS), fontsize=7, fontweight="normal")


def _line(axes: Axes, rows: Sequence[Row], spots: dict[Any, float], *, joined: bool) -> None:
    places, medians = [spots[row["value"]] for row in rows], [row["median"] for row in rows]
    if not rows:
        return
    look = storage_colours.look(rows[0]["storage_name"])
    ends = [[row["median"] - row["min"] for row in rows], [row["max"] - row["median"] for row in rows]]
    axes.errorbar(places, medians, ends, **WHISKER)
    line = "solid" if joined else "none"
    axes.plot(places, medians, color=look.color, linestyle=line, marker=look.marker, markeredgecolor="black")
    hollow = [place for place, row in enumerate(rows) if row["unstable"] is True]
    axes.plot(
        [places[each] for each in hollow], [medians[each] for each in hollow], **{**HOLLOW, "marker": look.marker}
    )


def _tick(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _signs(frame: pd.DataFrame, shown: pd.DataFrame) -> list[Artist]:
    signs: list[Artist] = []
    for storage, name in dict.fromkeys(zip(frame["storage"], frame["storage_name"], strict=True)):
        look = storage_colours.look(name)
        signs.append(Line2D([], [], label=storage, color=look.color, marker=look.marker, markeredgecolor="black"))
    unstable = shown["unstable"].fillna(value=False).any()
    label = f"unstable: min{DASH}max wider than checks.spread_max"
    return [*signs, *([Line2D([], [], label=label, **HOLLOW)] if unstable else [])]
