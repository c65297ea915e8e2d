"""Draw Figures 3 and 4 of the tf-Darshan paper: the MB/s in each window of a profile, over the system trace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit.figure_spec import FigureSpec, figure_specs
from analysis.figures.kit.panels import HEADROOM, complete_figure, time_panels, write_reason
from analysis.figures.profiled_calls import panel_title
from analysis.records.frame import group_rows, rows_of
from analysis.statistics.selection import sort_as_in_paper, with_status_of_drawing
from analysis.text import ratio_text
from analysis.traces import posix, system
from analysis.traces.system import TraceError

if TYPE_CHECKING:
    from analysis.figures.kit.panels import Panels
    from analysis.records.frame import Row
    from analysis.records.settings import Settings

FEW = 4  # short windows are left out only if there are at least this many windows
TITLE = "tf-Darshan, Figs. 3 and 4. Read each second: windows of the profile and the system's trace"
PLACE = ["storage", "threads"]
OF_CELL = [*PLACE, "status", "host", "cell"]
WINDOWS, TRACE = "window", "trace"
MOST_CELLS = 6
LINE: dict[str, Any] = {"color": "#0072B2", "linewidth": 1.1}
GRAY = "#BDBDBD"


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return one figure per set of settings that has a cell with a profile divided into windows (`profile.every`)."""
    if not {posix.EVERY, "threads"} <= set(table) or not set(posix.FILES) <= set(runs):
        return []
    cells = table[table[posix.EVERY].notna() & table["threads"].map(lambda value: type(value) is int)]
    drawn = system.typical_runs(runs[runs["cell"].isin(cells["cell"])], ["profile_file"])
    frame = partial(chart_table, runs=drawn, folders=folders)
    return figure_specs(
        "tfdarshan-windows", TITLE, draw_windows, group_rows(cells, cells["set_key"]), frame, caption_of_agreement
    )


def chart_table(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table of the chart, which has one row per window and one row per interval of the system trace.

    Each row has the MB/s and the start and end in seconds since the start of the trace. `over_trace` is the MB/s of a
    window divided by the MB/s of the trace in the same time. A cell without data has a single row with its status.
    """
    parts = []
    for row in rows_of(sort_as_in_paper(with_status_of_drawing(cells, PLACE, "wall_s"), ["threads"]).head(MOST_CELLS)):
        facts = {name: row[name] for name in OF_CELL}
        found = pd.DataFrame([{}])
        try:
            found = _lines(runs[row["cell"]], folders[row["cell"]]) if row["status"] == "done" else found
        except TraceError as error:
            facts["status"] = str(error)
        parts.append(found.assign(**facts))
    names = ["line", "begin_s", "elapsed_s", "read_mb_per_s", "trace_mb_per_s", "over_trace", *OF_CELL]
    return pd.concat(parts, ignore_index=True).reindex(columns=names)


def _lines(run: Row, folder: Path) -> pd.DataFrame:
    if not all(isinstance(run.get(name), str) for name in posix.FILES):
        raise TraceError("no trace")
    profile, trace = posix.profile_and_trace(run, folder)
    samples = trace.samples[["elapsed_s", "read_mb_per_s"]].assign(line=TRACE)
    samples["begin_s"] = samples["elapsed_s"].shift()
    return pd.concat(
        [_long(posix.compare_with_trace(profile, trace)).assign(line=WINDOWS), samples.iloc[1:]], ignore_index=True
    )


def _long(parts: pd.DataFrame) -> pd.DataFrame:
    """Return the windows that are at least 1/4 as long as the median window.

    Shorter windows are left out, because the training took only batches there that were read in earlier windows.
    """
    length_s = parts["elapsed_s"] - parts["begin_s"]
    return parts[length_s >= length_s.median() / 4] if len(parts) >= FEW else parts


def caption_of_agreement(key: Settings, _shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    """Return sentences for the caption that tell how well the profile and the system trace agree over all cells."""
    over = frame["over_trace"].dropna()
    every = key.facts.get(posix.EVERY)
    every = f"A window is {every} steps of the run of median runtime, and none that is over at once."
    if over.empty:
        return every
    low, middle, high = (ratio_text(float(it)) for it in (over.min(), over.median(), over.max()))
    return f"{every} Of {len(over)} windows the middle one has {middle} what the trace has meanwhile ({low} to {high})."


@complete_figure
def draw_windows(frame: pd.DataFrame) -> Panels:
    """Draw the MB/s of the windows and of the system trace over time, with one panel per cell.

    The time is counted from the first call of the dataset iterator.
    """
    cells = list(frame.groupby("cell", sort=False))
    highest, longest = (float(frame[name].fillna(0).max()) or 1.0 for name in ("read_mb_per_s", "elapsed_s"))
    figure, grid = time_panels(len(cells), highest * HEADROOM, longest, "MB/s read")
    for axes, (_, cell) in zip(grid, cells, strict=True):
        first = cell.iloc[0]
        axes.set_title(panel_title(first))
        if first["status"] != "done":
            write_reason(axes, first["status"])
            continue
        trace, parts = (cell[cell["line"] == name] for name in (TRACE, WINDOWS))
        edges = [*trace["begin_s"].head(1), *trace["elapsed_s"]]
        axes.stairs(trace["read_mb_per_s"], edges, fill=True, color=GRAY)
        axes.hlines(parts["read_mb_per_s"], parts["begin_s"], parts["elapsed_s"], **LINE)
        middles = (parts["begin_s"] + parts["elapsed_s"]) / 2
        axes.plot(middles, parts["read_mb_per_s"], marker="o", markersize=3, **{**LINE, "linewidth": 0.6})
    windows_sign = Line2D([], [], label="windows of the profile", marker="o", markersize=3, **LINE)
    return figure, [windows_sign, Patch(facecolor=GRAY, label="the system's trace")]
