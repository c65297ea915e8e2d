"""Draw Figure 9 of the paper: the runtime for each checkpoint target, and below it the time of one checkpoint.

The gray part of a bar is the runtime without checkpoints. A second figure, which the paper does not have, shows for
each target and mode how long the training stops, and after what time a snapshot is durable and drained.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_checkpoints, figure_specs
from analysis.figures.kit.panels import Panels
from analysis.paper import BURST_BUFFER
from analysis.records.frame import Row, rows_of
from analysis.statistics.selection import HOW, MODE, numbers_of_done_cells, saving_sets, with_status_of_drawing
from analysis.statistics.training import NO_TARGET, SNAPSHOT_TIMES

PLACE = ["target", "target_name", "mode"]
OF_CELL = ["n_valid", "unstable", "status", "host", "accelerator", "cell"]
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
CHECKPOINT = {f"checkpoint_s{end}": f"snapshot_blocked_s{end}" for end in ("", "_min", "_max")}
NUMBERS = [f"{name}{end}" for name in SNAPSHOT_TIMES for end in ("", "_min", "_max")]
WIDTH = 0.7
GRAY = "#C4C4C4"
LONGER: dict[str, Any] = {"color": "black", "linestyle": "dashed"}
# The bars of a target from top to bottom. Each bar has the column with its seconds, a label, and a fill.
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("snapshot_blocked_s", "training stands still", {"color": "0.25"}),
    ("snapshot_durable_fast_s", "until durable (colour of the target)", {}),
    ("snapshot_durable_slow_s", "until drained to the slow storage", {"hatch": "....", "color": "white"}),
)
HEIGHT = 0.26
# The maximum number of characters in a line of a label beside the bars.
LABEL = 28
# The end of the x axis divided by the longest time, so that the numbers at the right of the bars fit.
RIGHT = 1.16


def runtime_figures(cells: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure of runtimes (Fig. 9) per set of settings in which a training saved checkpoints."""
    title, hidden = "Fig. 9. Mini-application: runtime with checkpoints, and one checkpoint", (*HOW, *MODE)
    sets = saving_sets(cells, hidden)
    return figure_specs("fig9", title, draw_runtimes, sets, runtime_table, caption_of_checkpoints, hidden=hidden)


def runtime_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart in seconds, which has one row per checkpoint target.

    The training without checkpoints is the first row. `without_s` is the runtime without checkpoints on the same host.
    `checkpoint_s` is the time for which the training stopped for one checkpoint.
    """
    frame = with_status_of_drawing(cells, PLACE, "wall_s").rename(
        columns={old: new for new, old in (RUNTIME | CHECKPOINT).items()}
    )
    columns = [*PLACE, *RUNTIME, "without_s", *CHECKPOINT, *OF_CELL]
    frame = numbers_of_done_cells(frame.reindex(columns=columns), [*RUNTIME, *CHECKPOINT])
    without = frame[frame["target"] == NO_TARGET]
    base = without.set_index("host")["runtime_s"].to_dict() if len(without) == 1 else {}
    return frame.assign(without_s=frame["host"].map(base).astype("float64"))


@panels.complete_figure
def draw_runtimes(frame: pd.DataFrame) -> Panels:
    """Draw the seconds for each checkpoint target with whiskers: the whole run above, and one checkpoint below.

    The training without checkpoints has no bar of its own. Its runtime is the gray part of all bars.
    """
    targets = frame[frame["target"] != NO_TARGET]
    shown = frame[frame["runtime_s"].notna()]
    figure = Figure(figsize=(max(4.2, 1.2 + 0.9 * len(targets)), 4.1))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    for axes, name, label in ((above, "runtime_s", "runtime (s)"), (below, "checkpoint_s", "one checkpoint (s)")):
        axes.set_ylim(0, panels.axis_top(frame, f"{name}_max", headroom=panels.HEADROOM + 0.05))
        rows = rows_of(with_status_of_drawing(targets, ["target", "mode"], name))
        is_runtime = name == "runtime_s"
        fill, crossed = (_fill, "without_s") if is_runtime else (_colour, "")
        n = is_runtime and panels.needs_run_counts(shown)
        panels.draw_bars(axes, range(len(rows)), rows, name, WIDTH, fill=fill, crossed=crossed, n=n)
        axes.set_ylabel(label)
        axes.tick_params(axis="x", length=0)
    for x, (height, without) in enumerate(zip(targets["runtime_s"], targets["without_s"], strict=True)):
        if without <= height:
            above.bar(x, without, WIDTH, color=GRAY, edgecolor="black")
        elif without > height:
            above.hlines(without, x - WIDTH / 2, x + WIDTH / 2, **LONGER)
    below.set_xticks(range(len(targets)), [panels.wrap_name(name) for name in targets["target"]])
    below.set_xlim(-0.65, len(targets) - 0.35)
    signs: list[Artist] = []
    if frame["without_s"].notna().any():
        signs.append(Patch(facecolor=GRAY, edgecolor="black", label="without checkpoints"))
    if (shown["without_s"] > shown["runtime_s"]).any():
        signs.append(Line2D([], [], label="without checkpoints, where longer", **LONGER))
    return figure, signs


def _colour(row: Row) -> str:
    return storage_colours.look_of_storage(row["target_name"]).color


def _fill(row: Row) -> str:
    """Return the colour of a runtime's bar.

    The colour is gray if the training without checkpoints took longer, or else the colour of the checkpoint target.
    """
    return GRAY if row["without_s"] > row["runtime_s"] else _colour(row)


def checkpoint_figures(cells: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure of checkpoint times per set of settings in which a training saved checkpoints.

    A figure shows all modes (`sync` and `async`).
    """
    title = "One checkpoint: training stands still, durable, drained"
    return figure_specs(
        "checkpoints",
        title,
        draw_checkpoints,
        saving_sets(cells, HOW),
        checkpoint_table,
        caption_of_checkpoints,
        hidden=HOW,
    )


