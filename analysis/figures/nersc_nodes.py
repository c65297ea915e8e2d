"""Draw NERSC's figures: the parts of the wall time by nodes and by control, and the read rate by nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.claims.nersc2018 import published_rate
from analysis.errors import AnalysisError
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs, sentence_on_counts
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, rows_of
from analysis.statistics.selection import (
    CLIMATE,
    HEPCNN,
    NODES,
    SHUFFLE,
    WALL_PARTS,
    numbers_of_done_cells,
    sets_by_control,
    sets_by_nodes,
    with_status_of_drawing,
    workloads,
)
from analysis.statistics.training import CONTROL
from analysis.traces.action_times import Definitions
from analysis.traces.system import typical_runs
from jobs.events.read_time_logs import read_logs
from jobs.events.table import EventsError

INPUT = {HEPCNN: "read", CLIMATE: "input"}
NAMES = {HEPCNN: "HEPCNNB", CLIMATE: "CDB"}
# The label and the colour of each part of the wall time. The colours are from the palette of Okabe and Ito.
LOOKS = {
    "read_s": ("read", "#D55E00"), "unpack_s": ("waiting for input", "#E69F00"),
    "compute_s": ("train", "#56B4E9"),
    "validate_s": ("validate", "#009E73"), "sync_s": ("meet the other ranks", "#CC79A7"),
    "checkpoint_s": ("checkpoint", "#F0E442"), "rest_s": ("the rest", "white"),
}  # fmt: skip
RATES = {
    "union_all": ("by union_all: the storage's", "o"),
    "sum_per_rank": ("by sum_per_rank: HEPCNNB's", "s"),
    "wall": ("by the wall", "^"),
    "published": ("by the published formula", "x"),
}
OF_CELL = ["storage", "storage_name", "status", "host", "accelerator", "cell", "n_valid", "unstable"]
WALL = ("wall_s", "wall_s_min", "wall_s_max")
STACK = [*OF_CELL, "benchmark", "place", *WALL, "io_share", *WALL_PARTS]
LINES = [*OF_CELL, "shuffle", NODES, *RATES]
WIDTH = 0.8


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return the figures of HEPCNNB and of CDB: wall time by nodes, wall time by control, and read rate by nodes."""
    cells = workloads(table, runs)
    typical = typical_runs(runs, ["timelog"]) if len(cells) else {}
    charts: list[FigureSpec] = []
    for name in [each for each in NAMES if (cells["benchmark"] == each).any()]:
        own = cells[cells["benchmark"] == name]
        title, stem = NAMES[name], f"nersc-{name}"
        rates = partial(rate_table, runs=typical, folders=folders)
        charts += figure_specs(f"{stem}-latency", f"{title}: wall time of the slowest rank", draw_wall_time,
                        sets_by_nodes(own), partial(wall_time_table, words=_by_nodes), caption_of_runs())  # fmt: skip
        charts += figure_specs(f"{stem}-bandwidth", f"{title}: read bandwidth by its definitions",
                        draw_rates, sets_by_nodes(own), rates, _caption_of_rates)  # fmt: skip
        charts += figure_specs(f"{stem}-controls", f"{title}: what is left out", draw_wall_time, sets_by_control(own),
                        partial(wall_time_table, words=lambda row: str(row[CONTROL])), caption_of_runs())  # fmt: skip
    return charts


def _by_nodes(row: Row) -> str:
    nodes = f"{row[NODES]} node{'s' * (row[NODES] > 1)}"
    return f"{nodes}\nshuffle\n{row[SHUFFLE]}" if row[SHUFFLE] else nodes


