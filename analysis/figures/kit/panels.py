"""Draw the parts that all figures have: panels, title, caption, legend, bars, lines, whiskers and numbers."""

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
# The end of the y axis divided by the height of the highest bar, so that the number above the bar has enough space.
HEADROOM = 1.16
TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6))
POINTS_PER_INCH = 72
# Font sizes in points.
CAPTION_SIZE, TITLE_SIZE, NUMBER_SIZE = 6.5, 9.0, 6.5
# The height of a line of numbers, and the height of the gap between a point and its number, in points.
NUMBER_LINE, OVER_POINT = 8.0, 4.0
# The width of the title and of the caption, as a fraction of the figure's width.
WORDS_WIDTH = 0.97
# The maximum number of characters in a caption, and in a line of a panel's title. With this limit, "optane (emulated)"
# does not overlap the titles of the panels beside it.
LONGEST, PANEL_LETTERS = 4000, 19
# The additional height of a figure, in inches, for each further line of the caption, and of the title or legend.
CAPTION_LINE, LEGEND_LINE = 0.11, 0.17
# A published value is drawn as two dashes beside the bar, joined by a dotted line, so that the top of the bar and its
# whisker stay visible.
PUBLISHED: dict[str, Any] = {"color": "black", "linewidth": 1.6}
WHISKER: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capthick": 0.8, "capsize": 2.5}


def complete_figure(draw: Callable[[pd.DataFrame], Panels]) -> Callable[[pd.DataFrame, str, str], Figure]:
    """Return a function that draws a complete figure with title, legend and caption, in the style of all figures.

    `draw` draws the panels, and returns the figure and the entries of the legend.
    """

    @wraps(draw)
    def drawn(frame: pd.DataFrame, title: str, words: str) -> Figure:
        with storage_colours.style_sheet():
            figure, signs = draw(frame)
            stack_numbers(figure)
            add_title_legend_and_caption(figure, title, words, signs)
        return figure

    return drawn


def storage_panels(  # noqa: PLR0913 - all parameters are properties of the panels
    frame: pd.DataFrame,
    wide: float,
    high: float = 1.75,
    *,
    labels: tuple[str, str] = ("", ""),
    top: float | None = None,
    one_scale: bool = True,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Return a figure with one panel per storage, and pairs of a panel and the storage's rows in the frame.

    A panel has the size `wide` x `high` inches. `labels` are the labels of the x axis and of the y axis. `top` is the
    upper end of the y axis. If `one_scale` is true, all panels have the same y axis.
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
    """Return a figure with `count` panels, and the panels. A row of the figure has `in_a_row` panels.

    A panel has the `size` (width, height) in inches. The figure is at least `least` inches wide.
    """
    across, down = min(count, in_a_row), math.ceil(count / in_a_row)
    figure = Figure(figsize=(max(least, 0.9 + across * size[0]), 1.25 + size[1] * down))
    grid = list(figure.subplots(down, across, squeeze=False, **shared).flat)
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def time_panels(panes: int, highest: float, longest: float, label: str) -> tuple[Figure, list[Axes]]:
    """Return a figure with `panes` panels below each other, and the panels, for rates over time.

    The y axis ends above the rate `highest`, and the x axis ends at `longest` seconds.
    """
    figure = Figure(figsize=(6.0, 1.25 + 1.3 * panes))
    grid = list(figure.subplots(panes, 1, sharex=True, sharey=True, squeeze=False).flat)
    grid[0].set_ylim(0, (highest if highest > 0 else 1.0) * HEADROOM)
    grid[0].set_xlim(0, longest or 1.0)
    for axes in grid:
        axes.set_ylabel(label)
    time_axis(grid[-1], "time since the first call of the iterator", longest)
    return figure, grid


def time_axis(axes: Axes, label: str, longest_s: float) -> None:
    """Label a time axis and its ticks in s, ms or µs, depending on the longest time of the axis."""
    unit, size_s = next((each for each in TIME_UNITS if longest_s >= each[1] / 10), TIME_UNITS[-1])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time_s, _: f"{time_s / size_s:g}"))
    axes.set_xlabel(f"{label} ({unit})")


def write_reason(axes: Axes, words: str) -> None:
    """Write above a panel, at the right, the reason why the panel or a part of the panel is empty."""
    axes.set_title(words, loc="right", fontsize=7, fontweight="normal", color="0.4")


def name_panel(axes: Axes, cells: pd.DataFrame, *, several_hosts: bool) -> None:
    """Write the name of the storage above its panel. If the figure has several hosts, also write the hosts."""
    hosts = ", ".join(sorted(set(cells["host"]) - {""}))
    title = cells["storage"].iloc[0] + (f" on {hosts}" if several_hosts and hosts else "")
    parts = [title] if len(title) <= PANEL_LETTERS else title.split(" (", 1)
    axes.set_title("\n(".join(wrap_name(part, PANEL_LETTERS) for part in parts))


def storage_fill(row: Row) -> str:
    """Return the colour of the storage in a row."""
    return storage_colours.look_of_storage(row["storage_name"]).color