def checkpoint_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart, which has one row per target and mode. Times are seconds since the saved step."""
    saves = with_status_of_drawing(cells[cells["target"] != NO_TARGET], PLACE, "snapshot_blocked_s")
    return numbers_of_done_cells(saves.reindex(columns=[*PLACE, *NUMBERS, *OF_CELL]), NUMBERS)


@panels.complete_figure
def draw_checkpoints(frame: pd.DataFrame) -> Panels:
    """Draw the times of a checkpoint since the end of the saved step: up to three bars per target and mode."""
    rows = rows_of(frame)
    longest = max(frame[f"{name}_max"].max() for name, *_ in KINDS)
    figure = Figure(figsize=(6.0, 1.35 + 0.55 * len(rows)))
    axes = figure.subplots()
    axes.set_xlim(0, float(longest) * RIGHT)
    for place, row in enumerate(rows):
        _lying(axes, place, row, n=panels.needs_run_counts(frame[frame["status"] == "done"]))
    axes.set_yticks(range(len(rows)), [f"{panels.wrap_name(row['target'], LABEL)}\n{row['mode']}" for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("seconds since the end of the step")
    signs = [
        Patch(facecolor=fill.get("color", "0.7"), edgecolor="black", hatch=fill.get("hatch"), label=kind)
        for _, kind, fill in KINDS
    ]
    return figure, signs


def _lying(axes: Axes, place: int, row: Row, *, n: bool) -> None:
    if row["status"] != "done":
        axes.annotate(row["status"], (0, place), (4, 0), textcoords="offset points", va="center", color="0.4", size=7)
        return
    drains = row["target_name"] == BURST_BUFFER
    kinds = [kind for kind in KINDS if (drains or kind is not KINDS[-1]) and not math.isnan(row[kind[0]])]
    for number, (name, _, fill) in enumerate(kinds):
        middle, y = row[name], place + (number - (len(kinds) - 1) / 2) * HEIGHT
        axes.barh(y, middle, HEIGHT, **{"color": _colour(row), "edgecolor": "black"} | fill)
        low, high = panels.whisker_ends(row, name)
        if high > low:
            axes.errorbar(middle, y, xerr=[[middle - low], [high - middle]], **panels.WHISKER)
        text = panels.median_text(row, name, n=n).replace("\n", "  ")
        axes.annotate(text, (high, y), (4, 0), textcoords="offset points", va="center", size=6.5)
