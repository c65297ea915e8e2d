"""Draw Figures 5 to 7, 9, 11 and 12 of the tf-Darshan paper: bandwidth, fwrite calls, and cost of profiling."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis import paper
from analysis.claims import tfdarshan2020
from analysis.claims.tfdarshan2020 import BANDWIDTH, FWRITES, OF_STAGING, STAGING, pairs_by_profile, profiled_rows
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.records.frame import rows_of
from analysis.records.settings import plain_storage_name
from analysis.statistics.medians import valid_measured_runs
from analysis.statistics.ratio import ratio_of_medians
from analysis.statistics.selection import (
    numbers_of_done_cells,
    sets_of_settings,
    sort_as_in_paper,
    with_status_of_drawing,
)
from analysis.text import percentage

if TYPE_CHECKING:
    from analysis.claims.cell_sets import Cell
    from analysis.figures.kit.panels import Panels
    from analysis.records.frame import Row
    from analysis.records.settings import Settings

PLACE = ["storage", "threads", STAGING]
OF_CELL = ["published", "n_valid", "unstable", "status", "host", "cell"]
BAND = "#DDDDDD"


class BarChart(NamedTuple):
    """The description of a figure with one bar per cell: file stem, texts, metric, and the number below each bar."""

    stem: str
    title: str
    figure: str
    label: str
    more: str  # the last sentence of the caption
    beside: str  # the column with the number that is written below a bar
    published: Callable[[Row], float]  # no lambda, because the function is pickled for the processes that draw


def _fwrites(row: Row) -> float:
    return tfdarshan2020.FWRITES_A_CHECKPOINT * float(row["checkpoints"])


def _bandwidth(row: Row) -> float:
    published = tfdarshan2020.POSIX_MB_PER_S.get((row["benchmark"], plain_storage_name(row["storage_name"])), {})
    return published.get(row["threads"], math.nan) * (tfdarshan2020.STAGING_GAIN if row[STAGING] else 1)


BANDWIDTHS = BarChart(
    "tfdarshan-bandwidth", "tf-Darshan, Figs. 7, 9, 11 and 12. POSIX bandwidth over threads and staging", BANDWIDTH,
    "POSIX MB/s read", "Below a bar: the share of its time that the training waits for input.", "waits",
    _bandwidth,
)  # fmt: skip
SAVES = BarChart(
    "tfdarshan-fwrite", "tf-Darshan, Fig. 6. fwrite calls of checkpoints", FWRITES, "fwrite calls",
    "How many calls a checkpoint takes follows from the tensors of the network and their sizes.", "checkpoints",
    _fwrites,
)  # fmt: skip


def chart_specs(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    """Return the figures of POSIX bandwidth, of fwrite calls, and of the cost of profiling."""
    return [*_bars(table, runs), *_costs(table, runs)]


def _bars(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    cells = profiled_rows(table)
    if cells.empty or not {BANDWIDTH, "load_s", "target"} <= {*runs, *cells}:
        return []
    waits, cells = runs["load_s"] / runs["wall_s"], cells.assign(**{STAGING: cells.get(STAGING)}).fillna({STAGING: ""})
    added = {"waits": waits, "checkpoints": runs.get("checkpoints_asked")}
    runs, saving = pd.concat([runs, pd.DataFrame(added, runs.index)], axis=1), cells["target"] != "none"
    reading = cells[cells["benchmark"].isin({name for name, _ in tfdarshan2020.POSIX_MB_PER_S}) & ~saving]
    sets = {key: each for key, each in sets_of_settings(reading, OF_STAGING).items() if len(each) > 1}
    saves = (
        sets_of_settings(cells[saving & (cells["benchmark"] == paper.APPLICATION)], OF_STAGING)
        if FWRITES in runs
        else {}
    )
    return [
        spec for kind, of, draw in ((BANDWIDTHS, sets, draw_bandwidths), (SAVES, saves, draw_fwrites))
        for spec in figure_specs(kind.stem, kind.title, draw, of, partial(_numbers, kind, runs), _caption(kind))
    ]  # fmt: skip


def _numbers(kind: BarChart, runs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a chart, which has one row per bar.

    A row has the settings of the cell, the metric with minimum and maximum, the number below the bar, and the published
    value.
    """
    of_cell = valid_measured_runs(runs, [kind.figure, kind.beside]).groupby("cell")
    ends = {f"{kind.figure}{end}": of_cell[kind.figure].agg(how)
            for end, how in (("", "median"), ("_min", "min"), ("_max", "max"))}  # fmt: skip
    cells = cells.join(pd.DataFrame(ends | {kind.beside: of_cell[kind.beside].median()}), on="cell")
    frame = sort_as_in_paper(with_status_of_drawing(cells, PLACE, kind.figure), PLACE[1:])
    names = ["benchmark", "storage_name", *PLACE[1:], kind.beside]
    frame = frame.assign(published=[kind.published(row) for row in rows_of(frame[names])])
    return numbers_of_done_cells(frame, ends)[[PLACE[0], "storage_name", *PLACE[1:], *ends, kind.beside, *OF_CELL]]


