"""NERSC's figures: where the wall time goes, over nodes and with what left out, and at which rate files are read."""

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

from analysis import nersc_numbers
from analysis.errors import AnalysisError
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, figures, how_many, runs_told
from analysis.figures.kit.panels import Panels
from analysis.records.frame import Row, rows_of
from analysis.statistics.node_counts import NODES, PARTS, SHUFFLE, by_control, by_nodes, workloads
from analysis.statistics.selection import of_done, settled
from analysis.statistics.training import CONTROL
from analysis.timelog.definitions import Definitions
from analysis.timelog.read_time_logs import read
from analysis.traces.typical import typical_runs

INPUT = {nersc_numbers.HEPCNN: "read", nersc_numbers.CLIMATE: "input"}
NAMES = {nersc_numbers.HEPCNN: "HEPCNNB", nersc_numbers.CLIMATE: "CDB"}
# Okabe and Ito's palette (analysis/figures/kit/storage_colours.py); what is left is white.
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
STACK = [*OF_CELL, "benchmark", "place", *WALL, "io_share", *PARTS]
LINES = [*OF_CELL, "shuffle", NODES, *RATES]
WIDTH = 0.8


def specs(table: pd.DataFrame, runs: pd.DataFrame, folders: Mapping[str, Path]) -> list[FigureSpec]:
    """Return the figures of HEPCNNB and of CDB: wall time by nodes and by control, and the rate of reading."""
    cells = workloads(table, runs)
    typical = typical_runs(runs, ["timelog"]) if len(cells) else {}
    made: list[FigureSpec] = []
    for name in [each for each in NAMES if (cells["benchmark"] == each).any()]:
        own = cells[cells["benchmark"] == name]
        title, stem = NAMES[name], f"nersc-{name}"
        rates = partial(points, runs=typical, folders=folders)
        made += figures(f"{stem}-latency", f"{title}: wall time of the slowest rank", stacked, by_nodes(own),
                        partial(stacks, words=_by_nodes), runs_told())  # fmt: skip
        made += figures(f"{stem}-bandwidth", f"{title}: read bandwidth by its definitions",
                        rates_over_nodes, by_nodes(own), rates, _typical_told)  # fmt: skip
        made += figures(f"{stem}-controls", f"{title}: what is left out", stacked, by_control(own),
                        partial(stacks, words=lambda row: str(row[CONTROL])), runs_told())  # fmt: skip
    return made


def _by_nodes(row: Row) -> str:
    nodes = f"{row[NODES]} node{'s' * (row[NODES] > 1)}"
    return f"{nodes}\nshuffle\n{row[SHUFFLE]}" if row[SHUFFLE] else nodes


def _typical_told(_key: object, shown: pd.DataFrame, frame: pd.DataFrame) -> str:
    formula = "The published formula takes each file for training once, whatever was read, and the rest as validation."
    told = ["By the time logs of the run of median length of each cell."]
    told += [formula] if frame["published"].notna().any() else []
    return " ".join([*told, how_many(shown)])


