"""Figures 4 and 5: numbers in, `matplotlib.figure.Figure` out; nothing is decided and nothing written here.

The paper has two fills, white for Blackdog and gray for Tegner, so there it is the place that names the
device. So here: a panel per storage in the paper's order, inside it the threads 1, 2, 4, 8 as categories, and
one scale for all panels; our colour names the storage a second time, Lustre stays gray.
"""

from __future__ import annotations

import math
import re
import textwrap
from itertools import chain
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import paper, style
from analysis.bars import same_size
from analysis.frame import rows_of
from analysis.signs import DAGGER, DASH, JOINT, TIMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

IN_A_ROW = 4
WIDTH = 0.72
UNSTABLE_HATCH = "/////"
# Room above the highest bar for its number.
HEADROOM = 1.16
BYTES_PER_MB = 10**6
# Below this width in inches the entries of the legend stand under each other.
NARROW = 5
# Characters of the caption's size in an inch of width.
CAPTION_PER_INCH = 20
# Dashes on both sides of the bar, so that its top and its whisker stay in sight; a dotted line joins them.
PAPER_MARK: dict[str, Any] = {"color": "black", "linewidth": 1.6}
PAPER_LINE: dict[str, Any] = {"color": "black", "linewidth": 0.6, "linestyle": "dotted"}
MB_MARK: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 3.5,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
}


