"""Draw the POSIX calls of one run per profiled cell: sizes of reads, order of reads, rates, and single calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit.figure_spec import FigureSpec, figure_specs
from analysis.figures.kit.panels import HEADROOM, Panels, complete_figure, panel_grid, time_axis, write_reason
from analysis.records.frame import Row, group_rows, rows_of
from analysis.records.settings import Settings
from analysis.statistics.selection import sort_as_in_paper, with_status_of_drawing
from analysis.text import visible
from analysis.traces import posix, system
from analysis.traces.system import TraceError
from jobs.events.posix_window import END, KINDS, OTHER, READ, WRITTEN, Window

STEM = "posix"
POSIX = "profile.posix"
OF_A_TRACE = ("rates", "files")
PLACE = ["storage", "threads"]
OF_CELL = ["run", "runtime_s", "file_of_profile", "status", "host", "cell"]
MOST_CELLS = 12
IN_A_ROW = 3
LONGEST_NAME = 22
# The additional height of the figure, in inches, for the vertical tick labels with the sizes.
SIZES_HIGH = 0.45
DARK, LIGHT = "#4D4D4D", "#D0D0D0"
ORDERS = {"consecutive": DARK, "sequential_only": "#9A9A9A", "neither": "white"}
IN_WORDS = {
    "consecutive": "consecutive: just behind the last byte",
    "sequential_only": "sequential, not consecutive: beyond it",
    "neither": "not sequential",
}
WRITTEN_LINE: dict[str, Any] = {"color": "#D55E00", "linewidth": 0.9}
# The vertical offset of each kind of call from the line of its file. An empty read has another offset than a read,
# because an empty read directly follows a read and would cover it.
ABOVE, AMID, BELOW = -0.27, 0.0, 0.27
HEIGHTS = {READ: AMID, END: BELOW, WRITTEN: BELOW, OTHER: ABOVE}
THICK = 2.4
DOT = 0.004  # the smallest drawn length of a call, as a fraction of the panel's width
COLORS = {READ: "#0072B2", END: "#56B4E9", WRITTEN: "#D55E00", OTHER: "#999999"}
ENOUGH_FOR_A_NUMBER = 0.06


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return four figures per set of settings with a profiled cell.

    If the profiles have only counters and no single calls, return two figures per set.
    """
    if not {POSIX, "threads"} <= set(table) or "profile_file" not in runs:
        return []
    cells = table[table[POSIX].notna() & table["threads"].map(lambda value: type(value) is int)]
    drawn = system.typical_runs(runs[runs["cell"].isin(cells["cell"])], ["profile_file"])
    sets = group_rows(cells, cells["set_key"])
    of_each = {key: len(each) for key, each in sets.items()}
    traced = {key: each for key, each in sets.items() if (each[POSIX] == "trace").any()}
    known: dict[Settings, dict[str, pd.DataFrame]] = {}

    def frame(name: str, each: pd.DataFrame) -> pd.DataFrame:
        key = each["set_key"].iloc[0]
        known[key] = known.get(key) or _frames(each, drawn, folders)  # each profile is read only once for all figures
        return known[key][name]

    charts = []
    for name, title, draw, about, _ in _FIGURES:
        what = _caption(about, of_each)
        asked = traced if name in OF_A_TRACE else sets
        charts += figure_specs(
            f"{STEM}-{name}", f"POSIX calls: {title}", draw, asked, partial(frame, name), what, worth=_worth
        )
    return charts


def _worth(frame: pd.DataFrame) -> bool:
    return bool(frame["status"].isin(["done", posix.UNREADABLE]).any())


def _caption(about: str, of_each: Mapping[Settings, int]) -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    def what(key: Settings, _: pd.DataFrame, frame: pd.DataFrame) -> str:
        drawn = frame["cell"].nunique()
        few = f" The first {drawn} of {of_each[key]} cells." if drawn < of_each[key] else ""
        beyond = int(frame.groupby("cell")["calls_left_out"].max().sum()) if "calls_left_out" in frame else 0
        lost = f" Calls beyond the window, left out: {beyond:,}." if beyond else ""
        of = "One run a cell, the one of median runtime, on the files of the data set and the snapshots."
        return f"{of} {about}{few}{lost}"

    return what


