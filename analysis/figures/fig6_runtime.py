"""Draw Figure 6 of the paper: the runtime with prefetch over threads, and the excess without prefetch.

The bar is the runtime with prefetch, and the white part on top of the bar is the excess without prefetch. The figure is
drawn as in the paper, but with the colour of the storage instead of light and dark gray.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, rows_of
from analysis.records.settings import Settings, reduced_set_key
from analysis.statistics.selection import (
    add_missing_partners,
    numbers_of_done_cells,
    sets_by_prefetch,
    sets_of_settings,
    with_status_of_drawing,
)
from analysis.text import MINUS, three_digits

TITLE = "Fig. 6. Mini-application: runtime, and the excess without prefetch"
PLACE = ["storage", "storage_name", "threads"]
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
COLUMNS = [
    "storage", "storage_name", "threads", "prefetch", *RUNTIME, "excess_s", "n_valid", "unstable",
    "status", "host", "accelerator", "cell",
]  # fmt: skip
WIDTH = 0.78
LESS: dict[str, Any] = {"color": "black", "linestyle": "dashed"}
# The whiskers of the two runtimes are shifted by this distance, because they would overlap if the excess is small.
ASIDE = 0.17
# The height of a line of text as a fraction of the y axis. Two lines are written above a bar, and one or two more lines
# if cells have different numbers of runs.
LINE = 0.075
NEW_LINE = "\n"


def chart_specs(cells: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of settings that has both cells with prefetch and cells without prefetch."""
    sets = dict(sets_worth_a_chart(sets_by_prefetch(sets_of_settings(cells, {"prefetch"}))))
    return figure_specs("fig6", TITLE, draw_runtime, sets, chart_table, caption_of_runs())


def sets_worth_a_chart(sets: Mapping[Settings, pd.DataFrame]) -> list[tuple[Settings, pd.DataFrame]]:
    """Return the sets that are worth a chart, which are the sets with several thread counts.

    A set with a single thread count is returned only if no other set differs from it only in the batch size. Sets that
    differ only in the batch size are shown together in Fig. 7.
    """
    alike: dict[Settings, list[tuple[Settings, pd.DataFrame]]] = {}
    for key, cells in sets.items():
        alike.setdefault(reduced_set_key(key, frozenset({"batch_size"})), []).append((key, cells))
    chosen = []
    for each in alike.values():
        several = [(key, cells) for key, cells in each if len(set(cells["threads"])) > 1]
        chosen += several or each * (len(each) == 1)
    return chosen


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart in seconds.

    For each storage and thread count, the table has a row with prefetch, and then a row without prefetch. A cell that
    cannot be drawn has a row without numbers. `excess_s` is the runtime without prefetch minus the runtime with
    prefetch on the same host. If there is no such runtime, the status of the row is `without partner`.
    """
    frame = add_missing_partners(with_status_of_drawing(cells, [*PLACE, "prefetch"], "wall_s"), ["threads"])
    frame = numbers_of_done_cells(frame.rename(columns={old: new for new, old in RUNTIME.items()}), RUNTIME)
    partner = [*PLACE, "host"]
    base = frame[frame["prefetch"] > 0].set_index(partner)["runtime_s"].dropna()
    below = frame[partner].join(base.rename("below"), on=partner)["below"]
    frame["excess_s"] = (frame["runtime_s"] - below).where(frame["prefetch"] == 0)
    alone = (frame["prefetch"] == 0) & below.isna() & (frame["status"] == "done")
    frame["status"] = frame["status"].mask(alone, "without partner")
    return numbers_of_done_cells(frame, RUNTIME)[COLUMNS]


@panels.complete_figure
def draw_runtime(frame: pd.DataFrame) -> Panels:
    """Draw the runtime in seconds over threads, with one panel per storage, and whiskers.

    Each bar shows two rows of `frame`: the row with prefetch and the row without prefetch.
    """
    threads = sorted(set(frame["threads"]))
    shown = frame[frame["runtime_s"].notna()]
    n = panels.needs_run_counts(shown)
    top = float(panels.upper_ends(shown, "runtime_s").max()) * (panels.HEADROOM + LINE * (3 if n else 1))
    wide, labels = max(1.55, 0.42 * len(threads)), ("threads", "runtime (s)")
    figure, panes = panels.storage_panels(frame, wide, labels=labels, top=top)
    for axes, cells in panes:
        for _, pair in cells.groupby("threads"):
            ahead = rows_of(pair[pair["prefetch"] > 0])
            without = rows_of(pair[pair["prefetch"] == 0])
            _bar(axes, threads.index(pair["threads"].iloc[0]), ahead[0], without[0], n=n)
        panels.set_categories(axes, threads)
    return figure, _signs(frame)


def _bar(axes: Axes, x: int, ahead: Row, without: Row, *, n: bool) -> None:
    """Draw the runtime with prefetch and the excess without prefetch, or write the status if a runtime is missing."""
    height, excess = ahead["runtime_s"], without["excess_s"]
    if math.isnan(height):
        panels.write_missing_status(axes, x, f"prefetch {ahead['prefetch']}: {ahead['status']}")
        return
    axes.bar(
        x, height, width=WIDTH, color=storage_colours.look_of_storage(ahead["storage_name"]).color, edgecolor="black"
    )
    panels.draw_whiskers(axes, [x if math.isnan(excess) else x - ASIDE], [ahead], "runtime_s")
    text = panels.median_text(ahead, "runtime_s", n=n)
    top = panels.whisker_ends(ahead, "runtime_s")[1]
    if math.isnan(excess):
        text = f"+ {without['status'].replace(' ', NEW_LINE)}{NEW_LINE}{text}"
    else:
        if excess > 0:
            axes.bar(x, excess, width=WIDTH, bottom=height, color="white", edgecolor="black")
        else:
            # An excess of 0 or less cannot be stacked on the bar, so it is drawn as a line inside the bar.
            axes.hlines(height + excess, x - WIDTH / 2, x + WIDTH / 2, **LESS)
        panels.draw_whiskers(axes, [x + ASIDE], [without], "runtime_s")
        sign = "+" if excess > 0 else MINUS if excess else "\N{PLUS-MINUS SIGN}"
        runs = f"\n{panels.runs_text(without)}" if n else ""
        text = f"{sign}{_added(abs(excess), height)}{panels.dagger_if_unstable(without)}{runs}\n{text}"
        top = max(top, panels.whisker_ends(without, "runtime_s")[1])
    panels.write_number(axes, (x, top), text)


def _added(excess: float, runtime: float) -> str:
    """Return an excess as text.

    The text has at most as many decimals as the text of the runtime, but one decimal is always allowed.
    """
    own, theirs = (len(three_digits(each).partition(".")[2]) for each in (excess, runtime))
    return f"{excess:.{min(own, max(1, theirs))}f}"


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    ahead = frame["prefetch"].max()
    shown = frame[frame["runtime_s"].notna()]
    names = dict.fromkeys(shown["storage_name"])
    color = storage_colours.look_of_storage(next(iter(names))).color if len(names) == 1 else "0.6"
    signs: list[Artist] = [Patch(facecolor=color, edgecolor="black", label=f"prefetch {ahead}")]
    if (frame["excess_s"] > 0).any():
        signs.append(Patch(facecolor="white", edgecolor="black", label="+ excess without prefetch"))
    if (frame["excess_s"] <= 0).any():
        signs.append(Line2D([], [], label="without prefetch, where not longer", **LESS))
    return signs
