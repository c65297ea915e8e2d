"""Draw a timeline of one run per cell that TensorFlow's profiler recorded, with the events of each thread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Outline

from analysis.figures.kit.figure_spec import FigureSpec, figure_specs
from analysis.figures.kit.panels import complete_figure, time_axis, write_reason
from analysis.figures.profiled_calls import panel_title
from analysis.records.frame import group_rows, rows_of
from analysis.statistics.selection import sort_as_in_paper, with_status_of_drawing
from analysis.text import visible
from analysis.traces import posix, system
from analysis.traces.system import TraceError
from jobs.events import tensorflow_trace
from jobs.events.intervals import union
from jobs.events.posix_window import READ, Window
from jobs.events.table import NS, EventsError
from jobs.events.tensorflow_trace import CATEGORIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analysis.figures.kit.panels import Panels
    from analysis.records.frame import Row
    from analysis.records.settings import Settings

STEM = "steps"
FILE = "tensorflow_file"
PLACE = ["storage", "threads"]
MOST_CELLS, MOST_RANKS, MOST_THREADS, MOST_FILES, MOST_EDGES = 4, 4, 8, 6, 60
# The number of columns into which the timeline is divided. A span shorter than a column is drawn one column wide, and a
# gap shorter than a column is not drawn.
COLUMNS = 300
COLORS = {
    "compute": "#0072B2", "communication": "#CC79A7", "checkpoint": "#AA4499", "read": "#D55E00", "decode": "#E69F00",
    "buffering": "#F0E442", "input wait": "#A6A6A6", "other": "#D9D9D9",
}  # fmt: skip
CAPTION = (
    f"One run a cell, that of median runtime. A line is a thread, the busiest {MOST_THREADS} of a rank, or a file,"
    f" where calls were profiled, too: the {MOST_FILES} read first. Times are rounded to 1/{COLUMNS} of the width."
    f" Thin lines are the edges of steps."
)
_RANK = re.compile(r"(-rank\d+)?\.npz$")
_NUMBER = re.compile(r"^tf_(data_)?|/-?\d{6,}$")  # parts of thread names that do not help a reader


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return one timeline per set of settings that has a cell with a trace of TensorFlow's profiler."""
    if FILE not in runs or "threads" not in table:
        return []
    drawn = system.typical_runs(runs[runs[FILE].map(lambda name: isinstance(name, str))], [FILE, "profile_file"])
    cells = table[table["cell"].isin(drawn.keys())]
    sets = group_rows(cells, cells["set_key"])
    numbers = partial(_frame, runs=drawn, folders=folders)
    return figure_specs(STEM, "What the threads did in the steps", draw_timeline, sets, numbers, _caption)


def _caption(_key: Settings, _cells: pd.DataFrame, _frame: pd.DataFrame) -> str:
    return CAPTION


