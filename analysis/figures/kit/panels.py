"""Parts of a figure that all share: the grid of panels, title, caption, legend, bars, whiskers and numbers."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache, wraps
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import Affine2D

from analysis.figures.kit import storage_colours
from analysis.figures.kit.storage_colours import StorageLook
from analysis.records.frame import Row
from analysis.text import DAGGER, JOINT, UP, three_digits, visible

# A figure, and the entries of its legend.
Panels = tuple[Figure, Sequence[Artist]]

IN_A_ROW = 4
# End of the y axis over the highest bar, so that the bar's number has room.
HEADROOM = 1.16
TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6))
POINTS_PER_INCH = 72
# Points.
CAPTION_SIZE, TITLE_SIZE, NUMBER_SIZE = 6.5, 9.0, 6.5
# Height of a line of numbers, and of the gap between a point and its number: points.
NUMBER_LINE, OVER_POINT = 8.0, 4.0
# Share of the figure's width that the title and the caption take.
WORDS_WIDTH = 0.97
# Most letters of a caption, and of a line of a panel's title: "optane (emulated)" fits between its neighbours.
LONGEST, PANEL_LETTERS = 4000, 19
# Inches per additional line of the caption, and of the title or legend.
CAPTION_LINE, LEGEND_LINE = 0.11, 0.17
# Dashes on both sides of the bar, so that its top and its whisker stay in sight; a dotted line joins them.
PUBLISHED: dict[str, Any] = {"color": "black", "linewidth": 1.6}
WHISKER: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capthick": 0.8, "capsize": 2.5}


def with_frame(draw: Callable[[pd.DataFrame], Panels]) -> Callable[[pd.DataFrame, str, str], Figure]:
    """Return a function that draws a figure with title, legend and caption in our style; `draw` draws the panels."""

    @wraps(draw)
    def drawn(frame: pd.DataFrame, title: str, words: str) -> Figure:
        with storage_colours.style_sheet():
            figure, signs = draw(frame)
            stack_numbers(figure)
            frame_with_words(figure, title, words, signs)
        return figure

    return drawn


def storage_panels(  # noqa: PLR0913 - what panels have in common
    frame: pd.DataFrame,
    wide: float,
    high: float = 1.75,
    *,
    labels: tuple[str, str] = ("", ""),
    top: float | None = None,
    one_scale: bool = True,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Return a figure with one panel (`wide` x `high` inches) per storage, and each panel with its rows of the frame.

    `labels` are those of the x and y axis; `top` is the end of the y axis.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    figure, grid = panel_grid(len(storages), IN_A_ROW, (wide, high), 3.6, sharey=one_scale)
    hosts = len(set(frame["host"]) - {""}) > 1
    panes = [(axes, frame[frame["storage"] == each]) for axes, each in zip(grid, storages, strict=True)]
    for place, (axes, cells) in enumerate(panes):
        name_panel(axes, cells, several_hosts=hosts)
        axes.set_xlabel(labels[0])
        axes.set_ylabel("" if place % IN_A_ROW else labels[1])
    if top is not None:
        grid[0].set_ylim(0, top)
    return figure, panes


def panel_grid(
    count: int, in_a_row: int, size: tuple[float, float], least: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure, at least `least` inches wide, with `count` panels of `size` inches, `in_a_row` per row."""
    across, down = min(count, in_a_row), math.ceil(count / in_a_row)
    figure = Figure(figsize=(max(least, 0.9 + across * size[0]), 1.25 + size[1] * down))
    grid = list(figure.subplots(down, across, squeeze=False, **shared).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def time_panels(panes: int, highest: float, longest: float, label: str) -> tuple[Figure, list[Axes]]:
    """Return a figure of `panes` panels below each other: rates up to `highest` over seconds up to `longest`."""
    figure = Figure(figsize=(6.0, 1.25 + 1.3 * panes))
    grid = list(figure.subplots(panes, 1, sharex=True, sharey=True, squeeze=False).flat)
    grid[0].set_ylim(0, (highest if highest > 0 else 1.0) * HEADROOM)
    grid[0].set_xlim(0, longest or 1.0)
    for axes in grid:
        axes.set_ylabel(label)
    time_axis(grid[-1], "time since the first call of the iterator", longest)
    return figure, grid


def time_axis(axes: Axes, label: str, longest_s: float) -> None:
    """Label an x axis of seconds, and its ticks, in the unit that suits its longest time: s, ms or µs."""
    unit, size_s = next((each for each in TIME_UNITS if longest_s >= each[1] / 10), TIME_UNITS[-1])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: f"{time_s / size_s:g}"))
    axes.set_xlabel(f"{label} ({unit})")


