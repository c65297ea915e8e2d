"""tf-Darshan's Figures 5 to 7, 9, 11 and 12: bandwidth over threads and staging, fwrite calls, cost of a profile."""

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
from analysis.claims.tfdarshan2020 import BANDWIDTH, FWRITES, OF_STAGING, STAGING, profiled, unlike_in_profile
from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figures
from analysis.records.frame import rows_of
from analysis.records.settings import bare
from analysis.statistics.medians import counted
from analysis.statistics.ratio import ratio_of_medians
from analysis.statistics.selection import families, in_order, of_done, settled
from analysis.text import share

if TYPE_CHECKING:
    from analysis.claims.cell_sets import Cell
    from analysis.figures.kit.panels import Panels
    from analysis.records.frame import Row
    from analysis.records.settings import Settings

PLACE = ["storage", "threads", STAGING]
OF_CELL = ["published", "n_valid", "unstable", "status", "host", "cell"]
BAND = "#DDDDDD"


class Bars(NamedTuple):
    """The description of a figure with one bar per cell: file name, texts, metric, and the column below each bar."""

    stem: str
    title: str
    figure: str
    label: str
    more: str  # end of the caption
    beside: str  # column of the number below a bar
    published: Callable[[Row], float]  # a function with a name: figures are drawn in processes of their own


def _fwrites(row: Row) -> float:
    return tfdarshan2020.FWRITES_A_CHECKPOINT * float(row["checkpoints"])


def _bandwidth(row: Row) -> float:
    published = tfdarshan2020.POSIX_MB_PER_S.get((row["benchmark"], bare(row["storage_name"])), {})
    return published.get(row["threads"], math.nan) * (tfdarshan2020.STAGING_GAIN if row[STAGING] else 1)


BANDWIDTHS = Bars(
    "tfdarshan-bandwidth", "tf-Darshan, Figs. 7, 9, 11 and 12. POSIX bandwidth over threads and staging", BANDWIDTH,
    "POSIX MB/s read", "Below a bar: the share of its time that the training waits for input.", "waits",
    _bandwidth,
)  # fmt: skip
SAVES = Bars(
    "tfdarshan-fwrite", "tf-Darshan, Fig. 6. fwrite calls of checkpoints", FWRITES, "fwrite calls",
    "How many calls a checkpoint takes follows from the tensors of the network and their sizes.", "checkpoints",
    _fwrites,
)  # fmt: skip


