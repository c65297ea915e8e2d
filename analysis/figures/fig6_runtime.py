"""Figure 6: runtime over threads; the bar is the runtime with prefetch, the white part on top what is added without.

As in the paper, but that the storage has its colour instead of light and dark gray.
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
from analysis.figures.kit.figure_spec import FigureSpec, figures, runs_told
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, rows_of
from analysis.records.settings import Settings, family_key
from analysis.statistics.selection import by_prefetch, completed, families, of_done, settled
from analysis.text.plain import DAGGER, MINUS, significant

TITLE = "Fig. 6. Mini-application: runtime, and the excess without prefetch"
PLACE = ["storage", "storage_name", "threads"]
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
COLUMNS = [
    "storage", "storage_name", "threads", "prefetch", *RUNTIME, "excess_s", "n_valid", "unstable",
    "status", "host", "accelerator", "cell",
]  # fmt: skip
WIDTH = 0.78
LESS: dict[str, Any] = {"color": "black", "linestyle": "dashed"}
# The whiskers of the two runtimes stand side by side, for where there is no excess they end alike.
ASIDE = 0.17
# A line of text, as a share of the axis; there are two above a bar, and n where it differs.
LINE = 0.075
NEW_LINE = "\n"


def specs(cells: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per set of settings in which a runtime with prefetch was measured, and asked for without."""
    sets = dict(worthy(by_prefetch(families(cells, {"prefetch"}))))
    return figures("fig6", TITLE, runtime_over_threads, sets, bars, runs_told())


def worthy(sets: Mapping[Settings, pd.DataFrame]) -> list[tuple[Settings, pd.DataFrame]]:
    """Return of sets that differ in the batch size alone those of several thread counts; without them, a lone one.

    The cells of Fig. 7 are a set of one thread count for each batch size, which Fig. 7 shows together.
    """
    alike: dict[Settings, list[tuple[Settings, pd.DataFrame]]] = {}
    for key, cells in sets.items():
        alike.setdefault(family_key(key, frozenset({"batch_size"})), []).append((key, cells))
    chosen = []
    for each in alike.values():
        several = [(key, cells) for key, cells in each if len(set(cells["threads"])) > 1]
        chosen += several or each * (len(each) == 1)
    return chosen


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn: at each place the runtime with prefetch, then without, whose excess stands on top.

    Seconds; a cell without a bar keeps its row, without numbers. Where there is no runtime with prefetch of the same
    host, there is nothing for an excess to stand on.
    """
    frame = completed(settled(cells, [*PLACE, "prefetch"], "wall_s"), ["threads"])
    frame = of_done(frame.rename(columns={old: new for new, old in RUNTIME.items()}), RUNTIME)
    partner = [*PLACE, "host"]
    base = frame[frame["prefetch"] > 0].set_index(partner)["runtime_s"].dropna()
    below = frame[partner].join(base.rename("below"), on=partner)["below"]
    frame["excess_s"] = (frame["runtime_s"] - below).where(frame["prefetch"] == 0)
    alone = (frame["prefetch"] == 0) & below.isna() & (frame["status"] == "done")
    frame["status"] = frame["status"].mask(alone, "without partner")
    return of_done(frame, RUNTIME)[COLUMNS]


@panels.framed
def runtime_over_threads(frame: pd.DataFrame) -> Panels:
    """Draw seconds over threads, a panel per storage, min-max as whiskers.

    Two rows per bar, with prefetch and without.
    """
    threads = sorted(set(frame["threads"]))
    shown = frame[frame["runtime_s"].notna()]
    top = float(shown["runtime_s_max"].max()) * (panels.HEADROOM + LINE)
    wide, labels = max(1.55, 0.42 * len(threads)), ("threads", "runtime (s)")
    figure, panes = panels.per_storage(frame, wide, labels=labels, top=top)
    for axes, cells in panes:
        for _, pair in cells.groupby("threads"):
            ahead = rows_of(pair[pair["prefetch"] > 0])
            without = rows_of(pair[pair["prefetch"] == 0])
            _bar(axes, threads.index(pair["threads"].iloc[0]), ahead[0], without[0], n=panels.several_n(shown))
        panels.categories(axes, threads)
    return figure, _signs(frame)


def _bar(axes: Axes, x: int, ahead: Row, without: Row, *, n: bool) -> None:
    """Draw the runtime with prefetch, what is added without, and the status of the one that is missing."""
    height, excess = ahead["runtime_s"], without["excess_s"]
    if math.isnan(height):
        panels.gap(axes, x, f"prefetch {ahead['prefetch']}: {ahead['status']}")
        return
    panels.bar(axes, x, height, ahead, width=WIDTH, color=storage_colours.look(ahead["storage_name"]).color)
    panels.whiskers(axes, [x if math.isnan(excess) else x - ASIDE], [ahead], "runtime_s")
    text = panels.median_text(ahead, "runtime_s", n=n)
    top = ahead["runtime_s_max"]
    if math.isnan(excess):
        text = f"+ {without['status'].replace(' ', NEW_LINE)}{NEW_LINE}{text}"
    else:
        if excess > 0:
            panels.bar(axes, x, excess, without, width=WIDTH, bottom=height, color="white")
        else:
            # Less than nothing cannot stand on top: a line inside the bar.
            axes.hlines(height + excess, x - WIDTH / 2, x + WIDTH / 2, **LESS)
        panels.whiskers(axes, [x + ASIDE], [without], "runtime_s")
        sign = "+" if excess > 0 else MINUS if excess else "\N{PLUS-MINUS SIGN}"
        mark = DAGGER if without["unstable"] is True else ""
        text = f"{sign}{_added(abs(excess), height)}{mark}\n{text}"
        top = max(top, without["runtime_s_max"])
    panels.number(axes, (x, top), text)


def _added(excess: float, runtime: float) -> str:
    """Return an excess with as many decimals as the runtime that it is added to, at least one."""
    own, theirs = (len(significant(each).partition(".")[2]) for each in (excess, runtime))
    return f"{excess:.{min(own, max(1, theirs))}f}"


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    ahead = frame["prefetch"].max()
    shown = frame[frame["runtime_s"].notna()]
    names = dict.fromkeys(shown["storage_name"])
    color = storage_colours.look(next(iter(names))).color if len(names) == 1 else "0.6"
    signs: list[Artist] = [Patch(facecolor=color, edgecolor="black", label=f"prefetch {ahead}")]
    if (frame["excess_s"] > 0).any():
        signs.append(Patch(facecolor="white", edgecolor="black", label="+ excess without prefetch"))
    if (frame["excess_s"] <= 0).any():
        signs.append(Line2D([], [], label="without prefetch, where not longer", **LESS))
    return [*signs, *panels.unstable_sign(shown)]
