"""Draw Figures 4 and 5 of the paper: the throughput of the micro-benchmark over threads, with the published ratios.

As in the paper, there is one panel per storage in the paper's order, and a panel has the threads 1, 2, 4 and 8 as
categories. All panels have the same scale, unless the bars of the slowest storage would be too small to see. In
contrast to the paper, each storage has its own colour. The paper uses white for the machine Blackdog and gray for
Tegner.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis import paper
from analysis.claims import chien2018
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, figure_specs, sentences_on_statistic
from analysis.figures.kit.panels import Panels
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import Settings
from analysis.statistics.baselines import sentence_on_baseline
from analysis.statistics.selection import sort_as_in_paper, with_status_of_drawing
from analysis.text import TIMES

COLUMNS = [
    "storage", "storage_name", "threads", "images_per_s", "images_per_s_min", "images_per_s_max",
    "read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max", "percent_of_baseline", "n_valid", "unstable", "scaling",
    "paper_ratio", "paper_images_per_s", "bytes_per_image", "status", "host", "cell",
]  # fmt: skip
PLACE = ["storage", "threads"]

# For each figure, the value of `benchmark.preprocess` and the title (Sections III.A and IV.A of the paper).
FIGURES = {
    "fig4": (True, "Fig. 4. Micro-benchmark: read, decode and resize"),
    "fig5": (False, "Fig. 5. Micro-benchmark: read only"),
}
WIDTH = 0.72
# Bars whose bytes per image differ by at most this fraction count as equal, because the difference is less than the
# height of a tick label.
SAME_SIZE = 0.01
# The additional width of a panel, in inches, for tick labels if each panel has its own scales.
SCALE_WIDTH = 0.55
# A published value that is more than this many times higher than the highest measured bar is not drawn, because all
# bars would be too small.
MOST_OF_OURS = 2.0
# The height of an arrow with the number of such a published value, as a fraction of the highest bar.
ROOM_OF_ARROW = 0.16
# If all bars of one panel are below this fraction of the highest bar of the figure, each panel gets its own scale.
LEAST_OF_OURS = 0.2
BYTES_PER_MB = 10**6
MB_MARK: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 3.5,
    "markerfacecolor": "white",
    "markeredgecolor": "black",
}


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return the specs of Figures 4 and 5, one spec per figure and set of settings that has a done cell."""
    if "benchmark.preprocess" not in table or "threads" not in table:
        return []
    counts = table["threads"].map(lambda threads: isinstance(threads, int))
    micro = table[(table["benchmark"] == paper.MICRO) & counts]
    charts = []
    for stem, (preprocess, title) in FIGURES.items():
        mine = micro[micro["benchmark.preprocess"] == preprocess]
        charts += figure_specs(stem, title, draw_thread_scaling, group_rows(mine, mine["set_key"]), chart_table, _what)
    return charts


