"""tf-Darshan's Figures 5, 7, 9, 11 and 12: POSIX bandwidth over threads and staging, and what a profile costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import paper
from analysis.figures.kit import panels, style
from analysis.figures.kit.figure import FigureSpec, figures, runs_told
from analysis.records.frame import rows_of
from analysis.records.settings import bare
from analysis.statistics.medians import counted
from analysis.statistics.ratio import ratio_of_medians
from analysis.statistics.selection import families, in_order, of_done, settled
from analysis.text.plain import share
from analysis.verdicts.tfdarshan import BANDWIDTH, OF_STAGING, STAGING, profiled, unlike_in_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from analysis.verdicts.evidence import Cell

NUMBERS = [BANDWIDTH, f"{BANDWIDTH}_min", f"{BANDWIDTH}_max"]
COLUMNS = [
    "storage", "storage_name", "threads", STAGING, *NUMBERS, "waits", "published", "n_valid", "unstable", "status",
    "host", "cell",
]  # fmt: skip
PUBLISHED: dict[str, Any] = {"color": "black", "linewidth": 1.6, "linestyle": (0, (2, 1))}
BAND = "#DDDDDD"


def specs(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    """Return the bandwidths of each profiled training of the paper, and what the profiles cost of all."""
    return [*_bandwidths(table, runs), *_costs(table, runs)]


def _bandwidths(table: pd.DataFrame, runs: pd.DataFrame) -> list[FigureSpec]:
    cells = profiled(table)
    cells = cells[cells["benchmark"].isin({name for name, _ in paper.POSIX_MB_PER_S}) & (cells.get("target") == "none")]
    if cells.empty or BANDWIDTH not in runs:
        return []
    good = counted(runs, [BANDWIDTH, "load_s", "wall_s"])
    of_cell = good.assign(waits=good["load_s"] / good["wall_s"]).groupby("cell")
    known = {f"{BANDWIDTH}{end}": getattr(of_cell[BANDWIDTH], how)() for end, how in _ENDS.items()}
    known["waits"] = of_cell["waits"].median()
    cells = cells.join(pd.DataFrame(known), on="cell")
    cells[STAGING] = cells[STAGING].fillna("") if STAGING in cells else ""
    sets = {key: each for key, each in families(cells, OF_STAGING).items() if len(each) > 1}
    title = "tf-Darshan, Figs. 7, 9, 11 and 12. POSIX bandwidth over threads and staging"
    return figures("tfdarshan-bandwidth", title, bandwidths, sets, bars, runs_told())


_ENDS = {"": "median", "_min": "min", "_max": "max"}


def bars(cells: pd.DataFrame) -> pd.DataFrame:
    """Return a row per bar: storage, threads, staging; MB/s with min and max, the share that the training waits."""
    frame = in_order(settled(cells, ["storage", "threads", STAGING], BANDWIDTH), ["threads", STAGING])
    frame["published"] = [
        paper.POSIX_MB_PER_S.get((row["benchmark"], bare(row["storage_name"])), {}).get(row["threads"], math.nan)
        * (paper.STAGING_GAIN if row[STAGING] else 1)
        for row in rows_of(frame[["benchmark", "storage_name", "threads", STAGING]])
    ]
    return of_done(frame, NUMBERS)[COLUMNS]


def bandwidths(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw MB/s as bars, a panel per storage, min-max as whiskers, the published value across its bar."""
    shown = frame[frame[BANDWIDTH].notna()]
    with style.sheet():
        figure, panes = panels.per_storage(frame, 0.9 + 0.75 * frame.groupby("storage").size().max(), 2.0)
        highest = max(float(shown[name].fillna(0).max()) for name in (NUMBERS[-1], "published"))
        panes[0][0].set_ylim(0, highest * panels.HEADROOM * 1.1)
        for place, (axes, cells) in enumerate(panes):
            _bars(axes, rows_of(cells))
            axes.set_ylabel("" if place % panels.IN_A_ROW else "POSIX MB/s read")
        signs: list[Artist] = [Line2D([], [], label=f"published: {paper.TF_DARSHAN}", **PUBLISHED)]
        signs = signs if shown["published"].notna().any() else []
        more = f"{words} Below a bar: the share of its time that the training waits for input."
        panels.frame_with_words(figure, title, more, [*signs, *panels.unstable_sign(shown)])
    return figure


def _bars(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    for place, row in enumerate(rows):
        if math.isnan(row[BANDWIDTH]):
            panels.gap(axes, place, row["status"])
            continue
        panels.bar(axes, place, row[BANDWIDTH], row, color=style.look(row["storage_name"]).color, width=0.62)
        if not math.isnan(row["published"]):
            axes.hlines(row["published"], place - 0.42, place + 0.42, **PUBLISHED, zorder=3)
        over = panels.clear_of(axes, row[NUMBERS[-1]], row["published"], n=False)
        panels.number(axes, (place, over), panels.median_text(row, BANDWIDTH, n=False))
    drawn = [place for place, row in enumerate(rows) if not math.isnan(row[BANDWIDTH])]
    panels.whiskers(axes, drawn, [rows[place] for place in drawn], BANDWIDTH)
    axes.set_xticks(range(len(rows)), [_named(row) for row in rows])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.65, len(rows) - 0.35)


def _named(row: dict[str, Any]) -> str:
    staged = f"\n{row[STAGING]} staged" if row[STAGING] else ""
    waits = "" if math.isnan(row["waits"]) else f"\nwaits {share(row['waits'])}"
    return f"{row['threads']} thread{'s' * (row['threads'] != 1)}{staged}{waits}"


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


def costs(frame: pd.DataFrame, title: str, words: str) -> Figure:
    """Draw the share that is added to each workload, and the band that is published."""
    rows = rows_of(frame)
    with style.sheet():
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
        panels.frame_with_words(figure, title, words, [Patch(facecolor=BAND, label=label)])
    return figure