def write_reason(axes: Axes, words: str) -> None:
    """Write above a panel, at the right, why it or a part of it is empty."""
    axes.set_title(words, loc="right", fontsize=7, fontweight="normal", color="0.4")


def name_panel(axes: Axes, cells: pd.DataFrame, *, several_hosts: bool) -> None:
    """Write the storage above its panel, with the storage's hosts if the figure has several hosts."""
    hosts = ", ".join(sorted(set(cells["host"]) - {""}))
    title = cells["storage"].iloc[0] + (f" on {hosts}" if several_hosts and hosts else "")
    parts = [title] if len(title) <= PANEL_LETTERS else title.split(" (", 1)
    axes.set_title("\n(".join(textwrap.fill(part, PANEL_LETTERS) for part in parts))


def storage_fill(row: Row) -> str:
    """Return the colour of a row's storage."""
    return storage_colours.look_of_storage(row["storage_name"]).color


def set_categories(axes: Axes, values: Sequence[int | str]) -> None:
    """Put values on the x axis as categories, the first at 0."""
    axes.set_xticks(range(len(values)), [str(each) for each in values])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.65, len(values) - 0.35)


def wrap_name(name: str, letters: int = 14) -> str:
    """Return a name broken into lines of at most `letters` letters; the default fits below a bar."""
    return textwrap.fill(name, letters)


def write_gap(axes: Axes, x: float, status: str) -> None:
    """Write the status of a cell without a number in the place of its bar."""
    axes.text(x, 0.02 * axes.get_ylim()[1], status, rotation=90, ha="center", color="0.4", size=7)


def write_number(axes: Axes, at: tuple[float, float], text: str, **keys: Any) -> None:
    """Write a number a little above a point."""
    place: dict[str, Any] = {"xytext": (0, 2.5), "va": "bottom", "annotation_clip": False, "in_layout": False} | keys
    axes.annotate(text, at, textcoords="offset points", ha="center", size=NUMBER_SIZE, linespacing=0.95, **place)