def _caption(kind: BarChart) -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    return lambda *shown: f"{caption_of_runs()(*shown)} {kind.more}"


@panels.complete_figure
def draw_bandwidths(frame: pd.DataFrame) -> Panels:
    """Draw the POSIX bandwidth of each cell as a bar, with one panel per storage."""
    return _drawn(BANDWIDTHS, frame)


@panels.complete_figure
def draw_fwrites(frame: pd.DataFrame) -> Panels:
    """Draw the number of fwrite calls of each cell as a bar, with one panel per storage."""
    return _drawn(SAVES, frame)


def _drawn(kind: BarChart, frame: pd.DataFrame) -> Panels:
    """Draw a bar chart with one panel per storage, whiskers, and marks of the published values."""
    shown = frame[frame[kind.figure].notna()]
    top = panels.axis_top(shown, f"{kind.figure}_max", "published", headroom=panels.HEADROOM * 1.1)
    wide = 0.9 + 0.75 * frame.groupby("storage").size().max()
    n = panels.needs_run_counts(shown)
    figure, panes = panels.storage_panels(frame, wide, 2.0, labels=("", kind.label), top=top)
    for axes, cells in panes:
        rows = rows_of(cells)
        panels.draw_bars(axes, range(len(rows)), rows, kind.figure, 0.62, published="published", n=n)
        panels.set_categories(axes, [_named(row) for row in rows])
    sign = panels.published_sign(f"published: {tfdarshan2020.PAPER}")
    return figure, [sign] if shown["published"].notna().any() else []


def _named(row: Row) -> str:
    threads = f"{row['threads']} thread{'s' * (row['threads'] != 1)}"
    staged = f"{row[STAGING]} staged" if row[STAGING] else ""
    waits = "" if math.isnan(row.get("waits", math.nan)) else f"waits {percentage(row['waits'])}"
    saves = f"{row['checkpoints']:g} checkpoints" if "checkpoints" in row else ""
    return "\n".join(filter(None, (threads, staged, waits, saves)))


def _costs(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    pairs = pairs_by_profile(table)
    if not pairs:
        return []
    frame = pd.DataFrame([_cost(plain, traced, runs) for plain, traced in pairs])
    pairs_of_cells = f"{len(frame)} pair{'s' * (len(frame) > 1)}"
    sentence = f"Ratio of the medians of two cells, less one; the whisker is its 95 % interval; {pairs_of_cells}."
    hosts = ", ".join(sorted(set(frame["host"])))
    title = "tf-Darshan, Fig. 5. How much longer a run is while every call is seen"
    return [FigureSpec("tfdarshan-overhead", title, f"{sentence} Host {hosts}.", frame, draw_profile_costs)]


def _cost(plain: Cell, traced: Cell, runs: pd.DataFrame) -> dict[str, Any]:
    walls = [
        valid_measured_runs(runs[runs["cell"] == cell["cell"]], ["wall_s"])["wall_s"].tolist()
        for cell in (plain, traced)
    ]
    ratio = ratio_of_medians(*walls)
    work = {paper.MICRO: "STREAM"}.get(traced["benchmark"], traced["benchmark"])
    return {
        "work": f"{work}, {traced['series_key'].facts.get('dataset.name')}\n{traced['storage']}",
        "added": ratio.value - 1, "added_low": ratio.low - 1, "added_high": ratio.high - 1,
        "status": "done", "host": traced["host"], "cell": traced["cell"], "cell_without": plain["cell"],
    }  # fmt: skip


@panels.complete_figure
def draw_profile_costs(frame: pd.DataFrame) -> Panels:
    """Draw by how many percent profiling makes each workload longer, and the published range as a band."""
    rows = rows_of(frame)
    figure = Figure(figsize=(5.2, 1.3 + 0.42 * len(rows)))
    axes = figure.subplots()
    low, high = tfdarshan2020.OVERHEAD_SHARES
    axes.axvspan(low * 100, high * 100, color=BAND)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        ends = [[(row["added"] - row["added_low"]) * 100], [(row["added_high"] - row["added"]) * 100]]
        axes.errorbar([row["added"] * 100], [place], xerr=ends, **{**panels.WHISKER, "fmt": "o", "color": "black"})
    axes.set_yticks(range(len(rows)), [row["work"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("longer than without a profile (%)")
    label = f"published: {low:.0%} to {high:.0%}, {tfdarshan2020.PAPER}"
    return figure, [Patch(facecolor=BAND, label=label)]