def _what(_: Settings, shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    scales = "" if fits_one_scale(frame) else "Each panel has its own scale."
    return " ".join(filter(None, (sentences_on_statistic(shown), scales, sentence_on_baseline(shown))))


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart in the paper's order. A cell that cannot be drawn has a row without numbers."""
    frame = with_status_of_drawing(cells.assign(threads=cells["threads"].astype("int64")), PLACE, "images_per_s")
    pairs = zip(frame["storage_name"], frame["threads"], strict=True)
    ratios = [chien2018.published_number(chien2018.THREAD_SCALING, name, threads) for name, threads in pairs]
    frame["paper_ratio"] = pd.Series(ratios, index=frame.index, dtype="float64").where(frame["scaling"].notna())
    frame["paper_images_per_s"] = frame["paper_ratio"] * frame["images_per_s"] / frame["scaling"]
    numbers = [name for name in COLUMNS if name.startswith(("images", "read", "scaling", "paper", "bytes"))]
    frame = frame.assign(percent_of_baseline=frame.get("percent_of_baseline"))
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    return sort_as_in_paper(frame, ["threads"])[COLUMNS]


@panels.complete_figure
def draw_thread_scaling(frame: pd.DataFrame) -> Panels:
    """Draw images/s over threads, with one panel per storage, whiskers, and a second y axis for MB/s at the right."""
    threads = sorted(set(frame["threads"]))
    wide, shared = max(1.55, 0.3 * len(threads)), fits_one_scale(frame)
    wide += 0 if shared else SCALE_WIDTH
    figure, panes = panels.storage_panels(frame, wide, labels=("threads", "images/s"), one_scale=shared)
    for axes, cells in panes:
        axes.set_ylim(0, _top(frame if shared else cells))
        places, n = [threads.index(each) for each in cells["threads"]], panels.needs_run_counts(_shown(frame))
        panels.draw_bars(axes, places, rows_of(cells), "images_per_s", WIDTH, published="paper_images_per_s", n=n)
        panels.set_categories(axes, threads)
    signs = _right_axes(panes, frame, threads, shared=shared)
    if frame["paper_images_per_s"].notna().any():
        signs.append(panels.published_sign(f"{chien2018.SOURCE}: its ratio {TIMES} our 1-thread median"))
    return figure, signs


def _right_axes(
    panes: Sequence[tuple[Axes, pd.DataFrame]], frame: pd.DataFrame, threads: Sequence[int], *, shared: bool
) -> list[Artist]:
    """Add a second y axis for MB/s at the right; return the entries of the legend for this axis.

    If all images have the same size, the bars show images/s and MB/s at once. Otherwise each bar gets a marker for
    MB/s, and the scale of the right axis is chosen so that the marker is inside the bar.
    """
    sizes = frame["bytes_per_image"]
    factor = float(sizes.median() if has_one_image_size(frame) else sizes.max()) / BYTES_PER_MB
    for place, (axes, cells) in enumerate(panes, 1):
        at_end = place == len(panes) or place % panels.IN_A_ROW == 0
        if has_one_image_size(frame) and shared and not at_end:
            continue
        right, scaled = axes.twinx(), at_end or not shared
        right.set_ylim(0, axes.get_ylim()[1] * factor)
        right.tick_params(axis="y", labelright=scaled, right=scaled)
        right.spines["right"].set_visible(scaled)
        if at_end:
            right.set_ylabel("MB/s" if has_one_image_size(frame) else "MB/s (diamonds)")
        if not has_one_image_size(frame):
            shown = _shown(cells)
            spots = [threads.index(each) for each in shown["threads"]]
            right.plot(spots, shown["read_mb_per_s"], **MB_MARK)
    return [] if has_one_image_size(frame) else [Line2D([], [], label="median MB/s, right axis", **MB_MARK)]


def fits_one_scale(frame: pd.DataFrame) -> bool:
    """Return whether all panels can have the same scale.

    This is the case if each panel has a bar with at least the fraction `LEAST_OF_OURS` of the highest bar.
    """
    highest = frame.groupby("storage")["images_per_s"].max().dropna()
    return bool(highest.empty or highest.min() >= LEAST_OF_OURS * highest.max())


def has_one_image_size(frame: pd.DataFrame) -> bool:
    """Return whether all bars have the same bytes per image (within `SAME_SIZE`).

    In this case one axis for MB/s is correct for all bars.
    """
    size = frame["bytes_per_image"].dropna()
    return bool(len(size) and size.max() - size.min() <= SAME_SIZE * size.median())


def _top(frame: pd.DataFrame) -> float:
    """Return the upper end of the y axis (images/s), so that the numbers above the highest bar fit.

    The end is always greater than 0. A published value that would make all bars too small is ignored here, and
    `panels.draw_bars` writes this value as a number instead of a mark.
    """
    ours, marks = panels.upper_ends(frame, "images_per_s").dropna(), frame["paper_images_per_s"].dropna()
    drawn = marks[marks <= MOST_OF_OURS * ours.max()]
    room = panels.HEADROOM + (ROOM_OF_ARROW if len(drawn) < len(marks) else 0)
    return (max(chain(ours, drawn), default=0) or 1.0) * room


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["images_per_s"].notna()]