class _Stack(NamedTuple):
    """The numbers that share one line or more above a place, from top to bottom; places in points of the panel."""

    x: float
    y: float
    numbers: list[Annotation]

    @property
    def text(self) -> str:
        """The numbers line by line; equal ones once."""
        lines = [each.get_text() for each in self.numbers]
        return "\n".join(lines if len(set(lines)) > 1 else lines[:1])

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, points."""
        lines = self.text.split("\n")
        return max(_points(line, NUMBER_SIZE) for line in lines), NUMBER_LINE * len(lines)

    def covers(self, right: _Stack) -> bool:
        """Return whether this stack overlaps its neighbour on the right."""
        (wide, high), (other_wide, other_high) = self.size, right.size
        return right.x - self.x < (wide + other_wide) / 2 and -other_high < right.y - self.y < high


def stack_numbers(figure: Figure) -> None:
    """Join numbers above one place that would overlap: line by line above the highest, in the order of their points.

    The y axis gets room for what is joined. Where stacks side by side overlap, all numbers of the panel are turned.
    """
    turned = {axes: any(one.covers(other) for one, other in pairwise(_stacks(axes))) for axes in figure.axes}
    for axes in figure.axes:
        high, scale = _points_of(axes)[1], axes.yaxis.get_transform()
        for stack in _stacks(axes):
            share = stack.y / (high - OVER_POINT - stack.size[0 if turned[axes] else 1])
            if share > 1 and (turned[axes] or len(stack.numbers) > 1):
                bottom, top = scale.transform(axes.get_ylim())
                axes.set_ylim(top=float(scale.inverted().transform(bottom + share * (top - bottom))))
    for axes in figure.axes:
        for stack in _stacks(axes):
            stack.numbers[0].set(text=stack.text, rotation=90 if turned[axes] else 0)
            for covered in stack.numbers[1:]:
                covered.remove()


def _stacks(axes: Axes) -> list[_Stack]:
    """Return the numbers above the points of a panel from left to right, those that would overlap as one stack."""
    axes.autoscale_view()
    to_points = axes.transScale + axes.transLimits + Affine2D().scale(*_points_of(axes))
    numbers = [text for text in axes.texts if isinstance(text, Annotation) and text.get_verticalalignment() == "bottom"]
    placed = [(*to_points.transform(each.xy).tolist(), each) for each in numbers]
    stacks: list[_Stack] = []
    for x, y, each in sorted(placed, key=lambda place: place[:2]):
        below = stacks.pop() if stacks else None
        if below and below.x == x and y - below.y < below.size[1] + 2 * OVER_POINT:
            stacks.append(_Stack(x, y, [each, *below.numbers]))
        else:
            stacks += [*filter(None, [below]), _Stack(x, y, [each])]
    return stacks


def _points_of(axes: Axes) -> tuple[float, float]:
    """Return about the width and height of a panel in points; the layout, which is done once, comes later."""
    box, figure = axes.get_position(), axes.get_figure(root=True)
    wide, high = figure.get_size_inches() if figure else (0.0, 0.0)
    return box.width * wide * POINTS_PER_INCH, box.height * high * POINTS_PER_INCH


def draw_whiskers(axes: Axes, places: Sequence[float], rows: Sequence[Row], figure: str, zorder: float = 2) -> None:
    """Draw the whiskers of a metric for all rows at these x positions; in one call, because a call is slow."""
    middle = [row[figure] for row in rows]
    low, high = zip(*(whisker_ends(row, figure) for row in rows), strict=True) if rows else ((), ())
    ends = np.subtract([middle, high], [low, middle])
    axes.errorbar(places, middle, ends, **WHISKER, zorder=zorder)


def draw_bars(  # noqa: PLR0913 - what a bar shows
    axes: Axes,
    places: Sequence[float],
    rows: Sequence[Row],
    metric: str,
    width: float,
    *,
    fill: Callable[[Row], str] = storage_fill,
    published: str = "",
    crossed: str = "",
    dash: tuple[float, float] = (0.01, 0.13),
    n: bool = False,
) -> None:
    """Draw a row's bar, whisker, median and published mark at its x position; where it has no number, its status.

    Parameters
    ----------
    metric
        The column of the bars' heights; those of the whiskers are beside it.
    fill
        Returns the colour of a row's bar.
    published
        The column of the published values, if there is one.
    crossed
        The column of heights at which the caller draws a line across the bars, which leaves their numbers free.
    dash
        Where a published mark begins and ends, from a side of its bar outwards.
    n
        Whether the number of runs stands below each median.
    """
    drawn = [(x, row) for x, row in zip(places, rows, strict=True) if not math.isnan(row[metric])]
    for x, row in zip(places, rows, strict=True):
        if math.isnan(row[metric]):
            write_gap(axes, x, row["status"])
    spots, shown = [x for x, _ in drawn], [row for _, row in drawn]
    axes.bar(spots, [row[metric] for row in shown], width, color=[*map(fill, shown)], edgecolor="black")
    draw_whiskers(axes, spots, shown, metric)
    for x, row in drawn:
        mark = row[published or crossed] if published or crossed else math.nan
        if published and mark > 0:
            _published_mark(axes, x, mark, (width / 2 + dash[0], width / 2 + dash[1]))
        foot = number_height(axes, whisker_ends(row, metric)[1], mark, n=n)
        write_number(axes, (x, foot), median_text(row, metric, n=n))


def _published_mark(axes: Axes, x: float, height: float, dash: tuple[float, float]) -> None:
    """Draw dashes on both sides of a bar and dots between; a mark above the axis is a number below an arrow."""
    top, (inner, outer) = axes.get_ylim()[1], dash
    if height > top:
        write_number(axes, (x, top), f"{UP}\n{three_digits(height)}", xytext=(0, -1), va="top")
        return
    axes.hlines([height, height], [x - outer, x + inner], [x - inner, x + outer], **PUBLISHED)
    axes.hlines(height, x - inner, x + inner, **PUBLISHED | {"linewidth": 0.6, "linestyle": "dotted"})


def published_sign(label: str) -> Line2D:
    """Return the legend's entry for published marks."""
    return Line2D([], [], label=label, **PUBLISHED, dashes=(3, 3.5))