def _frame(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table of the chart, which has one row per drawn span.

    A cell with an unreadable trace has a single row with its status.
    """
    parts = []
    for row in rows_of(sort_as_in_paper(with_status_of_drawing(cells, PLACE, "wall_s"), ["threads"]).head(MOST_CELLS)):
        run = runs.get(row["cell"], {})
        facts = {name: row[name] for name in (*PLACE, "prefetch", "status", "host", "cell")} | {"run": run.get("run")}
        found = pd.DataFrame([{"line": None, "category": None, "start_s": np.nan, "end_s": np.nan}])
        if row["status"] == "done":
            try:
                found = pd.DataFrame(_pieces(folders[row["cell"]], run))
            except (EventsError, TraceError):
                facts["status"] = posix.UNREADABLE
        parts.append(found.assign(**facts))
    return pd.concat(parts, ignore_index=True)


def _pieces(folder: Path, run: Row) -> Iterator[dict[str, Any]]:
    """Yield the rows for the spans of a run and for the starts of its steps.

    Only the folder of the cell is searched for files, so that a record cannot name a file in another folder.
    """
    name = _RANK.sub("", str(run[FILE]).rpartition("/")[2])
    paths = [folder / f"{name}{f'-rank{rank}' if rank else ''}.npz" for rank in range(MOST_RANKS)]
    ranks = [tensorflow_trace.read_trace(path) for path in paths if path.exists() and not path.is_symlink()]
    if not ranks:
        raise TraceError(posix.MISSING)
    first, last = min(each.steps.start.min() for each in ranks), max(each.steps.end.max() for each in ranks)
    for number, rank in enumerate(ranks):
        head = f"rank {number} " if len(ranks) > 1 else ""
        for line, category, start, end in _of_threads(rank):
            yield from _rows(head + line, category, (start, end), (first, last))
        for edge in rank.steps.start[:MOST_EDGES].tolist() if number == 0 else ():
            yield {"line": None, "category": "step", "start_s": (edge - first) / NS, "end_s": (edge - first) / NS}
    if isinstance(run.get("profile_file"), str):
        calls = posix.read_profile(folder / run["profile_file"].rpartition("/")[2])
        for line, start, end in _of_files(calls):
            yield from _rows(line, "read", (start, end), (first, last))


def _of_threads(rank: tensorflow_trace.Runtime) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield the name of each of the busiest threads, with a category and the starts and ends of its events.

    The thread on which steps are marked comes first.
    """
    events, lines = rank.events, rank.events.words["thread"]
    taken = np.bincount(events["thread"], events["end"] - events["start"], len(lines))
    taken[rank.front] = np.inf
    for place, line in enumerate(np.argsort(-taken)[:MOST_THREADS].tolist()):
        name = f"{place + 1} {_NUMBER.sub('', lines[line].rpartition(' ')[2])[:22]}"
        for kind, own in events.selected(events["thread"] == line).grouped_by("kind"):
            if kind < len(CATEGORIES):
                yield name, CATEGORIES[kind], own["start"], own["end"]


def _of_files(profile: Window) -> Iterator[tuple[str, Any, Any]]:
    if profile.calls is None:
        return
    reads = posix.calls_of_window(profile).with_words("kind", READ)
    in_order = reads["file"][np.argsort(reads["start"])].tolist()
    for file in list(dict.fromkeys(in_order))[:MOST_FILES]:
        own = reads.selected(reads["file"] == file)
        yield f"file {visible(profile.paths[file].rpartition('/')[2])[-17:]}", own["start"], own["end"]


def _rows(line: str, category: str, times: tuple[Any, Any], window: tuple[int, int]) -> Iterator[dict[str, Any]]:
    first, last = window
    width = max(1, -(-(last - first) // COLUMNS))
    inside = (times[1] > first) & (times[0] < last)
    start = (np.maximum(times[0][inside], first) - first) // width * width
    end = -(-(np.minimum(times[1][inside], last) - first) // width) * width
    spans = union(start, np.maximum(end, start + width))
    for begin, until in zip(*(each.tolist() for each in spans), strict=True):
        yield {"line": line, "category": category, "start_s": begin / NS, "end_s": min(until, last - first) / NS}


@complete_figure
def draw_timeline(frame: pd.DataFrame) -> Panels:
    """Draw a timeline with one panel per cell, and one line per thread or file.

    A span covers the spans of categories that come later in `CATEGORIES`.
    """
    cells = [(cell.iloc[0], cell) for _, cell in frame.groupby("cell", sort=False)]
    lines = [max(1, cell["line"].nunique()) for _, cell in cells]
    figure = Figure(figsize=(7.0, 1.2 + sum(0.4 + 0.15 * each for each in lines)))
    grid = figure.subplots(len(cells), 1, squeeze=False, height_ratios=[each + 2 for each in lines])
    for (first, cell), axes in zip(cells, grid.flat, strict=True):
        axes.set_title(f"{panel_title(first)}, prefetch {first['prefetch']}")
        if first["status"] == "done":
            _panel(axes, cell)
        else:
            write_reason(axes, first["status"])
    time_axis(grid[-1, 0], "time since the first step began", frame["end_s"].max())
    shown = [name for name in CATEGORIES if (frame["category"] == name).any()]
    return figure, [Patch(facecolor=COLORS[name], label=name) for name in shown]


def _panel(axes: Axes, cell: pd.DataFrame) -> None:
    names: Sequence[str] = cell["line"].dropna().drop_duplicates().tolist()
    for place, name in enumerate(names):
        for category in reversed(CATEGORIES):
            own = cell[(cell["line"] == name) & (cell["category"] == category)]
            if len(own):
                axes.add_patch(PathPatch(_boxes(own, place), facecolor=COLORS[category], linewidth=0))
    for edge in cell["start_s"][cell["category"] == "step"]:
        axes.axvline(edge, color="0.35", linewidth=0.3)
    axes.set_yticks(range(len(names)), names, size=6)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, cell["end_s"].max())


def _boxes(pieces: pd.DataFrame, place: int) -> Outline:
    """Return all spans of a line as one path, because many small paths would make a large file."""
    left, right = (pieces[edge].to_numpy()[:, None] for edge in ("start_s", "end_s"))
    across = np.concatenate([left, right, right, left, left], axis=1)
    upright = np.broadcast_to(place + np.array([-0.4, -0.4, 0.4, 0.4, -0.4]), across.shape)
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY] * len(pieces)
    return Outline(np.stack([across, upright], axis=2).reshape(-1, 2), codes)