def set_categories(axes: Axes, values: Sequence[int | str]) -> None:
    """Label the x axis with values as categories at the positions 0, 1, 2 and so on."""
    axes.set_xticks(range(len(values)), [str(each) for each in values])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.65, len(values) - 0.35)


def wrap_name(name: str, letters: int = 14) -> str:
    """Return a name with line breaks, in lines of at most `letters` characters. The default fits below a bar.

    A line ends at a space or after an underscore. A longer word is broken.
    """
    return textwrap.fill(name.replace("_", "_\v"), letters, replace_whitespace=False).replace("\v", "")


def write_missing_status(axes: Axes, x: float, status: str) -> None:
    """Write the status of a cell without a number at the position where the bar of the cell would be."""
    axes.text(x, 0.02 * axes.get_ylim()[1], status, rotation=90, ha="center", color="0.4", size=7)


def write_number(axes: Axes, at: tuple[float, float], text: str, **keys: Any) -> None:
    """Write a number slightly above the point `at`."""
    place: dict[str, Any] = {"xytext": (0, 2.5), "va": "bottom", "annotation_clip": False, "in_layout": False} | keys
    axes.annotate(text, at, textcoords="offset points", ha="center", size=NUMBER_SIZE, linespacing=0.95, **place)


class _Stack(NamedTuple):
    """The numbers that are written below each other above one position, from top to bottom.

    `x` and `y` are the position in points, measured from the lower left corner of the panel.
    """

    x: float
    y: float
    numbers: list[Annotation]

    @property
    def text(self) -> str:
        """The numbers as lines of text. If all numbers are equal, the text has only one line."""
        lines = [each.get_text() for each in self.numbers]
        return "\n".join(lines if len(set(lines)) > 1 else lines[:1])

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of the text in points."""
        lines = self.text.split("\n")
        return max(_points(line, NUMBER_SIZE) for line in lines), NUMBER_LINE * len(lines)

    def covers(self, right: _Stack) -> bool:
        """Return whether the text of this stack overlaps the text of the next stack on the right."""
        (wide, high), (other_wide, other_high) = self.size, right.size
        return right.x - self.x < (wide + other_wide) / 2 and -other_high < right.y - self.y < high


def stack_numbers(figure: Figure) -> None:
    """Rearrange the numbers in all panels of a figure so that they do not overlap.

    Numbers that would overlap above one position are joined into one text above the highest point, in the order of
    their points. The y axis is extended so that this text fits. If joined texts side by side overlap, all numbers of
    the panel are rotated by 90 degrees.
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
    """Return the numbers above the points of a panel from left to right.

    Numbers that would overlap above one position are one stack.
    """
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
    """Return the approximate width and height of a panel in points.

    The exact size is known only after the layout, which is computed later.
    """
    box, figure = axes.get_position(), axes.get_figure(root=True)
    wide, high = figure.get_size_inches() if figure else (0.0, 0.0)
    return box.width * wide * POINTS_PER_INCH, box.height * high * POINTS_PER_INCH


def draw_whiskers(axes: Axes, places: Sequence[float], rows: Sequence[Row], figure: str, zorder: float = 2) -> None:
    """Draw the whiskers of a metric for all rows at the x positions `places`.

    All whiskers are drawn with one call of `errorbar`, because each call is slow.
    """
    middle = [row[figure] for row in rows]
    low, high = zip(*(whisker_ends(row, figure) for row in rows), strict=True) if rows else ((), ())
    ends = np.subtract([middle, high], [low, middle])
    axes.errorbar(places, middle, ends, **WHISKER, zorder=zorder)