def draw_line(  # noqa: PLR0913, PLR0917 - what a line shows
    axes: Axes,
    places: Sequence[float],
    rows: Sequence[Row],
    metric: str,
    look: StorageLook,
    style: str = "solid",
    *,
    n: bool = False,
) -> None:
    """Draw the medians of a metric as points on a line (of this matplotlib style), with whiskers and daggers.

    `n`: whether the number of runs stands above each point.
    """
    draw_whiskers(axes, places, rows, metric)
    axes.plot(places, [row[metric] for row in rows], linestyle=style, **_line_look(look))
    for place, row in zip(places, rows, strict=True):
        text = f"{runs_text(row) if n else ''}{dagger_if_unstable(row)}"
        if text:
            write_number(axes, (place, whisker_ends(row, metric)[1]), text, xytext=(0, OVER_POINT))


def line_sign(label: str, look: StorageLook) -> Line2D:
    """Return the legend's entry for a line."""
    return Line2D([], [], label=label, **_line_look(look))


def _line_look(look: StorageLook) -> dict[str, Any]:
    return {"color": look.color, "marker": look.marker, "markeredgecolor": "black"}


def axis_top(frame: pd.DataFrame, *columns: str, headroom: float = HEADROOM) -> float:
    """Return the end of a y axis with room for the numbers above the highest value of these columns; above 0."""
    ends = [upper_ends(frame, name.removesuffix("_max")) if name.endswith("_max") else frame[name] for name in columns]
    return (max(float(each.fillna(0).max()) for each in ends) or 1.0) * headroom


def upper_ends(frame: pd.DataFrame, figure: str) -> pd.Series[float]:
    """Return the upper ends of the whiskers of a metric, as `whisker_ends` has them."""
    largest = frame[f"{figure}_max"]
    return frame[f"{figure}_high"].fillna(largest) if f"{figure}_high" in frame else largest


def whisker_ends(row: Row, figure: str) -> tuple[float, float]:
    """Return the ends of a metric's whisker: the interval of the median if the row has it, else minimum and maximum."""
    low, high = row.get(f"{figure}_low", math.nan), row.get(f"{figure}_high", math.nan)
    return (row[f"{figure}_min"], row[f"{figure}_max"]) if math.isnan(low) else (low, high)


def number_height(axes: Axes, top: float, mark: float, *, n: bool) -> float:
    """Return the height at which a bar's number stands: its whisker's top, or the mark if that would cross it there."""
    height = (0.12 if n else 0.06) * axes.get_ylim()[1]  # of the number
    return mark if top < mark < top + height else top


def median_text(row: Row, figure: str, *, n: bool) -> str:
    """Return a median as text, with a dagger if the cell is unstable, and with its number of runs if `n`."""
    text = f"{three_digits(row[figure])}{dagger_if_unstable(row)}"
    return f"{text}\n{runs_text(row)}" if n else text


def dagger_if_unstable(row: Row) -> str:
    """Return a dagger if the cell is unstable, else nothing."""
    return DAGGER if row["unstable"] is True else ""


def runs_text(row: Row) -> str:
    """Return the number of valid runs of a cell, as it stands beside its median."""
    return f"n={row['n_valid']}"


def needs_run_counts(shown: pd.DataFrame) -> bool:
    """Return whether the cells differ in their number of runs, so that each bar must show its own."""
    return len(set(shown["n_valid"])) > 1


def frame_with_words(figure: Figure, title: str, words: str, signs: Sequence[Artist]) -> None:
    """Add the title, below it the legend, and at the foot the caption; the figure becomes higher by their lines."""
    wide = figure.get_figwidth()
    # Words are joined, so that no line ends between a word and its number or a number and its unit.
    joined = re.sub(rf" (?=[\d≥%])|(?<=[\d{DAGGER}]) (?=[a-z])", JOINT, words)
    foot = wrap_text(joined, wide * WORDS_WIDTH, CAPTION_SIZE).replace(JOINT, " ")
    head = wrap_text(title, wide * WORDS_WIDTH, TITLE_SIZE)
    figure.supxlabel(foot, x=0.01, ha="left", fontsize=CAPTION_SIZE, color="0.25")
    columns = legend_columns([str(sign.get_label()) for sign in signs], wide * WORDS_WIDTH)
    if signs:
        # The title is the legend's title, because the layout lets a suptitle and an outside legend overlap.
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


def wrap_text(words: str, wide: float, size: float) -> str:
    """Return a text broken into lines of at most `wide` inches, as measured at the letter size in points."""
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
    """Return the number of columns with which a legend fits into `wide` inches, at least 1."""
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
    """Return the width of a drawn text in points, at a letter size in points; cached, because it takes milliseconds."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text else 0.0
