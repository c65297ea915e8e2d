"""Draw Figure 8 of the paper: MB/s read over time in one run with prefetch and in one run without prefetch.

As in the paper, the run with prefetch is a gray area, and the run without prefetch is a white area under a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.claims import chien2018
from analysis.figures.kit.figure_spec import FigureSpec, figure_specs
from analysis.figures.kit.panels import Panels, complete_figure, name_panel, time_panels, write_reason
from analysis.records.frame import Row
from analysis.records.settings import Settings, reduced_set_key
from analysis.statistics.selection import (
    add_missing_partners,
    sets_by_prefetch,
    sets_of_settings,
    with_status_of_drawing,
)
from analysis.traces import system

TITLE = "Fig. 8. Mini-application: read from the storage over time"
PLACE = ["storage", "storage_name", "prefetch"]
OF_CELL = ["status", "host", "accelerator", "cell"]
OF_TRACE = ["elapsed_s", "read_mb_per_s", "phase", "source", "run", "runtime_s", "file"]
COLUMNS = [*PLACE, *OF_TRACE, *OF_CELL]
GRAY = "#A6A6A6"
TAIL: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": "dotted"}
# The z orders: the white area is behind the gray area, and the line is in front of the gray area. Both runs thus stay
# visible.
WHITE_BELOW, GRAY_ABOVE, LINE_ABOVE = 1.0, 2.0, 3.0


def chart_specs(cells: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return one figure per set of settings that has cells with prefetch, cells without prefetch, and a system trace.

    If sets differ only in threads and batch size, only the best set is drawn. A set with the paper's batch size is
    preferred, then a set with more threads, then a set with longer runs. Only the drawn traces are read. `folders`
    has the folder of each cell.
    """
    if "trace_file" not in runs:
        return []
    traced = set(runs["cell"][runs["trace_file"].notna()]).intersection(cells["cell"])
    runs_drawn = system.typical_runs(runs[runs["cell"].isin(traced)])
    both_by_set = {
        key: both
        for key, both in sets_by_prefetch(sets_of_settings(cells, {"prefetch"}, ["threads"])).items()
        if both["cell"].isin(traced).any()
    }
    kept = {cell for cell, run in runs_drawn.items() if system.has_trace(folders[cell], run)}

    def worth(key: Settings) -> bool:
        both = both_by_set[key]
        return bool(both["cell"][both["status"] == "done"].isin(kept).any())

    best = (next(filter(worth, alike), None) for alike in best_sets_first(both_by_set))
    sets = {key: both_by_set[key] for key in best if key}
    drawn = partial(chart_table, runs=runs_drawn, folders=folders)
    return figure_specs("fig8", TITLE, draw_read_rate, sets, drawn, caption_of_drawn_run, worth=system.any_trace)


def best_sets_first(sets: Mapping[Settings, pd.DataFrame]) -> Iterable[list[Settings]]:
    """Return lists of sets that differ only in threads, batch size and iterations. A list begins with its best set."""

    def rank(key: Settings) -> tuple[bool, int, float]:
        return key.facts["batch_size"] == chien2018.BATCH_SIZE, key.facts["threads"], float(sets[key]["wall_s"].sum())

    alike: dict[Settings, list[Settings]] = {}
    for key in sets:
        alike.setdefault(reduced_set_key(key, frozenset({"threads", "batch_size", "iterations"})), []).append(key)
    return [sorted(each, key=rank, reverse=True) for each in alike.values()]


def chart_table(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table of the chart, which has one row per interval of each trace, with the MB/s.

    The first row of a trace is the start of the trace and has no rate. A cell without a readable trace has a single row
    with its status.
    """
    frame = add_missing_partners(with_status_of_drawing(cells, PLACE, "wall_s"), [])
    return system.samples_of_cells(frame, runs, folders, [*PLACE, *OF_CELL], OF_TRACE, read=_samples)[COLUMNS]


def _samples(_: Row, _run: Row, path: Path) -> pd.DataFrame:
    trace = system.read_trace(path)
    return trace.samples.assign(source=trace.source)


def caption_of_drawn_run(_: Settings, _shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    """Return sentences for the caption about the drawn runs and their counters.

    The caption also names the cells for which the counter of the process was used, because the counter of the storage
    could not be read.
    """
    done = frame[frame["status"] == "done"]
    if done.empty:
        return "No trace could be read."
    sentence = f"One run a cell, the one of median runtime; counter {', '.join(dict.fromkeys(done['source']))}."
    instead = done[done["source"] == system.PROCESS][["storage", "prefetch"]].drop_duplicates()
    if instead.empty:
        return sentence
    which = ", ".join(f"{storage} with prefetch {ahead}" for storage, ahead in instead.itertuples(index=False))
    return f"{sentence} The counter of the storage could not be read for {which}: read by the process instead."


@complete_figure
def draw_read_rate(frame: pd.DataFrame) -> Panels:
    """Draw the MB/s read over time, with one panel per storage.

    The time is counted from the first call of the dataset iterator. Each row of `frame` is an interval, which begins at
    the end of the interval in the row before. The first row has no rate.
    """
    storages = list(dict.fromkeys(frame["storage"]))
    hosts = len(set(frame["host"]) - {""}) > 1
    highest, longest = (float(frame[name].fillna(0).max()) for name in ("read_mb_per_s", "elapsed_s"))
    figure, grid = time_panels(len(storages), highest, longest, "MB/s read")
    for axes, storage in zip(grid, storages, strict=True):
        cells = frame[frame["storage"] == storage]
        _panel(axes, cells)
        name_panel(axes, cells, several_hosts=hosts)
    return figure, _signs(frame)


def _panel(axes: Axes, cells: pd.DataFrame) -> None:
    """Draw the traces of one storage with prefetch and without prefetch, and write the status of a missing trace."""
    missing = []
    for prefetch, trace in cells.groupby("prefetch"):
        if trace["status"].iloc[0] == "done":
            _trace(axes, trace, prefetch=int(str(prefetch)))
        else:
            missing.append(f"prefetch {prefetch}: {trace['status'].iloc[0]}")
    if missing:
        write_reason(axes, "; ".join(missing))


def _trace(axes: Axes, trace: pd.DataFrame, *, prefetch: int) -> None:
    """Draw one trace. If the trace continues after the end of the iteration, draw a line at this end."""
    edges, rates = trace["elapsed_s"].to_numpy(), trace["read_mb_per_s"].to_numpy()[1:]
    if prefetch:
        axes.stairs(rates, edges, fill=True, color=GRAY, zorder=GRAY_ABOVE)
    else:
        axes.stairs(rates, edges, fill=True, color="white", zorder=WHITE_BELOW)
        axes.stairs(rates, edges, color="black", linewidth=0.8, zorder=LINE_ABOVE, clip_on=False)
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
