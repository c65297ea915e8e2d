"""Figure 10: what was written each second, storage upon storage in their colours; the end of the application dotted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import style
from analysis.figures.kit.panels import HEADROOM, frame_with_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

END: dict[str, Any] = {"color": "black", "linewidth": 1.0, "linestyle": "dotted"}
LINE_ABOVE = 3.0


def written_over_time(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw MB/s over the seconds since the first call of the iterator, a panel per checkpoint target.

    Parameters
    ----------
    frame
        What is drawn (`analysis.figures.plates.writing.COLUMNS`), one row per storage and interval; a cell without a
        trace shows its status.
    title, words
        What stands above and below.
    """
    cells = [cell for _, cell in frame.groupby("cell", sort=False)]
    with style.sheet():
        figure = Figure(figsize=(6.0, 1.25 + 1.3 * len(cells)))
        grid = list(figure.subplots(len(cells), 1, sharex=True, sharey=True, squeeze=False).flat)
        highest = frame.groupby(["cell", "elapsed_s"])["written_mb_per_s"].sum().max()
        grid[0].set_ylim(0, (highest if highest > 0 else 1.0) * HEADROOM)
        grid[0].set_xlim(0, frame["elapsed_s"].fillna(0).max() or 1.0)
        for axes, cell in zip(grid, cells, strict=True):
            axes.set_title(cell["target"].iloc[0])
            axes.set_ylabel("MB/s written")
            _panel(axes, cell)
        grid[-1].set_xlabel("time since the first call of the iterator (s)")
        frame_with_words(figure, title, words, _signs(frame))
    return figure


def _panel(axes: Axes, cell: pd.DataFrame) -> None:
    """Draw the storages of one target, one upon the other, and where its application ended."""
    if cell["status"].iloc[0] != "done":
        axes.set_title(cell["status"].iloc[0], loc="right", fontsize=7, fontweight="normal", color="0.4")
        return
    beneath: Any = 0.0
    for _, trace in cell.groupby("role", sort=False):  # counters of one trace: its intervals are those of all
        edges, rates = trace["elapsed_s"].to_numpy(), trace["written_mb_per_s"].iloc[1:]
        color = style.look(trace["storage"].iloc[0]).color
        upto = beneath + rates.to_numpy()
        axes.stairs(upto, edges, baseline=beneath, fill=True, color=color)
        axes.stairs(upto, edges, baseline=beneath, color="black", linewidth=0.5)
        beneath = beneath + rates.fillna(0).to_numpy()
    end = cell["elapsed_s"][cell["phase"] != "tail"].max()
    axes.axvline(end, **END, zorder=LINE_ABOVE)


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    names = dict.fromkeys(frame["storage"].dropna())
    signs: list[Artist] = [
        Patch(facecolor=style.look(name).color, edgecolor="black", linewidth=0.5, label=name) for name in names
    ]
    return [*signs, Line2D([], [], label="end of the application", **END)]
