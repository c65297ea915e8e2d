"""Figures 4 and 5: the throughput of the micro-benchmark over threads, and the published ratios beside it.

The paper has two fills, white for Blackdog and gray for Tegner, so there it is the place that names the
device. So here: a panel per storage in the paper's order, inside it the threads 1, 2, 4, 8 as categories, and
one scale for all panels, as long as that of the fastest shows the slowest's steps, too; our colour names the storage
a second time, Lustre stays gray.
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
from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, figures, statistic
from analysis.figures.kit.panels import Panels
from analysis.records.frame import grouped, rows_of
from analysis.records.settings import Settings
from analysis.statistics.baselines import of_baseline
from analysis.statistics.selection import in_order, settled
from analysis.text.plain import TIMES, UP, significant

COLUMNS = [
    "storage", "storage_name", "threads", "images_per_s", "images_per_s_min", "images_per_s_max",
    "read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max", "percent_of_baseline", "n_valid", "unstable", "scaling",
    "paper_ratio", "paper_images_per_s", "bytes_per_image", "status", "host", "cell",
]  # fmt: skip
PLACE = ["storage", "threads"]

# {figure: (value of benchmark.preprocess, title)}; paper, Sections III.A and IV.A.
FIGURES = {
    "fig4": (True, "Fig. 4. Micro-benchmark: read, decode and resize"),
    "fig5": (False, "Fig. 5. Micro-benchmark: read only"),
}
WIDTH = 0.72
# Share by which bars may differ in bytes per image: less than the height of a tick label on the axis.
SAME_SIZE = 0.01
# Inches that the numbers of a panel's own scales take.
SCALE_WIDTH = 0.55
# A published mark above so many times our highest bar would leave no room for the bars.
MOST_OF_OURS = 2.0
# Where all bars of a panel stay below this share of the highest, each panel has a scale of its own.
LEAST_OF_OURS = 0.2
BYTES_PER_MB = 10**6
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


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one spec per figure and per set of settings that must not be mixed, as far as any cell is done."""
    if "benchmark.preprocess" not in table or "threads" not in table:
        return []
    counts = table["threads"].map(lambda threads: isinstance(threads, int))
    micro = table[(table["benchmark"] == paper.MICRO) & counts]
    made = []
    for stem, (preprocess, title) in FIGURES.items():
        mine = micro[micro["benchmark.preprocess"] == preprocess]
        made += figures(stem, title, thread_scaling, grouped(mine, mine["set_key"]), bars, _what)
    return made