def draw_bars(  # noqa: PLR0913 - all parameters are properties of the bars
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
    """Draw for each row a bar with a whisker, the median as a number, and the mark of the published value.

    If a row has no number, the status of the cell is written instead of a bar.

    Parameters
    ----------
    places
        The x positions of the rows.
    metric
        The column with the heights of the bars. The whiskers are in the columns `<metric>_min`, `<metric>_max` and so
        on.
    fill
        A function that returns the colour of a row's bar.
    published
        The column with the published values, or `""`.
    crossed
        The column with the heights at which the caller draws a line across each bar. The numbers are written where such
        a line does not cross them.
    dash
        The start and the end of the dashes of a published mark, measured outwards from the side of the bar.
    n
        Whether the number of runs is written below each median.
    """
    drawn = [(x, row) for x, row in zip(places, rows, strict=True) if not math.isnan(row[metric])]
    for x, row in zip(places, rows, strict=True):
        if math.isnan(row[metric]):
            write_missing_status(axes, x, row["status"])
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
    """Draw the mark of a published value: dashes on both sides of a bar, joined by a dotted line.

    If the value is above the end of the axis, write an arrow and the value instead.
    """
    top, (inner, outer) = axes.get_ylim()[1], dash
    if height > top:
        write_number(axes, (x, top), f"{UP}\n{three_digits(height)}", xytext=(0, -1), va="top")
        return
    axes.hlines([height, height], [x - outer, x + inner], [x - inner, x + outer], **PUBLISHED)
    axes.hlines(height, x - inner, x + inner, **PUBLISHED | {"linewidth": 0.6, "linestyle": "dotted"})


def published_sign(label: str) -> Line2D:
    """Return the entry of the legend for the marks of published values."""
    return Line2D([], [], label=label, **PUBLISHED, dashes=(3, 3.5))


def draw_line(  # noqa: PLR0913, PLR0917 - all parameters are properties of the line
    axes: Axes,
    places: Sequence[float],
    rows: Sequence[Row],
    metric: str,
    look: StorageLook,
    style: str = "solid",
    *,
    n: bool = False,
) -> None:
    """Draw the medians of a metric as points on a line, with whiskers and daggers.

    `style` is the line style of matplotlib. If `n` is true, the number of runs is written above each point.
    """
    draw_whiskers(axes, places, rows, metric)
    axes.plot(places, [row[metric] for row in rows], linestyle=style, **_line_look(look))
    for place, row in zip(places, rows, strict=True):
        text = f"{runs_text(row) if n else ''}{dagger_if_unstable(row)}"
        if text:
            write_number(axes, (place, whisker_ends(row, metric)[1]), text, xytext=(0, OVER_POINT))


def line_sign(label: str, look: StorageLook) -> Line2D:
    """Return the entry of the legend for a line with this look."""
    return Line2D([], [], label=label, **_line_look(look))


def _line_look(look: StorageLook) -> dict[str, Any]:
    return {"color": look.color, "marker": look.marker, "markeredgecolor": "black"}


def axis_top(frame: pd.DataFrame, *columns: str, headroom: float = HEADROOM) -> float:
    """Return the upper end of a y axis, so that the numbers above the highest value of these columns fit.

    The end is always greater than 0.
    """
    ends = [upper_ends(frame, name.removesuffix("_max")) if name.endswith("_max") else frame[name] for name in columns]
    return (max(float(each.fillna(0).max()) for each in ends) or 1.0) * headroom


def upper_ends(frame: pd.DataFrame, figure: str) -> pd.Series[float]:
    """Return for each row the upper end of the whisker of a metric, as in `whisker_ends`."""
    largest = frame[f"{figure}_max"]
    return frame[f"{figure}_high"].fillna(largest) if f"{figure}_high" in frame else largest


def whisker_ends(row: Row, figure: str) -> tuple[float, float]:
    """Return the lower and the upper end of a metric's whisker.

    These are the ends of the median's interval. If the row has no interval, these are the minimum and the maximum.
    """
    low, high = row.get(f"{figure}_low", math.nan), row.get(f"{figure}_high", math.nan)
    return (row[f"{figure}_min"], row[f"{figure}_max"]) if math.isnan(low) else (low, high)


def number_height(axes: Axes, top: float, mark: float, *, n: bool) -> float:
    """Return the height at which the number of a bar is written.

    This is the top of the whisker. If the line at the height `mark` would cross the number there, this is `mark`.
    """
    height = (0.12 if n else 0.06) * axes.get_ylim()[1]  # the height of the number itself
    return mark if top < mark < top + height else top


def median_text(row: Row, figure: str, *, n: bool) -> str:
    """Return a median as text, with a dagger if the cell is unstable, and with the number of runs if `n` is true."""
    text = f"{three_digits(row[figure])}{dagger_if_unstable(row)}"
    return f"{text}\n{runs_text(row)}" if n else text


def dagger_if_unstable(row: Row) -> str:
    """Return a dagger if the cell is unstable, or else `""`."""
    return DAGGER if row["unstable"] is True else ""


def runs_text(row: Row) -> str:
    """Return the number of valid runs of a cell as text, for example `n=5`."""
    return f"n={row['n_valid']}"


def needs_run_counts(shown: pd.DataFrame) -> bool:
    """Return whether the cells have different numbers of runs, so that each bar must show its number of runs."""
    return len(set(shown["n_valid"])) > 1


def add_title_legend_and_caption(figure: Figure, title: str, words: str, signs: Sequence[Artist]) -> None:
    """Add the title and the legend at the top of a figure, and the caption at the bottom.

    The height of the figure increases by the height of the additional lines.
    """
    wide = figure.get_figwidth()
    # No-break spaces join a word and its number, or a number and its unit, so that no line break separates them.
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
    """Return a text with line breaks, in lines of at most `wide` inches at the font size `size` in points."""
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
    """Return the largest number of columns with which a legend fits into `wide` inches, at least 1."""
    size = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    beside = size * (rcParams["legend.handlelength"] + rcParams["legend.handletextpad"])
    widths = [beside + _points(label, size) for label in labels]
    for columns in range(len(labels), 1, -1):
        taken = sum(max(each) for each in np.array_split(widths, columns))  # matplotlib fills columns in this way
        if taken + size * rcParams["legend.columnspacing"] * (columns - 1) <= wide * POINTS_PER_INCH:
            return columns
    return 1


@cache
def _points(text: str, size: float) -> float:
    """Return the width of a drawn text in points at the font size `size` in points.

    Results are cached, because measuring a text takes milliseconds.
    """
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text else 0.0