def _caption_of_rates(_key: object, shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    formula = "The published formula takes each file for training once, whatever was read, and the rest as validation."
    sentences = ["By the time logs of the run of median length of each cell."]
    sentences += [formula] if frame["published"].notna().any() else []
    return " ".join([*sentences, sentence_on_counts(shown)])


def _ordered(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells sorted by the number of nodes, then by shuffling (local, global), then by control."""
    rank = {word: place for place, word in enumerate(("none", "local", "global", "no_io", "no_compute", "metadata"))}
    keys = [tuple(rank.get(word, -1) for word in words) for words in zip(cells[SHUFFLE], cells[CONTROL], strict=True)]
    placed = cells.assign(_order=pd.Series(keys, index=cells.index, dtype=object))
    return placed.sort_values([NODES, "_order", "cell"]).drop(columns="_order")


def wall_time_table(cells: pd.DataFrame, words: Any) -> pd.DataFrame:
    """Return the table of the chart, which has one row per cell with the seconds of the parts of its wall time.

    `words` is a function that returns the label of a row's bar, which is in the column `place`.
    """
    ordered = _ordered(with_status_of_drawing(cells, ["storage", NODES, SHUFFLE, CONTROL], "wall_s"))
    ordered = ordered.assign(place=[words(row) for row in rows_of(ordered)])
    return numbers_of_done_cells(ordered, [*WALL, "io_share", *WALL_PARTS])[STACK]


@panels.complete_figure
def draw_wall_time(frame: pd.DataFrame) -> Panels:
    """Draw the parts of the wall time as stacked bars, with one panel per storage.

    The share of I/O is written above each bar.
    """
    places = list(dict.fromkeys(frame["place"]))
    shown = frame[frame["wall_s"].notna()]
    top = float(panels.upper_ends(shown, "wall_s").max()) * panels.HEADROOM
    wide, labels = max(1.6, 0.62 * len(places)), ("", "wall time (s)")
    figure, panes = panels.storage_panels(frame, wide, 2.1, labels=labels, top=top)
    for axes, cells in panes:
        for row in rows_of(cells):
            _stack(axes, places.index(row["place"]), row, n=panels.needs_run_counts(shown))
        axes.set_title(f"storage {axes.get_title()}")  # "storage" is added, because "local" is also a kind of shuffling
        axes.set_xticks(range(len(places)), places, size=6.5)
        axes.set_xlim(-0.6, len(places) - 0.4)
    return figure, _parts(shown)


def _stack(axes: Axes, x: int, row: Row, *, n: bool) -> None:
    if math.isnan(row["wall_s"]):
        panels.write_missing_status(axes, x, row["status"])
        return
    below = 0.0
    for part in WALL_PARTS:
        axes.bar(x, row[part], width=WIDTH, bottom=below, color=LOOKS[part][1], linewidth=0.5, edgecolor="black")
        below += row[part]
    panels.draw_whiskers(axes, [x], [row], "wall_s")
    text = f"{INPUT[row['benchmark']]} {row['io_share']:.0%}{panels.dagger_if_unstable(row)}"
    text = f"{text}\n{panels.runs_text(row)}" if n else text
    panels.write_number(axes, (x, panels.whisker_ends(row, "wall_s")[1]), text)


def _parts(shown: pd.DataFrame) -> list[Artist]:
    parts = [part for part in WALL_PARTS if (shown[part] > 0).any()]
    return [Patch(facecolor=LOOKS[part][1], edgecolor="black", label=LOOKS[part][0]) for part in parts]


def rate_table(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table of the chart, which has one row per cell with the MB/s by each definition.

    The MB/s are computed from the time logs of the run with the median runtime.
    """
    ordered = _ordered(with_status_of_drawing(cells, ["storage", NODES, SHUFFLE], "wall_s")).rename(
        columns={SHUFFLE: "shuffle"}
    )
    by_cell, states = [], []
    for row in rows_of(ordered):
        rates, state = dict.fromkeys(RATES, math.nan), row["status"]
        if state == "done":
            try:
                rates = _rates(row, runs[row["cell"]], folders[row["cell"]])
            except (AnalysisError, EventsError, OSError, KeyError):
                state = "no time log"
        by_cell.append(rates)
        states.append(state)
    table = pd.concat([ordered.reset_index(drop=True), pd.DataFrame(by_cell)], axis=1).assign(status=states)
    return numbers_of_done_cells(table, RATES)[LINES]


def _rates(row: Row, run: Row, folder: Path) -> dict[str, float]:
    """Return the MB/s at which all ranks of a run together read files, by each definition.

    Raises AnalysisError, EventsError or KeyError if the time logs cannot be read, or lack reads or their bytes.
    """
    stem = f"timelog-{int(run['run'])}"
    paths = [path for mark in (".", "-") for path in sorted(folder.glob(f"{stem}{mark}*timelog"))]
    log, _ = read_logs(paths)
    events = log.events.with_words("kind", "read")
    ranks = frozenset(log.ranks)
    metrics = Definitions(log).metrics(events, ranks)
    if metrics["bytes"] is None:
        raise AnalysisError("the log does not say how many bytes were read", "")
    rates = {"union_all": metrics["bytes_per_s"]["union_all"]}
    rates["wall"] = metrics["bytes"] / run["wall_s"]  # the logs themselves also contain time before and after the run
    rates["sum_per_rank"] = metrics["bytes"] / metrics["sum_per_rank"]
    rates["published"] = _published(row, metrics)
    return {name: value / 1e6 for name, value in rates.items()}


def _published(row: Row, metrics: Mapping[str, Any]) -> float:
    """Return bytes per second by the formula of HEPCNNB (`analysis.claims.nersc2018.published_rate`).

    Return NaN for CDB, because the published formula of CDB uses the requested bytes.
    """
    facts_of_files = [row.get(f"dataset.{name}") for name in ("train_files", "samples", "image_size")]
    if row["benchmark"] != HEPCNN or None in facts_of_files:
        return math.nan
    files, samples, side = (int(str(each)) for each in facts_of_files)
    of_one = 4 * (3 * side**2 + 4)
    sizes = samples * of_one, max(1, round(samples * 94 / 709)) * of_one
    return published_rate(metrics["count"], files, sizes, metrics["sum_per_rank"])


@panels.complete_figure
def draw_rates(frame: pd.DataFrame) -> Panels:
    """Draw MB/s over nodes, with one panel per storage, and one line per definition and kind of shuffling.

    A dotted line shows ideal scaling.
    """
    nodes = sorted(set(frame[NODES]))
    shown = frame[frame["union_all"].notna()]
    top = (float(shown[list(RATES)].max().max()) if len(shown) else 1.0) * panels.HEADROOM
    figure, panes = panels.storage_panels(frame, max(2.4, 0.8 * len(nodes)), 2.1, labels=("nodes", "MB/s"), top=top)
    for axes, cells in panes:
        for shuffle, rows in cells[cells["union_all"].notna()].groupby("shuffle"):
            _lines(axes, rows, nodes, dashed=shuffle == "global")
        panels.set_categories(axes, nodes)
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    return figure, _signs(shown)


def _lines(axes: Axes, rows: pd.DataFrame, nodes: Sequence[int], *, dashed: bool) -> None:
    own = rows_of(rows)
    places = [nodes.index(row[NODES]) for row in own]
    for place, (name, (_, marker)) in enumerate(RATES.items()):
        look: dict[str, Any] = {"color": _color(place), "linestyle": "dashed" if dashed else "solid"}
        axes.plot(places, [row[name] for row in own], marker=marker, markerfacecolor="none", clip_on=False, **look)
    if not dashed:
        ideal = [own[0]["sum_per_rank"] * each / own[0][NODES] for each in nodes]
        axes.plot(range(len(nodes)), ideal, color="0.5", linestyle="dotted")


def _color(place: int) -> str:
    return ("#0072B2", "#D55E00", "#009E73", "#CC79A7")[place]


def _signs(shown: pd.DataFrame) -> list[Artist]:
    signs: list[Artist] = [
        Line2D([], [], label=label, marker=marker, markerfacecolor="none", color=_color(place))
        for place, (name, (label, marker)) in enumerate(RATES.items())
        if shown[name].notna().any()
    ]
    if (shown["shuffle"] == "global").any():
        signs.append(Line2D([], [], label="dashed: shuffled globally", color="0.3", linestyle="dashed"))
    ideal = Line2D([], [], label="ideal: the fewest nodes' sum_per_rank, scaled", color="0.5", linestyle="dotted")
    return [*signs, ideal]