def _what(_: Settings, shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    scales = "" if one_scale(frame) else "Each panel has its own scale."
    return " ".join(filter(None, (statistic(shown), scales, of_baseline(shown))))


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, in the paper's order; a cell without a bar keeps its row, without numbers."""
    frame = settled(cells.assign(threads=cells["threads"].astype("int64")), PLACE, "images_per_s")
    pairs = zip(frame["storage_name"], frame["threads"], strict=True)
    ratios = [paper.ratio(name, threads) for name, threads in pairs]
    frame["paper_ratio"] = pd.Series(ratios, index=frame.index, dtype="float64").where(frame["scaling"].notna())
    frame["paper_images_per_s"] = frame["paper_ratio"] * frame["images_per_s"] / frame["scaling"]
    numbers = [name for name in COLUMNS if name.startswith(("images", "read", "scaling", "paper", "bytes"))]
    frame = frame.assign(percent_of_baseline=frame.get("percent_of_baseline"))
    frame[numbers] = frame[numbers].where(frame["status"] == "done")
    return in_order(frame, ["threads"])[COLUMNS]


@panels.framed
def thread_scaling(frame: pd.DataFrame) -> Panels:
    """Draw images/s over threads, a panel per storage, MB/s on the right, min-max as whiskers."""
    threads = sorted(set(frame["threads"]))
    wide, shared = max(1.55, 0.3 * len(threads)), one_scale(frame)
    wide += 0 if shared else SCALE_WIDTH
    figure, panes = panels.per_storage(frame, wide, labels=("threads", "images/s"), one_scale=shared)
    for axes, cells in panes:
        axes.set_ylim(0, _top(frame if shared else cells) * panels.HEADROOM)
        _panel(axes, cells, threads)
        _numbers(axes, cells, threads, n=panels.several_n(_shown(frame)))
    return figure, [*_right_axes(panes, frame, threads, shared=shared), *_signs(frame)]


def _panel(axes: Axes, cells: pd.DataFrame, threads: Sequence[int]) -> None:
    """Draw the bars of one storage; a cell without a figure leaves its status in the gap."""
    color = storage_colours.look(cells["storage_name"].iloc[0]).color
    shown = rows_of(_shown(cells))
    places = [threads.index(row["threads"]) for row in shown]
    hatches = [panels.UNSTABLE_HATCH if row["unstable"] is True else None for row in shown]
    heights = [row["images_per_s"] for row in shown]
    axes.bar(places, heights, WIDTH, color=color, edgecolor="black", hatch=hatches)
    panels.whiskers(axes, places, shown, "images_per_s")
    for x, row in zip(places, shown, strict=True):
        if row["paper_images_per_s"] > 0:
            _paper_mark(axes, x, row["paper_images_per_s"])
    for row in rows_of(cells[cells["images_per_s"].isna()]):
        panels.gap(axes, threads.index(row["threads"]), row["status"])
    panels.categories(axes, threads)


def _paper_mark(axes: Axes, x: float, height: float) -> None:
    top = axes.get_ylim()[1]
    if height > top:
        panels.number(axes, (x, top), f"{UP}\n{significant(height)}", xytext=(0, -1), va="top")
        return
    inner, outer = WIDTH / 2 + 0.01, 0.49
    axes.hlines([height, height], [x - outer, x + inner], [x - inner, x + outer], **PAPER_MARK)
    axes.hlines(height, x - inner, x + inner, **PAPER_LINE)


def _numbers(axes: Axes, cells: pd.DataFrame, threads: Sequence[int], *, n: bool) -> None:
    """Write each median above its bar, a dagger where unstable, and n where it is not the same for all."""
    for row in rows_of(_shown(cells)):
        foot = panels.clear_of(axes, row["images_per_s_max"], row["paper_images_per_s"], n=n)
        panels.number(axes, (threads.index(row["threads"]), foot), panels.median_text(row, "images_per_s", n=n))


def _right_axes(
    panes: Sequence[tuple[Axes, pd.DataFrame]], frame: pd.DataFrame, threads: Sequence[int], *, shared: bool
) -> list[Artist]:
    """Put MB/s on the right; return what the legend must explain of it.

    One scale serves both sides only if every image is as large as the next; else each bar gets a marker, on a
    scale that keeps every marker within its bar.
    """
    sizes = frame["bytes_per_image"]
    factor = float(sizes.median() if same_size(frame) else sizes.max()) / BYTES_PER_MB
    for place, (axes, cells) in enumerate(panes, 1):
        at_end = place == len(panes) or place % panels.IN_A_ROW == 0
        if same_size(frame) and shared and not at_end:
            continue
        right, scaled = axes.twinx(), at_end or not shared
        right.set_ylim(0, axes.get_ylim()[1] * factor)
        right.tick_params(axis="y", labelright=scaled, right=scaled)
        right.spines["right"].set_visible(scaled)
        if at_end:
            right.set_ylabel("MB/s" if same_size(frame) else "MB/s (diamonds)")
        if not same_size(frame):
            shown = _shown(cells)
            spots = [threads.index(each) for each in shown["threads"]]
            right.plot(spots, shown["read_mb_per_s"], **MB_MARK)
    return [] if same_size(frame) else [Line2D([], [], label="median MB/s, right axis", **MB_MARK)]


def _signs(frame: pd.DataFrame) -> list[Artist]:
    """Return what the legend must explain: the signs that occur in this figure, and only those."""
    signs = panels.unstable_sign(_shown(frame))
    if frame["paper_images_per_s"].notna().any():
        label = f"{paper.SOURCE}: its ratio {TIMES} our 1-thread median"
        signs.append(Line2D([], [], label=label, **PAPER_MARK, dashes=(3, 3.5)))
    return signs


def one_scale(frame: pd.DataFrame) -> bool:
    """Say whether one scale serves all panels: the highest bar of each is in sight beside the highest of all."""
    highest = frame.groupby("storage")["images_per_s"].max().dropna()
    return bool(highest.empty or highest.min() >= LEAST_OF_OURS * highest.max())


def same_size(frame: pd.DataFrame) -> bool:
    """Say whether all bars agree in bytes per image, so that one right axis is true for each of them."""
    size = frame["bytes_per_image"].dropna()
    return bool(len(size) and size.max() - size.min() <= SAME_SIZE * size.median())


def _top(frame: pd.DataFrame) -> float:
    """Return the highest thing that is drawn, in images/s; above 0, so that an axis can be made of it.

    A published mark that would make all bars small is told in figures (`_paper_mark`).
    """
    ours, marks = frame["images_per_s_max"].dropna(), frame["paper_images_per_s"].dropna()
    heights = chain(ours, marks[marks <= MOST_OF_OURS * ours.max()])
    return max(heights, default=0) or 1.0


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["images_per_s"].notna()]