def thread_scaling(frame: pd.DataFrame, title: str, caption: str) -> Figure:
    """Draw images/s over threads, a panel per storage, MB/s on the right, min-max as whiskers.

    Parameters
    ----------
    frame
        What is drawn, one row per cell (`analysis.bars.COLUMNS`); a row without figures shows its status.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    across, down = min(len(storages), IN_A_ROW), math.ceil(len(storages) / IN_A_ROW)
    threads = sorted(set(frame["threads"]))
    several_hosts, several_n = len(set(frame["host"])) > 1, len(set(_shown(frame)["n_valid"])) > 1
    width = max(3.6, 0.9 + across * max(1.55, 0.3 * len(threads)))
    with style.sheet():
        figure = Figure(figsize=(width, 1.25 + 1.75 * down))
        grid = list(figure.subplots(down, across, sharey=True, squeeze=False).flat)
        panels = [(axes, frame[frame["storage"] == each]) for axes, each in zip(grid, storages, strict=False)]
        grid[0].set_ylim(0, _top(frame) * HEADROOM)
        for axes, cells in panels:
            _panel(axes, cells, threads, several_hosts=several_hosts)
            _numbers(axes, cells, threads, several_n=several_n)
        for axes in grid[len(storages) :]:
            axes.remove()
        signs = _outer_axes(panels, frame, threads, across)
        _caption(figure, caption)
        _heading(figure, title, [*signs, *_signs(frame)])
    return figure


def _panel(axes: Axes, cells: pd.DataFrame, threads: Sequence[int], *, several_hosts: bool) -> None:
    """Draw the bars of one storage; a cell without a figure leaves its status in the gap."""
    color = style.look(cells["storage_name"].iloc[0]).color
    for row in rows_of(cells):
        x, height = threads.index(row["threads"]), row["images_per_s"]
        if math.isnan(height):
            axes.text(x, 0.02 * axes.get_ylim()[1], row["status"], rotation=90, ha="center", color="0.4", size=7)
            continue
        hatch = UNSTABLE_HATCH if row["unstable"] is True else None
        axes.bar(x, height, WIDTH, color=color, edgecolor="black", hatch=hatch)
        whisker = [[height - row["images_per_s_min"]], [row["images_per_s_max"] - height]]
        axes.errorbar(x, height, whisker, fmt="none", ecolor="black", elinewidth=0.8, capthick=0.8, capsize=2.5)
        if row["paper_images_per_s"] > 0:
            _paper_mark(axes, x, row["paper_images_per_s"])
    axes.set_xticks(range(len(threads)), [str(each) for each in threads])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.65, len(threads) - 0.35)
    host = f" on {cells['host'].iloc[0]}" if several_hosts and cells["host"].iloc[0] else ""
    axes.set_title(textwrap.fill(cells["storage"].iloc[0] + host, 24))


def _paper_mark(axes: Axes, x: float, height: float) -> None:
    inner, outer = WIDTH / 2 + 0.01, 0.49
    axes.hlines([height, height], [x - outer, x + inner], [x - inner, x + outer], **PAPER_MARK)
    axes.hlines(height, x - inner, x + inner, **PAPER_LINE)


def _numbers(axes: Axes, cells: pd.DataFrame, threads: Sequence[int], *, several_n: bool) -> None:
    """Write each median above its bar, a dagger where unstable, and n where it is not the same for all."""
    line = 0.06 * axes.get_ylim()[1]
    for row in rows_of(_shown(cells)):
        foot = row["images_per_s_max"]
        if foot - line / 3 < row["paper_images_per_s"] < foot + line:
            foot = row["paper_images_per_s"]
        text = f"{significant(row['images_per_s'])}{DAGGER if row['unstable'] is True else ''}"
        text += f"\nn={row['n_valid']}" if several_n else ""
        at = (threads.index(row["threads"]), foot)
        axes.annotate(text, at, (0, 2.5), textcoords="offset points", ha="center", size=6.5, linespacing=0.95)


def _outer_axes(
    panels: Sequence[tuple[Axes, pd.DataFrame]], frame: pd.DataFrame, threads: Sequence[int], across: int
) -> list[Artist]:
    """Label the outer axes and put MB/s on the right; return what the legend must explain of it.

    One scale serves both sides only if every image is as large as the next; else each bar gets a marker, on a
    scale that keeps every marker within its bar.
    """
    sizes = frame["bytes_per_image"]
    factor = float(sizes.median() if same_size(frame) else sizes.max()) / BYTES_PER_MB
    last = len(panels) - 1
    for number, (axes, cells) in enumerate(panels):
        axes.set_xlabel("threads")
        if number % across == 0:
            axes.set_ylabel("images/s")
        right = axes.twinx()
        right.set_ylim(0, axes.get_ylim()[1] * factor)
        right.spines["right"].set_visible(True)
        at_end = number == last or number % across == across - 1
        right.tick_params(axis="y", labelright=at_end, right=at_end)
        right.spines["right"].set_visible(at_end)
        if at_end:
            right.set_ylabel("MB/s" if same_size(frame) else "MB/s (diamonds)")
        if not same_size(frame):
            shown = _shown(cells)
            places = [threads.index(each) for each in shown["threads"]]
            right.plot(places, shown["read_mb_per_s"], **MB_MARK)
    return [] if same_size(frame) else [Line2D([], [], label="median MB/s, right axis", **MB_MARK)]


def _caption(figure: Figure, caption: str) -> None:
    """Put the caption below, wrapped to the width of the figure."""
    bound = re.sub(r" (?=\d)", JOINT, caption)
    wrapped = textwrap.fill(bound, int(figure.get_figwidth() * CAPTION_PER_INCH))
    figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=6.5, color="0.25")


def _signs(frame: pd.DataFrame) -> list[Artist]:
    """Return what the legend must explain: the signs that occur in this figure, and only those."""
    signs: list[Artist] = []
    if (frame["unstable"].fillna(value=False) & frame["images_per_s"].notna()).any():
        label = f"{DAGGER} unstable: min{DASH}max wider than the site allows"
        signs.append(Patch(facecolor="white", edgecolor="black", hatch=UNSTABLE_HATCH, label=label))
    if frame["paper_images_per_s"].notna().any():
        label = f"{paper.SOURCE}: its ratio {TIMES} our 1-thread median"
        signs.append(Line2D([], [], label=label, **PAPER_MARK, dashes=(3, 3.5)))
    return signs


def _heading(figure: Figure, title: str, signs: Sequence[Artist]) -> None:
    """Put the title above, and the legend below it."""
    if not signs:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        return
    # As the title of the legend, because the layout lets a suptitle and an outside legend overlap.
    columns = len(signs) if figure.get_figwidth() > NARROW else 1
    figure.legend(
        handles=signs,
        loc="outside upper left",
        alignment="left",
        borderpad=0.0,
        ncols=columns,
        title=title,
        title_fontsize=9,
    )


def _top(frame: pd.DataFrame) -> float:
    """Return the highest thing that is drawn, in images/s; above 0, so that an axis can be made of it."""
    heights = chain(frame["images_per_s_max"].dropna(), frame["paper_images_per_s"].dropna())
    return max(heights, default=0) or 1.0


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["images_per_s"].notna()]


def significant(value: float) -> str:
    """Return a number with three digits, or all of a longer whole part: 0.512, 48.1, 512, 20481."""
    if not value or value >= 100:  # noqa: PLR2004 - three digits before the point
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
