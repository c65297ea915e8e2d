"""What all figures share: panels in a grid, the title, the caption, the legend's signs, and how numbers are written."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from analysis.figures.kit import storage_colours
from analysis.records.frame import Row
from analysis.text.plain import DAGGER, DASH, JOINT, significant, visible

# A figure, and the signs that its legend must explain.
Panels = tuple[Figure, Sequence[Artist]]

IN_A_ROW = 4
UNSTABLE_HATCH = "/////"
# Room above the highest thing for its number.
HEADROOM = 1.16
POINTS_PER_INCH = 72
# Points.
CAPTION_SIZE, TITLE_SIZE = 6.5, 9.0
# Of the figure's width that words take, between margins.
WORDS_WIDTH = 0.97
# Letters of a caption, and of a line over a panel: "optane (emulated)" has room beside others of its kind.
LONGEST, PANEL_LETTERS = 4000, 19
# Inches that a further line of them takes.
CAPTION_LINE, LEGEND_LINE = 0.11, 0.17
WHISKER: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capthick": 0.8, "capsize": 2.5}


def framed(draw: Callable[[pd.DataFrame], Panels]) -> Callable[[pd.DataFrame, str, str], Figure]:
    """Return what draws a figure in our style with title, legend and caption, made of what draws its panels."""

    @wraps(draw)
    def drawn(frame: pd.DataFrame, title: str, words: str) -> Figure:
        with storage_colours.sheet():
            figure, signs = draw(frame)
            frame_with_words(figure, title, words, signs)
        return figure

    return drawn


def per_storage(  # noqa: PLR0913 - what panels have in common
    frame: pd.DataFrame,
    wide: float,
    high: float = 1.75,
    *,
    labels: tuple[str, str] = ("", ""),
    top: float | None = None,
    one_scale: bool = True,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Return a figure with a panel per storage (its size in inches), in the order of the frame, and what each shows.

    `labels` stand along the axes; `top` is the end of the scale.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    figure, grid = grid_of(len(storages), IN_A_ROW, (wide, high), 3.6, sharey=one_scale)
    hosts = len(set(frame["host"]) - {""}) > 1
    made = [(axes, frame[frame["storage"] == each]) for axes, each in zip(grid, storages, strict=True)]
    for place, (axes, cells) in enumerate(made):
        name_panel(axes, cells, several_hosts=hosts)
        axes.set_xlabel(labels[0])
        axes.set_ylabel("" if place % IN_A_ROW else labels[1])
    if top is not None:
        grid[0].set_ylim(0, top)
    return figure, made


def grid_of(
    count: int, in_a_row: int, size: tuple[float, float], least: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure, at `least` so wide, with so many panels of a size in inches, row by row."""
    across, down = min(count, in_a_row), math.ceil(count / in_a_row)
    figure = Figure(figsize=(max(least, 0.9 + across * size[0]), 1.25 + size[1] * down))
    grid = list(figure.subplots(down, across, squeeze=False, **shared).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def over_time(panes: int, highest: float, longest: float, label: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel below the other, of rates up to the highest over seconds up to the longest."""
    figure = Figure(figsize=(6.0, 1.25 + 1.3 * panes))
    grid = list(figure.subplots(panes, 1, sharex=True, sharey=True, squeeze=False).flat)
    grid[0].set_ylim(0, (highest if highest > 0 else 1.0) * HEADROOM)
    grid[0].set_xlim(0, longest or 1.0)
    for axes in grid:
        axes.set_ylabel(label)
    grid[-1].set_xlabel("time since the first call of the iterator (s)")
    return figure, grid


def why_nothing(axes: Axes, words: str) -> None:
    """Say at the right above a panel why something is not drawn in it."""
    axes.set_title(words, loc="right", fontsize=7, fontweight="normal", color="0.4")


def name_panel(axes: Axes, cells: pd.DataFrame, *, several_hosts: bool) -> None:
    """Write the storage over its panel, with its hosts where the figure has several."""
    hosts = ", ".join(sorted(set(cells["host"]) - {""}))
    title = cells["storage"].iloc[0] + (f" on {hosts}" if several_hosts and hosts else "")
    parts = [title] if len(title) <= PANEL_LETTERS else title.split(" (", 1)
    axes.set_title("\n(".join(textwrap.fill(part, PANEL_LETTERS) for part in parts))


def categories(axes: Axes, values: Sequence[int | str]) -> None:
    """Put values on the x axis as categories, the first at 0."""
    axes.set_xticks(range(len(values)), [str(each) for each in values])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.65, len(values) - 0.35)


def wrapped(name: str, letters: int = 14) -> str:
    """Return a name that may have several words in lines of so many letters; by default, for a place below a bar."""
    return textwrap.fill(name, letters)


def bar(axes: Axes, x: float, height: float, row: Row, **look: Any) -> None:
    """Draw the bar of a cell, hatched where it is unstable."""
    axes.bar(x, height, edgecolor="black", hatch=UNSTABLE_HATCH if row["unstable"] is True else None, **look)


def gap(axes: Axes, x: float, status: str) -> None:
    """Leave the status of a cell that has no figure in its place."""
    axes.text(x, 0.02 * axes.get_ylim()[1], status, rotation=90, ha="center", color="0.4", size=7)


def number(axes: Axes, at: tuple[float, float], text: str, **keys: Any) -> None:
    """Write a number a little above a point."""
    place: dict[str, Any] = {"xytext": (0, 2.5), "va": "bottom", "annotation_clip": False, "in_layout": False} | keys
    axes.annotate(text, at, textcoords="offset points", ha="center", size=6.5, linespacing=0.95, **place)


def whiskers(axes: Axes, places: Sequence[float], rows: Sequence[Row], figure: str, zorder: float = 2) -> None:
    """Draw min-max of a figure of these rows at places along the x axis; all at once, because each call is slow."""
    middle, low, high = ([row[f"{figure}{end}"] for row in rows] for end in ("", "_min", "_max"))
    ends = np.subtract([middle, high], [low, middle])
    axes.errorbar(places, middle, ends, **WHISKER, zorder=zorder)


def clear_of(axes: Axes, top: float, published: float, *, n: bool) -> float:
    """Return what a number stands on: its bar, or the published mark that would strike through it; NaN for none."""
    line = (0.12 if n else 0.06) * axes.get_ylim()[1]  # what the number takes
    return published if top - line / 3 < published < top + line else top


def median_text(row: Row, figure: str, *, n: bool) -> str:
    """Return a median with a dagger where it is unstable, and its n where asked for."""
    text = f"{significant(row[figure])}{DAGGER if row['unstable'] is True else ''}"
    return f"{text}\nn={row['n_valid']}" if n else text


def several_n(shown: pd.DataFrame) -> bool:
    """Say whether the cells differ in their number of runs, so that each must show its own."""
    return len(set(shown["n_valid"])) > 1


def unstable_sign(shown: pd.DataFrame, what: str = "", *, hatch: bool = True) -> list[Artist]:
    """Return what the legend must say of unstable cells, if there are any; `what` scatters, where it is not drawn."""
    if not shown["unstable"].fillna(value=False).any():
        return []
    fill: dict[str, Any] = (
        {"facecolor": "white", "edgecolor": "black", "hatch": UNSTABLE_HATCH} if hatch else {"color": "none"}
    )
    return [Patch(**fill, label=f"{DAGGER} unstable: {what}min{DASH}max wider than checks.spread_max")]


def frame_with_words(figure: Figure, title: str, words: str, signs: Sequence[Artist]) -> None:
    """Put the title above with the legend below it, and the caption at the foot; the figure grows with them."""
    wide = figure.get_figwidth()
    # Bound, so that no line ends between a word and its number, or a number and its unit.
    foot = filled(re.sub(r" (?=[\d≥%])", JOINT, words), wide * WORDS_WIDTH, CAPTION_SIZE).replace(JOINT, " ")
    head = filled(title, wide * WORDS_WIDTH, TITLE_SIZE)
    figure.supxlabel(foot, x=0.01, ha="left", fontsize=CAPTION_SIZE, color="0.25")
    columns = legend_columns([str(sign.get_label()) for sign in signs], wide * WORDS_WIDTH)
    if signs:
        # As the title of the legend, because the layout lets a suptitle and an outside legend overlap.
        figure.legend(
            handles=signs,
            loc="outside upper left",
            alignment="left",
            borderpad=0.0,
            ncols=columns,
            title=head,
            title_fontsize=TITLE_SIZE,
        )
    else:
        figure.suptitle(head, x=0.01, ha="left", fontsize=TITLE_SIZE)
    rows = math.ceil(len(signs) / columns)
    more = CAPTION_LINE * max(0, foot.count("\n") - 1) + LEGEND_LINE * (head.count("\n") + max(0, rows - 1))
    figure.set_figheight(figure.get_figheight() + more)


def filled(words: str, wide: float, size: float) -> str:
    """Break words into lines of at most `wide` inches, as wide as they are drawn at this size in points."""
    words = visible(words if len(words) <= LONGEST else f"{words[:LONGEST]}\N{HORIZONTAL ELLIPSIS}")
    space = _points("n n", size) - 2 * _points("n", size)
    lines: list[list[str]] = [[]]
    taken = 0.0
    for word in words.split(" "):
        taken += space + _points(word, size)
        if lines[-1] and taken > wide * POINTS_PER_INCH:
            lines.append([])
            taken = _points(word, size)
        lines[-1].append(word)
    return "\n".join(map(" ".join, lines))


def legend_columns(labels: Sequence[str], wide: float) -> int:
    """Return in how many columns the entries of a legend fit into `wide` inches, at least 1."""
    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    beside = size * (rcParams["legend.handlelength"] + rcParams["legend.handletextpad"])
    widths = [beside + _points(label, size) for label in labels]
    for columns in range(len(labels), 1, -1):
        taken = sum(max(each) for each in np.array_split(widths, columns))  # as matplotlib fills them
        if taken + size * rcParams["legend.columnspacing"] * (columns - 1) <= wide * POINTS_PER_INCH:
            return columns
    return 1


@cache
def _points(text: str, size: float) -> float:
    """Return how wide a text is drawn at a size in points; cached by word, because it takes milliseconds."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text else 0.0
