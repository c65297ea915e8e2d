"""Figure 8: what was read each second; as in the paper, gray with prefetch, white under a line without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import style
from analysis.figures.kit.panels import HEADROOM, frame_with_words, name_panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

GRAY = "#A6A6A6"
TAIL: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "dotted"}
# White below gray and the line above both: neither area hides the other.
WHITE_BELOW, GRAY_ABOVE, LINE_ABOVE = 1.0, 2.0, 3.0


def read_over_time(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw MB/s over the seconds since the first call of the iterator, a panel per storage.

    Parameters
    ----------
    frame
        What is drawn (`analysis.figures.plates.reading.COLUMNS`), one row per interval and its rate, from the end of
        the row before to its own; a trace begins with a row without a rate. A cell without a trace shows its status.
    title, words
        What stands above and below.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    hosts = len(set(frame["host"]) - {""}) > 1
    with style.sheet():
        figure = Figure(figsize=(6.0, 1.25 + 1.3 * len(storages)))
        grid = list(figure.subplots(len(storages), 1, sharex=True, sharey=True, squeeze=False).flat)
        highest, longest = (float(frame[name].fillna(0).max()) or 1.0 for name in ("read_mb_per_s", "elapsed_s"))
        grid[0].set_ylim(0, highest * HEADROOM)
        grid[0].set_xlim(0, longest)
        for axes, storage in zip(grid, storages, strict=True):
            cells = frame[frame["storage"] == storage]
            _panel(axes, cells)
            name_panel(axes, cells, several_hosts=hosts)
            axes.set_ylabel("MB/s read")
        grid[-1].set_xlabel("time since the first call of the iterator (s)")
        frame_with_words(figure, title, words, _signs(frame))
    return figure


def _panel(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw both traces of one storage; one that is missing leaves its status."""
    missing = []
    for prefetch, trace in cells.groupby("prefetch"):
        if trace["status"].iloc[0] == "done":
            _trace(axes, trace, prefetch=int(str(prefetch)))
        else:
            missing.append(f"prefetch {prefetch}: {trace['status'].iloc[0]}")
    if missing:
        axes.set_title("; ".join(missing), loc="right", fontsize=7, fontweight="normal", color="0.4")


def _trace(axes: Axes, trace: pd.DataFrame, *, prefetch: int) -> None:
    """Draw one trace, and where the iteration ended, if it was watched for longer."""
    edges, rates = trace["elapsed_s"].to_numpy(), trace["read_mb_per_s"].to_numpy()[1:]
    if prefetch:
        axes.stairs(rates, edges, fill=True, color=GRAY, zorder=GRAY_ABOVE)
    else:
        axes.stairs(rates, edges, fill=True, color="white", zorder=WHITE_BELOW)
        axes.stairs(rates, edges, color="black", linewidth=0.8, zorder=LINE_ABOVE)
    if (trace["phase"] == "tail").any():
        end = trace["elapsed_s"][trace["phase"] != "tail"].max()
        axes.axvline(end, **TAIL, zorder=LINE_ABOVE)


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    signs: list[Artist] = []
    for ahead in sorted(set(frame["prefetch"][frame["status"] == "done"]), reverse=True):
        face, edge = (GRAY, GRAY) if ahead else ("white", "black")
        signs.append(Patch(facecolor=face, edgecolor=edge, label=f"prefetch {ahead}"))
    if (frame["phase"] == "tail").any():
        signs.append(Line2D([], [], label="end of the iteration", **TAIL))
    return signs
