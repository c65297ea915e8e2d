"""A figure of ours: how long training stands still for a checkpoint, and when that is durable, per target and mode."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.figures.kit import style
from analysis.figures.kit.figure import FigureSpec, checkpoints_told, figures
from analysis.figures.kit.panels import WHISKER, frame_with_words, unstable_sign, wrapped
from analysis.paper import BURST_BUFFER
from analysis.records.frame import rows_of
from analysis.statistics.checkpoints import NO_TARGET, TIMES
from analysis.statistics.selection import HOW, of_done, saving_sets, settled
from analysis.text.plain import DAGGER, significant

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from analysis.records.frame import Row

TITLE = "One checkpoint: training stands still, durable, drained"
PLACE = ["target", "target_name", "mode"]
NUMBERS = [f"{name}{end}" for name in TIMES for end in ("", "_min", "_max")]
COLUMNS = [*PLACE, *NUMBERS, "n_valid", "unstable", "status", "host", "accelerator", "cell"]
# What is drawn of each, from top to bottom: its seconds, its words, how its bar is filled.
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("snapshot_blocked_s", "training stands still", {"color": "0.25"}),
    ("snapshot_durable_fast_s", "until durable (colour of the target)", {}),
    ("snapshot_durable_slow_s", "until drained to the slow storage", {"hatch": "....", "color": "white"}),
)
HEIGHT = 0.26
# Letters of a line beside the bars.
LABEL = 24
# Room at the right for the numbers, as a share of the axis.
RIGHT = 1.16


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per set of settings in which a training was saved, all modes together."""
    sets = saving_sets(table, HOW)
    return figures("checkpoints", TITLE, seconds_per_checkpoint, sets, bars, checkpoints_told, hidden=HOW)


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per target and mode; seconds from the end of the step that is saved."""
    saves = cells[cells["target"] != NO_TARGET]
    return of_done(settled(saves, PLACE, "snapshot_blocked_s").reindex(columns=COLUMNS), NUMBERS)


def seconds_per_checkpoint(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw seconds since the end of the step that is saved, three bars per target and mode, min-max as whiskers."""
    rows = rows_of(frame)
    longest = max(frame[f"{name}_max"].max() for name, *_ in KINDS)
    with style.sheet():
        figure = Figure(figsize=(6.0, 1.35 + 0.55 * len(rows)))
        axes = figure.subplots()
        axes.set_xlim(0, float(longest) * RIGHT)
        for place, row in enumerate(rows):
            _bars(axes, place, row)
        axes.set_yticks(range(len(rows)), [f"{wrapped(row['target'], LABEL)}\n{row['mode']}" for row in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("seconds since the end of the step")
        signs = [
            Patch(facecolor=fill.get("color", "0.7"), edgecolor="black", hatch=fill.get("hatch"), label=kind)
            for _, kind, fill in KINDS
        ]
        frame_with_words(figure, title, words, [*signs, *unstable_sign(frame, "runtime's ", hatch=False)])
    return figure


def _bars(axes: Axes, place: int, row: Row) -> None:
    if row["status"] != "done":
        axes.annotate(row["status"], (0, place), (4, 0), textcoords="offset points", va="center", color="0.4", size=7)
        return
    drains = row["target_name"] == BURST_BUFFER
    kinds = [kind for kind in KINDS if (drains or kind is not KINDS[-1]) and not math.isnan(row[kind[0]])]
    for number, (name, _, fill) in enumerate(kinds):
        middle, y = row[name], place + (number - (len(kinds) - 1) / 2) * HEIGHT
        axes.barh(y, middle, HEIGHT, **{"color": style.look(row["target_name"]).color, "edgecolor": "black"} | fill)
        low, high = row[f"{name}_min"], row[f"{name}_max"]
        if high > low:
            axes.errorbar(middle, y, xerr=[[middle - low], [high - middle]], **WHISKER)
        text = significant(middle) + (DAGGER if row["unstable"] is True else "")
        axes.annotate(text, (high, y), (4, 0), textcoords="offset points", va="center", size=6.5)