def specs(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    """Return the figures of bandwidth and fwrite calls of the paper's trainings, and of the cost of all profiles."""
    return [*_bars(table, runs), *_costs(table, runs)]


def _bars(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    cells = profiled(table)
    if cells.empty or not {BANDWIDTH, "load_s", "target"} <= {*runs, *cells}:
        return []
    waits, cells = runs["load_s"] / runs["wall_s"], cells.assign(**{STAGING: cells.get(STAGING)}).fillna({STAGING: ""})
    added = {"waits": waits, "checkpoints": runs.get("checkpoints_asked")}
    runs, saving = pd.concat([runs, pd.DataFrame(added, runs.index)], axis=1), cells["target"] != "none"
    reading = cells[cells["benchmark"].isin({name for name, _ in tfdarshan2020.POSIX_MB_PER_S}) & ~saving]
    sets = {key: each for key, each in families(reading, OF_STAGING).items() if len(each) > 1}
    saves = families(cells[saving & (cells["benchmark"] == paper.APPLICATION)], OF_STAGING) if FWRITES in runs else {}
    return [
        spec for kind, of, draw in ((BANDWIDTHS, sets, bandwidths), (SAVES, saves, fwrites))
        for spec in figures(kind.stem, kind.title, draw, of, partial(_numbers, kind, runs), _caption(kind))
    ]  # fmt: skip


def _numbers(kind: Bars, runs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return one row per bar: its place, the metric with min and max, the number below it, the published value."""
    of_cell = counted(runs, [kind.figure, kind.beside]).groupby("cell")
    ends = {f"{kind.figure}{end}": of_cell[kind.figure].agg(how)
            for end, how in (("", "median"), ("_min", "min"), ("_max", "max"))}  # fmt: skip
    cells = cells.join(pd.DataFrame(ends | {kind.beside: of_cell[kind.beside].median()}), on="cell")
    frame = in_order(settled(cells, PLACE, kind.figure), PLACE[1:])
    names = ["benchmark", "storage_name", *PLACE[1:], kind.beside]
    frame = frame.assign(published=[kind.published(row) for row in rows_of(frame[names])])
    return of_done(frame, ends)[[PLACE[0], "storage_name", *PLACE[1:], *ends, kind.beside, *OF_CELL]]


def _caption(kind: Bars) -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    return lambda *shown: f"{caption_of_runs()(*shown)} {kind.more}"


@panels.framed
def bandwidths(frame: pd.DataFrame) -> Panels:
    """Draw the POSIX bandwidth, a panel per storage."""
    return _drawn(BANDWIDTHS, frame)


@panels.framed
def fwrites(frame: pd.DataFrame) -> Panels:
    """Draw the fwrite calls, a panel per storage."""
    return _drawn(SAVES, frame)


def _drawn(kind: Bars, frame: pd.DataFrame) -> Panels:
    """Draw a panel per storage, with whiskers, the published value across its bar."""
    shown = frame[frame[kind.figure].notna()]
    top = panels.top_of(shown, f"{kind.figure}_max", "published", headroom=panels.HEADROOM * 1.1)
    wide = 0.9 + 0.75 * frame.groupby("storage").size().max()
    n = panels.several_n(shown)
    figure, panes = panels.per_storage(frame, wide, 2.0, labels=("", kind.label), top=top)
    for axes, cells in panes:
        rows = rows_of(cells)
        panels.bars(axes, range(len(rows)), rows, kind.figure, 0.62, published="published", n=n)
        panels.categories(axes, [_named(row) for row in rows])
    sign = panels.published_sign(f"published: {tfdarshan2020.PAPER}")
    return figure, [sign] if shown["published"].notna().any() else []


def _named(row: Row) -> str:
    threads = f"{row['threads']} thread{'s' * (row['threads'] != 1)}"
    staged = f"{row[STAGING]} staged" if row[STAGING] else ""
    waits = "" if math.isnan(row.get("waits", math.nan)) else f"waits {share(row['waits'])}"
    saves = f"{row['checkpoints']:g} checkpoints" if "checkpoints" in row else ""
    return "\n".join(filter(None, (threads, staged, waits, saves)))


def _costs(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    pairs = unlike_in_profile(table)
    if not pairs:
        return []
    frame = pd.DataFrame([_cost(plain, traced, runs) for plain, traced in pairs])
    pairs_of_cells = f"{len(frame)} pair{'s' * (len(frame) > 1)}"
    sentence = f"Ratio of the medians of two cells, less one; the whisker is its 95 % interval; {pairs_of_cells}."
    hosts = ", ".join(sorted(set(frame["host"])))
    title = "tf-Darshan, Fig. 5. How much longer a run is while every call is seen"
    return [FigureSpec("tfdarshan-overhead", title, f"{sentence} Host {hosts}.", frame, costs)]


def _cost(plain: Cell, traced: Cell, runs: pd.DataFrame) -> dict[str, Any]:
    walls = [counted(runs[runs["cell"] == cell["cell"]], ["wall_s"])["wall_s"].tolist() for cell in (plain, traced)]
    ratio = ratio_of_medians(*walls)
    work = {paper.MICRO: "STREAM"}.get(traced["benchmark"], traced["benchmark"])
    return {
        "work": f"{work}, {traced['series_key'].facts.get('dataset.name')}\n{traced['storage']}",
        "added": ratio.value - 1, "added_low": ratio.low - 1, "added_high": ratio.high - 1,
        "status": "done", "host": traced["host"], "cell": traced["cell"], "cell_without": plain["cell"],
    }  # fmt: skip


@panels.framed
def costs(frame: pd.DataFrame) -> Panels:
    """Draw how much longer (%) each workload is with a profile, and the published range as a band."""
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
