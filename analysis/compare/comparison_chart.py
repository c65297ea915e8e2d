"""Draw the chart of a comparison: one row per pair of cells, with the ratio B / A and its interval."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from analysis.compare.comparison_verdict import INTERVAL
from analysis.figures.kit import storage_colours
from analysis.figures.kit.figure_spec import FigureSpec
from analysis.figures.kit.panels import WHISKER, add_title_legend_and_caption
from analysis.records.frame import Row, rows_of
from analysis.records.runs import HIGHER
from analysis.statistics.medians import RATE, READ, RUNTIME, WRITTEN
from analysis.text import TIMES, percentage

# A chart with more rows than this is not readable.
MOST_ROWS = 60
AXIS = {RATE: "images/s", READ: "MB/s read", WRITTEN: "MB/s written", RUNTIME: "runtime"}
TITLES = {
    RATE: "Throughput, B relative to A",
    READ: "Read from the storages, B relative to A",
    WRITTEN: "Written to the storages, B relative to A",
    RUNTIME: "Runtime, B relative to A",
}
WIDE = 7.0
ROW, AROUND = 0.2, 1.3
# Maximum number of characters in a line of a label.
LABEL = 44
# The colours are green and vermilion from the palette of Okabe and Ito. Each verdict also has its own marker, for
# readers who cannot distinguish the colours.
LOOKS: dict[str, dict[str, Any]] = {
    "faster": {"marker": "^", "color": "#009E73"},
    "slower": {"marker": "v", "color": "#D55E00"},
    "no change": {"marker": "o", "color": "0.35"},
    "not comparable": {"marker": "o", "color": "white"},
}
NOISE = "0.92"
# An axis whose upper end divided by the lower end is below this number has ticks in equal steps. A wider axis has ticks
# at 1, 2 and 5 times the powers of ten.
NARROW = 3
MARGIN = 1.02


def chart_specs(table: pd.DataFrame, sides: Sequence[str], better: Mapping[str, str]) -> list[FigureSpec]:
    """Return one chart per compared metric, which shows the pairs of cells that have a ratio.

    `table` comes from `comparison_verdict.judged_pairs`. `sides` has a description of campaign A and of campaign B.
    `better` tells for each metric whether a `higher` or a `lower` value is better.
    """
    charts = []
    for figure in dict.fromkeys([*TITLES, *sorted(better)]):
        comparable_rows = table[(table["figure"] == figure) & table["ratio"].notna()]
        if not comparable_rows.empty:
            caption = f"{'. '.join(sides)}. {_what(comparable_rows)}"
            title = TITLES.get(figure, f"{figure}, B relative to A")
            side = "right" if better[figure] == HIGHER else "left"
            axis = f"{AXIS.get(figure, figure)}, B / A ({side} of 1: B is faster)"
            charts.append(
                FigureSpec(
                    f"ratio-{figure}", title, caption, largest_changes(comparable_rows), partial(draw_ratios, axis)
                )
            )
    return charts


def largest_changes(known: pd.DataFrame) -> pd.DataFrame:
    """Return the `MOST_ROWS` rows with the largest increases or decreases, in the order of the table."""
    change = np.abs(np.log(known["ratio"]))
    largest_changes = change.sort_values(ascending=False, kind="stable").index[:MOST_ROWS]
    return known[known.index.isin(largest_changes)].reset_index(drop=True)


def _what(known: pd.DataFrame) -> str:
    many = len(known) > MOST_ROWS
    stands = f"The {MOST_ROWS} largest changes of {len(known)} cells; all stand in comparison.csv. " if many else ""
    limits = " and ".join(percentage(limit, 1) for limit in sorted(set(known["tolerance"].dropna())))
    shaded = f"; shaded: the tolerance, checks.spread_max, {limits}" if limits else ""
    return f"{stands}Ratio of the medians of the valid measured runs with the {INTERVAL}{shaded}."


def draw_ratios(axis: str, frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw the ratio B / A of each pair of cells with its interval; return the figure.

    `axis` is the label of the x axis. `frame` has one row per pair of cells, for one metric.
    """
    with storage_colours.style_sheet():
        labels = [textwrap.fill(label, LABEL) for label in frame["label"]]
        height = ROW * (1 + max(label.count("\n") for label in labels))
        figure = Figure(figsize=(WIDE, AROUND + height * len(frame)))
        axes = figure.subplots()
        _scale(axes, frame)
        for y, row in enumerate(rows_of(frame)):
            _row(axes, y, row)
        axes.axvline(1, color="black", linewidth=0.9, zorder=1)
        axes.set_yticks(range(len(frame)), labels)
        axes.set_ylim(len(frame) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(axis)
        add_title_legend_and_caption(figure, title, words, _signs(frame))
    return figure


def _scale(axes: Axes, frame: pd.DataFrame) -> None:
    """Make the x axis logarithmic, with limits that include all intervals and 1, and with plain numbers as ticks."""
    low, high = min(frame["low"].min(), 1) / MARGIN, max(frame["high"].max(), 1) * MARGIN
    axes.set_xscale("log")
    narrow = high / low < NARROW
    axes.xaxis.set_major_locator(
        FixedLocator(MaxNLocator(8).tick_values(low, high)) if narrow else LogLocator(subs=(1, 2, 5))
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlim(low, high)


def _row(axes: Axes, y: int, row: Row) -> None:
    noise = row["tolerance"]
    if noise > 0:
        axes.fill_betweenx([y - 0.5, y + 0.5], 1 / (1 + noise), 1 + noise, color=NOISE, linewidth=0, zorder=0)
    ends = [[row["ratio"] - row["low"]], [row["high"] - row["ratio"]]]
    axes.errorbar(row["ratio"], y, xerr=ends, **WHISKER, zorder=2)
    axes.plot(row["ratio"], y, **_marker(row["verdict"]), zorder=3)
    # The text is to the right of the axes, so that it does not cover an interval.
    text = f"{row['ratio']:.3f}{TIMES}  {row['verdict']}"
    axes.annotate(text, (1.01, y), xycoords=axes.get_yaxis_transform(), va="center", size=6.5, annotation_clip=False)


def _marker(verdict: str) -> dict[str, Any]:
    return {"linestyle": "none", "markersize": 5, "markeredgecolor": "black", **LOOKS[verdict]}


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    """Return the entries of the legend for the verdicts and tolerances that the chart contains."""
    verdicts = [verdict for verdict in LOOKS if (frame["verdict"] == verdict).any()]
    signs: list[Artist] = [Line2D([], [], label=verdict, **_marker(verdict)) for verdict in verdicts]
    return [
        *signs,
        *([Patch(color=NOISE, label="within the tolerance")] if (frame["tolerance"] > 0).any() else []),
    ]
