"""tf-Darshan's Figures 5 to 7, 9, 11 and 12: bandwidth over threads and staging, fwrite calls, what a profile costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import paper
from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, figures, runs_told
from analysis.records.frame import rows_of
from analysis.records.settings import bare
from analysis.statistics.medians import counted
from analysis.statistics.ratio import ratio_of_medians
from analysis.statistics.selection import families, in_order, of_done, settled
from analysis.text.plain import share
from analysis.verdicts.tfdarshan_claims import BANDWIDTH, FWRITES, OF_STAGING, STAGING, profiled, unlike_in_profile

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from analysis.figures.kit.panels import Panels
    from analysis.records.frame import Row
    from analysis.records.settings import Settings
    from analysis.verdicts.evidence import Cell

PLACE = ["storage", "threads", STAGING]
OF_CELL = ["published", "n_valid", "unstable", "status", "host", "cell"]
PUBLISHED: dict[str, Any] = {"color": "black", "linewidth": 1.6, "linestyle": (0, (2, 1))}
BAND = "#DDDDDD"


class Bars(NamedTuple):
    """A figure with a bar a cell: its words, the figure of runs that it draws, and what stands below each bar."""

    stem: str
    title: str
    figure: str
    label: str
    more: str  # of the caption
    beside: str  # column of what stands below
    published: Callable[[Row], float]  # a function with a name: figures are drawn in processes of their own


def _fwrites(row: Row) -> float:
    return paper.FWRITES * float(row["checkpoints"])


def _bandwidth(row: Row) -> float:
    known = paper.POSIX_MB_PER_S.get((row["benchmark"], bare(row["storage_name"])), {})
    return known.get(row["threads"], math.nan) * (paper.STAGING_GAIN if row[STAGING] else 1)


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
    """Return the bandwidths and the fwrite calls of each profiled training of the paper, and what all profiles cost."""
    return [*_bars(table, runs), *_costs(table, runs)]


def _bars(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    cells = profiled(table)
    if cells.empty or not {BANDWIDTH, "load_s", "target"} <= {*runs, *cells}:
        return []
    waits, cells = runs["load_s"] / runs["wall_s"], cells.assign(**{STAGING: cells.get(STAGING)}).fillna({STAGING: ""})
    runs, saving = runs.assign(waits=waits, checkpoints=runs.get("checkpoints_asked")), cells["target"] != "none"
    reading = cells[cells["benchmark"].isin({name for name, _ in paper.POSIX_MB_PER_S}) & ~saving]
    sets = {key: each for key, each in families(reading, OF_STAGING).items() if len(each) > 1}
    saves = families(cells[saving & (cells["benchmark"] == paper.APPLICATION)], OF_STAGING) if FWRITES in runs else {}
    return [
        spec for kind, of, draw in ((BANDWIDTHS, sets, bandwidths), (SAVES, saves, fwrites))
        for spec in figures(kind.stem, kind.title, draw, of, partial(_numbers, kind, runs), _told(kind))
    ]  # fmt: skip


def _numbers(kind: Bars, runs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row per bar: its place, the figure with min and max, what stands below it, and what is published."""
    of_cell = counted(runs, [kind.figure, kind.beside]).groupby("cell")
    ends = {f"{kind.figure}{end}": of_cell[kind.figure].agg(how)
            for end, how in (("", "median"), ("_min", "min"), ("_max", "max"))}  # fmt: skip
    cells = cells.join(pd.DataFrame(ends | {kind.beside: of_cell[kind.beside].median()}), on="cell")
    frame = in_order(settled(cells, PLACE, kind.figure), PLACE[1:])
    names = ["benchmark", "storage_name", *PLACE[1:], kind.beside]
    frame = frame.assign(published=[kind.published(row) for row in rows_of(frame[names])])
    return of_done(frame, ends)[[PLACE[0], "storage_name", *PLACE[1:], *ends, kind.beside, *OF_CELL]]


def _told(kind: Bars) -> Callable[[Settings, pd.DataFrame, pd.DataFrame], str]:
    return lambda *shown: f"{runs_told()(*shown)} {kind.more}"


