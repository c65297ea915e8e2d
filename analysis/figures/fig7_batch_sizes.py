"""Draw Figure 7 of the paper: the throughput of the mini-application over the batch size, at one number of threads.

Cells with prefetch have filled markers on a solid line. Cells without prefetch have hollow markers on a dashed line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.figures.kit.panels import Panels
from analysis.records.frame import rows_of
from analysis.statistics.selection import (
    BATCH_PLACE,
    batch_sets,
    numbers_of_done_cells,
    sort_as_in_paper,
    with_status_of_drawing,
)

TITLE = "Fig. 7. Mini-application: throughput over batch size"
FIGURE = "images_per_s"
NUMBERS = [FIGURE, f"{FIGURE}_min", f"{FIGURE}_max"]
COLUMNS = [
    "storage", "storage_name", "batch_size", "prefetch", *NUMBERS, "n_valid", "unstable", "status", "host",
    "accelerator", "cell",
]  # fmt: skip
# The curve with prefetch is shifted to the right and the curve without prefetch to the left by this distance, so that
# two equal points are both visible.
ASIDE = 0.09
# The z order of whiskers, which are drawn behind the markers because a short whisker would cover its marker.
WHISKER_BELOW = 1.5
# The font size (points) of the lines about missing cells, and the height of such a line as a fraction of the y axis.
GAP_SIZE, GAP_LINE = 6, 0.065


def chart_specs(cells: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of settings in which several batch sizes were measured."""
    sets = {key: each for key, each in batch_sets(cells).items() if len(set(each["batch_size"])) > 1}
    return figure_specs("fig7", TITLE, draw_throughput, sets, chart_table, caption_of_runs("point"), worth=_several)


def _several(frame: pd.DataFrame) -> bool:
    return frame["batch_size"][frame[FIGURE].notna()].nunique() > 1  # noqa: PD101 - a few rows


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart in the paper's order. A cell that cannot be drawn has a row without numbers."""
    return numbers_of_done_cells(
        sort_as_in_paper(with_status_of_drawing(cells, BATCH_PLACE, FIGURE), ["batch_size"]), NUMBERS
    )[COLUMNS]


@panels.complete_figure
def draw_throughput(frame: pd.DataFrame) -> Panels:
    """Draw images/s over batch sizes as categories, with one panel per storage, and whiskers."""
    sizes = sorted(set(frame["batch_size"]))
    shown = frame[frame["images_per_s"].notna()]
    most_missing = frame[frame["images_per_s"].isna()].groupby("storage").size().max()
    room = panels.HEADROOM + (0 if math.isnan(most_missing) else GAP_LINE * most_missing)
    top = float(panels.upper_ends(shown, FIGURE).max()) * room
    labels = "batch size", "images/s"
    figure, panes = panels.storage_panels(frame, max(1.7, 0.48 * len(sizes)), 1.9, labels=labels, top=top)
    for axes, cells in panes:
        for _, curve in cells.groupby("prefetch"):
            _curve(axes, curve, sizes)
        _numbers(axes, cells, sizes, n=panels.needs_run_counts(shown))
        _gaps(axes, cells[cells["images_per_s"].isna()])
        panels.set_categories(axes, sizes)
    return figure, _signs(frame, shown)


def _look(storage: str, prefetch: int) -> dict[str, Any]:
    """Return the look of a curve.

    The storage determines the colour and the marker. The prefetch determines the fill of the marker and the line.
    """
    look = storage_colours.look_of_storage(storage)
    return {
        "color": look.color if prefetch else "black",
        "linestyle": "solid" if prefetch else "dashed",
        "marker": look.marker,
        "markersize": 5,
        "markerfacecolor": look.color if prefetch else "white",
        "markeredgecolor": "black",
    }


def _curve(axes: Axes, curve: pd.DataFrame, sizes: Sequence[int]) -> None:
    """Draw the curve of one storage and prefetch, with a gap at each missing cell."""
    rows = {row["batch_size"]: row for row in rows_of(curve) if not math.isnan(row[FIGURE])}
    aside = ASIDE if curve["prefetch"].iloc[0] else -ASIDE
    heights = [rows[size][FIGURE] if size in rows else math.nan for size in sizes]
    look = _look(curve["storage_name"].iloc[0], curve["prefetch"].iloc[0])
    axes.plot([place + aside for place in range(len(sizes))], heights, **look)
    panels.draw_whiskers(axes, [sizes.index(size) + aside for size in rows], list(rows.values()), FIGURE, WHISKER_BELOW)


def _numbers(axes: Axes, cells: pd.DataFrame, sizes: Sequence[int], *, n: bool) -> None:
    """Write the medians of each batch size beside the points.

    The highest median is written above its whisker, and each lower median below its whisker.
    """
    rows = rows_of(cells[cells["images_per_s"].notna()].sort_values("images_per_s", ascending=False))
    above: set[int] = set()
    for row in rows:
        place = sizes.index(row["batch_size"])
        text = panels.median_text(row, "images_per_s", n=n)
        if row["batch_size"] in above:
            panels.write_number(axes, (place, panels.whisker_ends(row, FIGURE)[0]), text, xytext=(0, -4), va="top")
        else:
            panels.write_number(axes, (place, panels.whisker_ends(row, FIGURE)[1]), text, xytext=(0, 4))
        above.add(row["batch_size"])


def _gaps(axes: Axes, missing: pd.DataFrame) -> None:
    """Write the missing cells with their status at the top left, because curves that rise do not cover this corner."""
    saved_how = [f"batch {row['batch_size']}, prefetch {row['prefetch']}: {row['status']}" for row in rows_of(missing)]
    axes.text(0.03, 0.985, "\n".join(saved_how), transform=axes.transAxes, va="top", color="0.4", size=GAP_SIZE)


def _signs(frame: pd.DataFrame, shown: pd.DataFrame) -> Sequence[Artist]:
    names = dict.fromkeys(frame["storage_name"])
    signs: list[Artist] = []
    for ahead in sorted(set(shown["prefetch"]), reverse=True):
        look = _look(next(iter(names)), ahead)
        if len(names) > 1:
            look |= {
                "marker": "o",
                "color": "0.4" if ahead else "black",
                "markerfacecolor": "0.4" if ahead else "white",
            }
        signs.append(Line2D([], [], label=f"prefetch {ahead}", **look))
    return signs