def _frames(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> dict[str, pd.DataFrame]:
    """Return the table of each figure for one set of cells.

    A cell without a readable profile has one row, and the column `status` of this row gives the reason.
    """
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name, *_ in _FIGURES}
    for row in rows_of(sort_as_in_paper(with_status_of_drawing(cells, PLACE, "wall_s"), ["threads"]).head(MOST_CELLS)):
        run = runs.get(row["cell"], {})
        facts = {name: row[name] for name in (*PLACE, "status", "host", "cell")}
        facts |= {"run": run.get("run"), "runtime_s": run.get("wall_s"), "file_of_profile": run.get("profile_file")}
        profile: Window | None = None
        try:
            profile = _profile(row, run, folders)
        except TraceError as error:
            facts["status"] = str(error)
        for name, *_, numbers in _FIGURES:
            found, status = pd.DataFrame([{}]), facts["status"]
            try:
                found = numbers(profile) if profile else found
            except TraceError as error:
                status = str(error)
            parts[name].append(found.assign(**{**facts, "status": status}))
    return {name: _together(each) for name, each in parts.items()}


def _together(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    frame = pd.concat(parts, ignore_index=True)
    return frame[[*PLACE, *(name for name in frame if name not in (*PLACE, *OF_CELL)), *OF_CELL]]


def _profile(row: Row, run: Row, folders: Mapping[str, Path]) -> Window | None:
    """Return the profile of a cell's run, or None if the cell is not done.

    Only the folder of the cell is searched, so that a record cannot name a file in another folder. Raises TraceError if
    the run has no readable profile.
    """
    if row["status"] != "done":
        return None
    if not isinstance(run.get("profile_file"), str):
        raise TraceError(posix.MISSING)
    return posix.read_profile(folders[row["cell"]] / run["profile_file"].rpartition("/")[2])


def _panels(frame: pd.DataFrame, axes: Sequence[Axes]) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Write the title of each cell's panel, and yield the panel and the rows of each done cell.

    The panel of a cell that is not done gets the status of the cell as text.
    """
    for each, (_, cell) in zip(axes, frame.groupby("cell", sort=False), strict=False):
        first = cell.iloc[0]
        each.set_title(panel_title(first))
        if first["status"] == "done":
            yield each, cell
        else:
            write_reason(each, first["status"])


def panel_title(row: Any) -> str:
    """Return the title of a cell's panel, which has the storage and the number of threads."""
    return f"{row['storage']}, {row['threads']} thread{'' if row['threads'] == 1 else 's'}"


@complete_figure
def draw_sizes(frame: pd.DataFrame) -> Panels:
    """Draw the shares of reads and of files in each size bin, with one panel per cell."""
    cells = frame["cell"].nunique()
    figure, grid = panel_grid(cells, IN_A_ROW, (2.2, 1.3), 4.2, sharex=True, sharey=True)
    figure.set_figheight(figure.get_figheight() + SIZES_HIGH)
    for axes, cell in _panels(frame, grid):
        places = range(len(cell))
        for name, shift, color in (("reads", -0.2, DARK), ("files", 0.2, LIGHT)):
            shares = cell[f"share_of_{name}"] * 100
            axes.bar([place + shift for place in places], shares, 0.4, color=color, edgecolor="black")
    for place, axes in enumerate(grid):
        axes.set_xticks(range(len(posix.SIZES)), posix.SIZES, rotation=90)
        axes.tick_params(axis="x", length=0, labelbottom=place + IN_A_ROW >= cells)
        axes.set_ylabel("" if place % IN_A_ROW else "share (%)")
    labels = {"of reads, by the bytes that came": DARK, "of files, by their last byte read": LIGHT}
    return figure, [Patch(facecolor=color, edgecolor="black", label=label) for label, color in labels.items()]


@complete_figure
def draw_read_order(frame: pd.DataFrame) -> Panels:
    """Draw one bar per cell with the shares of consecutive reads, of other sequential reads, and of all other reads."""
    rows = rows_of(frame)
    figure = Figure(figsize=(5.2, 1.1 + 0.3 * len(rows)))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        beneath = 0.0
        for name, color in ORDERS.items() if row["status"] == "done" else ():
            axes.barh(place, row[name] * 100, 0.7, beneath, color=color, edgecolor="black")
            if row[name] >= ENOUGH_FOR_A_NUMBER:
                ink, middle = "white" if color == DARK else "black", beneath + row[name] * 50
                axes.text(middle, place, f"{row[name] * 100:.0f}", color=ink, ha="center", va="center", size=7)
            beneath += row[name] * 100
        if row["status"] != "done":
            axes.text(1, place, row["status"], color="0.4", va="center", size=7)
    axes.set_yticks(range(len(rows)), [panel_title(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the reads (%)")
    return figure, [Patch(facecolor=ORDERS[name], edgecolor="black", label=label) for name, label in IN_WORDS.items()]


@complete_figure
def draw_rates(frame: pd.DataFrame) -> Panels:
    """Draw two panels per cell over the time of the window: MB/s on the left and calls/s on the right."""
    cells = frame["cell"].nunique()
    writes = bool(frame.get("written_mb_per_s", pd.Series(dtype=float)).any())
    figure = Figure(figsize=(7.0, 1.2 + 1.15 * cells))
    moved, called = figure.subplots(cells, 2, sharex=True, sharey="col", squeeze=False).T
    for side, label, names in (
        (moved, "MB/s" if writes else "MB/s read", ("read_mb_per_s", "written_mb_per_s")),
        (called, "calls/s", ("calls_per_s",)),
    ):
        for axes, cell in _panels(frame, side):
            edges = [0.0, *cell["elapsed_s"]]
            axes.stairs(cell[names[0]], edges, fill=True, color="#A6A6A6")
            for name in names[1:]:
                if cell[name].any():
                    axes.stairs(cell[name], edges, **WRITTEN_LINE)
        highest = float(frame.reindex(columns=names).to_numpy(float, na_value=0).max())
        side[0].set_ylim(0, (highest if highest > 0 else 1.0) * HEADROOM)
        for axes in side:
            axes.set_ylabel(label)
        time_axis(side[-1], "time since the window was opened", frame["elapsed_s"].max())
    signs = [Patch(facecolor="#A6A6A6", label="read"), Line2D([], [], label="written", **WRITTEN_LINE)]
    return figure, signs if writes else []


@complete_figure
def draw_first_files(frame: pd.DataFrame) -> Panels:
    """Draw the single calls on the first files, with one panel per cell and one line per file."""
    cells = frame["cell"].nunique()
    lines = int(frame.groupby("cell")["cell"].size().max() > 1) * posix.FIRST_FILES or 1
    figure = Figure(figsize=(7.0, 1.2 + cells * (0.45 + 0.11 * lines)))
    grid = list(figure.subplots(cells, 1, squeeze=False).flat)
    for axes, cell in _panels(frame, grid):
        _lines(axes, cell)
    grid[-1].set_xlabel("milliseconds since the window was opened")
    drawn = [kind for kind in KINDS if (frame["kind"] == kind).any()] if "kind" in frame else []
    return figure, [Line2D([], [], color=COLORS[kind], linewidth=THICK, label=kind) for kind in drawn]


def _lines(axes: Axes, cell: pd.DataFrame) -> None:
    """Draw the calls of a cell. A call that is too short to be visible is drawn as a dot."""
    starts, ends = cell["start_s"] * 1e3, cell["end_s"] * 1e3
    first, last = starts.min(), ends.max()
    visible_ends = np.maximum(ends, starts + (last - first) * DOT)
    for kind in KINDS:
        drawn = cell["kind"] == kind
        places = zip(starts[drawn], visible_ends[drawn], cell["line"][drawn] + HEIGHTS[kind], strict=True)
        segments = [[(start, line), (end, line)] for start, end, line in places]
        axes.add_collection(LineCollection(segments, colors=COLORS[kind], linewidths=THICK, capstyle="butt"))
    names = cell.drop_duplicates("line").sort_values("line")
    axes.set_yticks(names["line"], [_short(name) for name in names["file"]], size=6)
    axes.set_ylim(names["line"].max() + 0.7, -0.7)
    axes.set_xlim(first - (last - first) / 50, last + (last - first) / 50)


def _short(path: str) -> str:
    name = visible(PurePath(path).name or path)
    return name if len(name) <= LONGEST_NAME else f"\N{HORIZONTAL ELLIPSIS}{name[1 - LONGEST_NAME :]}"


# Sentences for the captions, and then the figures. `_FIGURES` has for each figure the name, the title, the function
# that draws the figure, the sentence for the caption, and the function that returns the numbers.
_BINS = "Bins are Darshan's, each up to its size; a file's size is what was read of it, to its last byte."
_BARS = "A bar is a hundredth of the window; a call counts where it ended."
_LINES = (
    f"The {posix.FIRST_FILES} files that were read or written first, {posix.FIRST_CALLS} of their calls at most;"
    " a call too short to be seen is a dot. Opens and closes lie above, reads of nothing and writes below."
    " Each panel has a time axis of its own."
)
_FIGURES: tuple[tuple[str, str, Callable[..., Figure], str, Callable[[Window], pd.DataFrame]], ...] = (
    ("sizes", "sizes of reads and of files", draw_sizes, _BINS, posix.size_shares),
    ("order", "order of the reads", draw_read_order, "Of each file's POSIX reads.", posix.read_order),
    ("rates", "bytes and calls over time", draw_rates, _BARS, posix.rates_over_time),
    ("files", "the first files, a line each", draw_first_files, _LINES, posix.calls_on_first_files),
)
