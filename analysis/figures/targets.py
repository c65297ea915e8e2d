"""Figure 9: above the runtime per checkpoint target, in gray what it takes without; below one checkpoint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import panels, style
from analysis.figures.kit.figure import FigureSpec, checkpoints_told, figures
from analysis.records.frame import rows_of
from analysis.statistics.checkpoints import NO_TARGET
from analysis.statistics.selection import HOW, MODE, of_done, saving_sets, settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from analysis.records.frame import Row

TITLE = "Fig. 9. Mini-application: runtime with checkpoints, and one checkpoint"
RUNTIME = {"runtime_s": "wall_s", "runtime_s_min": "wall_s_min", "runtime_s_max": "wall_s_max"}
CHECKPOINT = {f"checkpoint_s{end}": f"snapshot_blocked_s{end}" for end in ("", "_min", "_max")}
PLACE = ["target", "target_name", "mode"]
COLUMNS = [
    *PLACE, *RUNTIME, "without_s", *CHECKPOINT, "n_valid", "unstable", "status", "host", "accelerator", "cell",
]  # fmt: skip
WIDTH = 0.7
GRAY = "#C4C4C4"
LONGER: dict[str, Any] = {"color": "black", "linestyle": "dashed"}


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per set of settings in which a training was saved."""
    hidden = (*HOW, *MODE)
    sets = saving_sets(table, hidden)
    return figures("fig9", TITLE, runtime_per_target, sets, bars, checkpoints_told, hidden=hidden)


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per target, the training without checkpoints first; seconds.

    `without_s` is its runtime, of cells of the same host; `checkpoint_s` is how long training stood still for one.
    """
    frame = settled(cells, PLACE, "wall_s").rename(columns={old: new for new, old in (RUNTIME | CHECKPOINT).items()})
    frame = of_done(frame.reindex(columns=COLUMNS), [*RUNTIME, *CHECKPOINT])
    without = frame[frame["target"] == NO_TARGET]
    base = without.set_index("host")["runtime_s"].to_dict() if len(without) == 1 else {}
    return frame.assign(without_s=frame["host"].map(base).astype("float64"))


def runtime_per_target(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw seconds per target, the whole run above and one checkpoint below, min-max as whiskers.

    A row per target; the row without a target is no bar: it is the gray in all of them.
    """
    targets = frame[frame["target"] != NO_TARGET]
    shown = frame[frame["runtime_s"].notna()]
    with style.sheet():
        figure = Figure(figsize=(max(4.2, 1.2 + 0.9 * len(targets)), 4.1))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        for axes, name, label in ((above, "runtime_s", "runtime (s)"), (below, "checkpoint_s", "one checkpoint (s)")):
            axes.set_ylim(0, (float(frame[f"{name}_max"].max()) or 1.0) * (panels.HEADROOM + 0.05))
            for place, row in enumerate(rows_of(targets)):
                _bar(axes, place, row, name, n=name == "runtime_s" and panels.several_n(shown))
            axes.set_ylabel(label)
        below.set_xticks(range(len(targets)), [panels.wrapped(name) for name in targets["target"]])
        below.tick_params(axis="x", length=0)
        above.tick_params(axis="x", length=0)
        below.set_xlim(-0.65, len(targets) - 0.35)
        panels.frame_with_words(figure, title, words, _signs(frame, shown))
    return figure


def _bar(axes: Axes, x: int, row: Row, name: str, *, n: bool) -> None:
    height = row[name]
    if math.isnan(height):
        panels.gap(axes, x, row["status"])
        return
    panels.bar(axes, x, height, row, width=WIDTH, color=style.look(row["target_name"]).color)
    without = row["without_s"] if name == "runtime_s" else math.nan
    if without > height:
        panels.bar(axes, x, height, row, width=WIDTH, color=GRAY)
        axes.hlines(without, x - WIDTH / 2, x + WIDTH / 2, **LONGER)
    elif without <= height:
        axes.bar(x, without, WIDTH, color=GRAY, edgecolor="black")
    panels.whiskers(axes, [x], [row], name)
    panels.number(axes, (x, row[f"{name}_max"]), panels.median_text(row, name, n=n))


def _signs(frame: pd.DataFrame, shown: pd.DataFrame) -> Sequence[Artist]:
    signs: list[Artist] = []
    if frame["without_s"].notna().any():
        signs.append(Patch(facecolor=GRAY, edgecolor="black", label="without checkpoints"))
    if (shown["without_s"] > shown["runtime_s"]).any():
        signs.append(Line2D([], [], label="without checkpoints, where longer", **LONGER))
    return [*signs, *panels.unstable_sign(shown, "runtime's ")]
