"""Draw Figure 10 of the paper: MB/s written over time in one run per checkpoint target.

The MB/s of the two storages of a burst buffer are stacked in the colours of the storages. A dotted line marks the end
of the application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.figures.kit import storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, figure_specs
from analysis.figures.kit.panels import Panels, complete_figure, time_panels, write_reason
from analysis.paper import BURST_BUFFER
from analysis.records.frame import Row
from analysis.records.runs import BETWEEN
from analysis.records.settings import Settings
from analysis.statistics.selection import HOW, MODE, saving_in_words, saving_sets, with_status_of_drawing
from analysis.statistics.training import NO_TARGET, storage_of_role
from analysis.traces import system

TITLE = "Fig. 10. Mini-application: written to the storages over time"
PLACE = ["target", "target_name", "mode"]
OF_CELL = ["status", "host", "accelerator", "cell"]
OF_TRACE = ["role", "storage", "source", "elapsed_s", "written_mb_per_s", "phase", "run", "runtime_s", "file"]
COLUMNS = [*PLACE, *OF_TRACE, *OF_CELL]
ROLES = ("only", "fast", "slow")
NAMES = [f"{name}_{role}" for name in ("source", "below") for role in ROLES]
END: dict[str, Any] = {"color": "black", "linewidth": 1.0, "linestyle": "dotted"}
LINE_ABOVE = 3.0


def chart_specs(cells: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return one figure per set of settings in which a training saved checkpoints and has a system trace."""
    if "trace_file" not in runs:
        return []
    hidden, traced = (*HOW, *MODE), runs["cell"][runs["trace_file"].notna()]
    saves = {key: each[each["target"] != NO_TARGET] for key, each in saving_sets(cells, hidden).items()}
    sets = {key: each for key, each in saves.items() if each["cell"].isin(traced).any()}

    def drawn(cells: pd.DataFrame) -> pd.DataFrame:
        of_cells = runs[runs["cell"].isin(cells["cell"])]
        return chart_table(cells, system.typical_runs(of_cells, NAMES), folders)

    worth = system.any_trace
    return figure_specs("fig10", TITLE, draw_write_rate, sets, drawn, _what, hidden=hidden, worth=worth)


def _what(key: Settings, shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    counters = ", ".join(dict.fromkeys(frame["source"].dropna()))
    return f"{_drawn(counters, shown)} {saving_in_words(key.facts, shown)}"


def _drawn(counters: str, cells: pd.DataFrame) -> str:
    """Return sentences for the caption about the drawn runs, the counters, and the bytes that the counters count."""
    if not counters:
        return "No trace was read."
    facts = [key.facts for key in cells["set_key"]]
    several = "storages stacked; " if any(each.get("checkpoint.name") == BURST_BUFFER for each in facts) else ""
    words = f"One run a target, the one of median runtime; {several}"
    words += f"counters {counters}, of all that anybody wrote there."
    if any(each.get("checkpoint.bandwidth_mb_per_s") for each in facts):
        words += " The page cache takes the capped drain's bytes and the kernel writes them in bursts."
    return words


def chart_table(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table of the chart, which has one row per storage and interval of a trace, with the MB/s.

    A cell without a readable trace has a single row with its status.
    """
    frame = with_status_of_drawing(cells, PLACE, "wall_s")
    return system.samples_of_cells(frame, runs, folders, [*PLACE, *OF_CELL], OF_TRACE, read=_samples)[COLUMNS]


def _samples(row: Row, run: Row, path: Path) -> pd.DataFrame:
    roles: dict[str, list[str]] = {}  # the roles of each device, which may have both storages of a burst buffer
    for role in ROLES:
        if isinstance(name := run.get(f"source_{role}"), str):
            roles.setdefault(name, []).append(role)
    if not roles:
        raise system.TraceError("no counter of the target")
    below = {name: {it for role in each for it in _below(run, role)} for name, each in roles.items()}
    return pd.concat(_of_device(row, path, name, each, below) for name, each in roles.items())


def _below(run: Row, role: str) -> list[str]:
    return names.split(BETWEEN) if isinstance(names := run.get(f"below_{role}"), str) else []


def _of_device(row: Row, path: Path, name: str, of: Sequence[str], below: Mapping[str, set[str]]) -> pd.DataFrame:
    """Return the MB/s written to a device over time.

    If image files of drawn loop devices are on this device, the writes to these image files are subtracted, because the
    loop devices are drawn separately.
    """
    images = [other for other in below if name in below[other]]
    storages = [storage_of_role(row["set_key"].facts, role) for role in of]
    source = " without ".join([name, *images])
    samples = system.read_written(path, name, images)
    return samples.assign(role=" and ".join(of), source=source, storage=" and ".join(storages))


@complete_figure
def draw_write_rate(frame: pd.DataFrame) -> Panels:
    """Draw the MB/s written over time, with one panel per checkpoint target.

    The time is counted from the first call of the dataset iterator. `frame` has one row per storage and interval.
    """
    cells = [cell for _, cell in frame.groupby("cell", sort=False)]
    highest = frame.groupby(["cell", "elapsed_s"])["written_mb_per_s"].sum().max()
    figure, grid = time_panels(len(cells), highest, frame["elapsed_s"].fillna(0).max(), "MB/s written")
    for axes, cell in zip(grid, cells, strict=True):
        axes.set_title(cell["target"].iloc[0])
        _panel(axes, cell)
    return figure, _signs(frame)


def _panel(axes: Axes, cell: pd.DataFrame) -> None:
    """Draw the stacked write rates of one target's storages, and a line at the end of the application."""
    if cell["status"].iloc[0] != "done":
        write_reason(axes, cell["status"].iloc[0])
        return
    beneath: Any = 0.0
    for _, trace in cell.groupby("role", sort=False):  # rates can be stacked, because all have the same intervals
        edges, rates = trace["elapsed_s"].to_numpy(), trace["written_mb_per_s"].iloc[1:]
        color = storage_colours.look_of_storage(trace["storage"].iloc[0]).color
        upto = beneath + rates.to_numpy()
        axes.stairs(upto, edges, baseline=beneath, fill=True, color=color)
        axes.stairs(upto, edges, baseline=beneath, color="black", linewidth=0.5)
        beneath = beneath + rates.fillna(0).to_numpy()
    end = cell["elapsed_s"][cell["phase"] != "tail"].max()
    axes.axvline(end, **END, zorder=LINE_ABOVE)


def _signs(frame: pd.DataFrame) -> Sequence[Artist]:
    names = dict.fromkeys(frame["storage"].dropna())
    signs: list[Artist] = [
        Patch(facecolor=storage_colours.look_of_storage(name).color, edgecolor="black", linewidth=0.5, label=name)
        for name in names
    ]
    return [*signs, Line2D([], [], label="end of the application", **END)]