def _ordered(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells by nodes, local before global, controls in their order."""
    rank = {word: place for place, word in enumerate(("none", "local", "global", "no_io", "no_compute", "metadata"))}
    keys = [tuple(rank.get(word, -1) for word in words) for words in zip(cells[SHUFFLE], cells[CONTROL], strict=True)]
    placed = cells.assign(_order=pd.Series(keys, index=cells.index, dtype=object))
    return placed.sort_values([NODES, "_order", "cell"]).drop(columns="_order")


def stacks(cells: pd.DataFrame, words: Any) -> pd.DataFrame:
    """Return what is drawn: of each cell its place in words, and the seconds of the parts of its wall time."""
    ordered = _ordered(settled(cells, ["storage", NODES, SHUFFLE, CONTROL], "wall_s"))
    ordered = ordered.assign(place=[words(row) for row in rows_of(ordered)])
    return of_done(ordered, [*WALL, "io_share", *PARTS])[STACK]


@panels.framed
def stacked(frame: pd.DataFrame) -> Panels:
    """Draw the parts of the wall time on top of each other, a panel per storage; the share of reading stands above."""
    places = list(dict.fromkeys(frame["place"]))
    shown = frame[frame["wall_s"].notna()]
    top = float(shown["wall_s_max"].max()) * panels.HEADROOM
    wide, labels = max(1.6, 0.62 * len(places)), ("", "wall time (s)")
    figure, panes = panels.per_storage(frame, wide, 2.1, labels=labels, top=top)
    for axes, cells in panes:
        for row in rows_of(cells):
            _stack(axes, places.index(row["place"]), row)
        axes.set_title(f"storage {axes.get_title()}")  # a storage may be called local, as a way of shuffling is
        axes.set_xticks(range(len(places)), places, size=6.5)
        axes.set_xlim(-0.6, len(places) - 0.4)
    return figure, [*_parts(shown), *panels.unstable_sign(shown)]


def _stack(axes: Axes, x: int, row: Row) -> None:
    if math.isnan(row["wall_s"]):
        panels.gap(axes, x, row["status"])
        return
    below = 0.0
    for part in PARTS:
        panels.bar(axes, x, row[part], row, width=WIDTH, bottom=below, color=LOOKS[part][1], linewidth=0.5)
        below += row[part]
    panels.whiskers(axes, [x], [row], "wall_s")
    panels.number(axes, (x, row["wall_s_max"]), f"{INPUT[row['benchmark']]} {row['io_share']:.0%}")


def _parts(shown: pd.DataFrame) -> list[Artist]:
    parts = [part for part in PARTS if (shown[part] > 0).any()]
    return [Patch(facecolor=LOOKS[part][1], edgecolor="black", label=LOOKS[part][0]) for part in parts]


def points(cells: pd.DataFrame, runs: Mapping[str, Row], folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return what is drawn, MB/s: of each cell what the time logs of its typical run give by each definition."""
    ordered = _ordered(settled(cells, ["storage", NODES, SHUFFLE], "wall_s")).rename(columns={SHUFFLE: "shuffle"})
    found, states = [], []
    for row in rows_of(ordered):
        rates, state = dict.fromkeys(RATES, math.nan), row["status"]
        if state == "done":
            try:
                rates = _rates(row, runs[row["cell"]], folders[row["cell"]])
            except (AnalysisError, OSError, KeyError):
                state = "no time log"
        found.append(rates)
        states.append(state)
    return of_done(pd.concat([ordered.reset_index(drop=True), pd.DataFrame(found)], axis=1).assign(status=states),
                   RATES)[LINES]  # fmt: skip


def _rates(row: Row, run: Row, folder: Path) -> dict[str, float]:
    """Return MB/s of the reads of a run, of all ranks together."""
    stem = f"timelog-{int(run['run'])}"
    paths = [path for mark in (".", "-") for path in sorted(folder.glob(f"{stem}{mark}*timelog"))]
    log, _ = read(paths)
    events = log.events.at(log.events.action == log.actions.index("read"))
    ranks = frozenset(log.ranks)
    told = Definitions(log).figures(events, ranks)
    rates = {name: told["bytes_per_s"][name] for name in ("union_all", "wall")}
    if told["bytes"] is None:
        raise AnalysisError("the log does not say how many bytes were read", "")
    rates["sum_per_rank"] = told["bytes"] / told["sum_per_rank"]
    rates["published"] = _published(row, told)
    return {name: value / 1e6 for name, value in rates.items()}


def _published(row: Row, told: Mapping[str, Any]) -> float:
    """Return bytes per second by HEPCNNB's formula (`analysis.nersc_numbers.published_rate`).

    CDB's takes what was asked for.
    """
    known = [row.get(f"dataset.{name}") for name in ("train_files", "samples", "image_size")]
    if row["benchmark"] != nersc_numbers.HEPCNN or None in known:
        return math.nan
    files, samples, side = (int(str(each)) for each in known)
    of_one = 4 * (3 * side**2 + 4)
    sizes = samples * of_one, max(1, round(samples * 94 / 709)) * of_one
    return nersc_numbers.published_rate(told["count"], files, sizes, told["sum_per_rank"])


@panels.framed
def rates_over_nodes(frame: pd.DataFrame) -> Panels:
    """Draw MB/s over nodes, a panel per storage, a line per definition and way of shuffling; dotted: ideal."""
    nodes = sorted(set(frame[NODES]))
    shown = frame[frame["union_all"].notna()]
    top = (float(shown[list(RATES)].max().max()) if len(shown) else 1.0) * panels.HEADROOM
    figure, panes = panels.per_storage(frame, max(2.4, 0.8 * len(nodes)), 2.1, labels=("nodes", "MB/s"), top=top)
    for axes, cells in panes:
        for shuffle, rows in cells[cells["union_all"].notna()].groupby("shuffle"):
            _lines(axes, rows, nodes, dashed=shuffle == "global")
        panels.categories(axes, nodes)
        axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    return figure, _signs(shown)


def _lines(axes: Axes, rows: pd.DataFrame, nodes: Sequence[int], *, dashed: bool) -> None:
    own = rows_of(rows)
    places = [nodes.index(row[NODES]) for row in own]
    for place, (name, (_, marker)) in enumerate(RATES.items()):
        look: dict[str, Any] = {"color": _color(place), "linestyle": "dashed" if dashed else "solid"}
        axes.plot(places, [row[name] for row in own], marker=marker, markerfacecolor="none", **look)
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