@panels.framed
def bandwidths(frame: pd.DataFrame) -> Panels:
    """Draw the POSIX bandwidth, a panel per storage."""
    return _drawn(BANDWIDTHS, frame)


@panels.framed
def fwrites(frame: pd.DataFrame) -> Panels:
    """Draw the fwrite calls, a panel per storage."""
    return _drawn(SAVES, frame)


def _drawn(kind: Bars, frame: pd.DataFrame) -> Panels:
    """Draw a panel per storage, min-max as whiskers, the published value across its bar."""
    shown = frame[frame[kind.figure].notna()]
    highest = max(float(shown[name].fillna(0).max()) for name in (f"{kind.figure}_max", "published"))
    wide, top = 0.9 + 0.75 * frame.groupby("storage").size().max(), highest * panels.HEADROOM * 1.1
    figure, panes = panels.per_storage(frame, wide, 2.0, labels=("", kind.label), top=top)
    for axes, cells in panes:
        _panel(kind, axes, rows_of(cells))
    signs: list[Artist] = [Line2D([], [], label=f"published: {paper.TF_DARSHAN}", **PUBLISHED)]
    return figure, [*(signs if shown["published"].notna().any() else []), *panels.unstable_sign(shown)]


def _panel(kind: Bars, axes: Axes, rows: list[Row]) -> None:
    name = kind.figure
    for place, row in enumerate(rows):
        if math.isnan(row[name]):
            panels.gap(axes, place, row["status"])
            continue
        panels.bar(axes, place, row[name], row, color=storage_colours.look(row["storage_name"]).color, width=0.62)
        if not math.isnan(row["published"]):
            axes.hlines(row["published"], place - 0.42, place + 0.42, **PUBLISHED, zorder=3)
        over = panels.clear_of(axes, row[f"{name}_max"], row["published"], n=False)
        panels.number(axes, (place, over), panels.median_text(row, name, n=False))
    drawn = [place for place, row in enumerate(rows) if not math.isnan(row[name])]
    panels.whiskers(axes, drawn, [rows[place] for place in drawn], name)
    panels.categories(axes, [_named(row) for row in rows])


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
    told = f"Each: the ratio of the medians of two cells, less one, with its 95 % interval; {len(frame)} pairs."
    hosts = ", ".join(sorted(set(frame["host"])))
    title = "tf-Darshan, Fig. 5. How much longer a run is while every call is seen"
    return [FigureSpec("tfdarshan-overhead", title, f"{told} Host {hosts}.", frame, costs)]


def _cost(plain: Cell, traced: Cell, runs: pd.DataFrame) -> dict[str, Any]:
    walls = [counted(runs[runs["cell"] == cell["cell"]], ["wall_s"])["wall_s"].tolist() for cell in (plain, traced)]
    found = ratio_of_medians(*walls)
    work = {paper.MICRO: "STREAM"}.get(traced["benchmark"], traced["benchmark"])
    return {
        "work": f"{work}, {traced['series_key'].facts.get('dataset.name')}\n{traced['storage']}",
        "added": found.value - 1, "added_low": found.low - 1, "added_high": found.high - 1,
        "status": "done", "host": traced["host"], "cell": traced["cell"], "cell_without": plain["cell"],
    }  # fmt: skip


@panels.framed
def costs(frame: pd.DataFrame) -> Panels:
    """Draw the share that is added to each workload, and the band that is published."""
    rows = rows_of(frame)
    figure = Figure(figsize=(5.2, 1.3 + 0.42 * len(rows)))
    axes = figure.subplots()
    low, high = paper.OVERHEAD
    axes.axvspan(low * 100, high * 100, color=BAND)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        ends = [[(row["added"] - row["added_low"]) * 100], [(row["added_high"] - row["added"]) * 100]]
        axes.errorbar([row["added"] * 100], [place], xerr=ends, **{**panels.WHISKER, "fmt": "o", "color": "black"})
    axes.set_yticks(range(len(rows)), [row["work"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("longer than without a profile (%)")
    label = f"published: {low:.0%} to {high:.0%} ({paper.TF_DARSHAN})"
    return figure, [Patch(facecolor=BAND, label=label)]
