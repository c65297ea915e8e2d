"""Draw the utilization (AU) and the MB/s over the number of accelerators that read from a storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D

from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import Settings, reduced_set_key
from analysis.statistics.selection import numbers_of_done_cells, with_status_of_drawing
from jobs.judging.fed_accelerators import (
    NOT_MLPERF,
    Outcomes,
    Setup,
    accelerator_label,
    edge_of,
    feed_sentence,
    outcome_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from analysis.figures.kit.panels import Panels

TITLE = f"Accelerators that the storage feeds ({NOT_MLPERF})"
NUMBER, SHARE, RATE, WAIT = "benchmark.accelerators", "au_percent", "read_mb_per_s", "cpu_wait_percent_max"
STEP = "accelerator.step_s"
OWN = [f"accelerator.{name}" for name in ("name", "minimum", "step_s", "batch", "sample_bytes")]
NUMBERS = [f"{metric}{end}" for metric in (SHARE, RATE) for end in ("", "_min", "_max")]
OF_RUN = ("role", "status", "cause", SHARE, "cpu_wait_percent")
PLACE = ["storage", "batches", NUMBER]
COLUMNS = [
    *PLACE, "storage_name", *NUMBERS, WAIT, "demand", "minimum", "baseline", "n_valid", "unstable", "status", "host",
    "cell",
]  # fmt: skip
_FREE = frozenset({NUMBER, "benchmark.source", "cache", "data", "dataset.files", "iterations"})
_STYLES = {"cold": "solid", "warm": "dotted", "memory": "dashed"}
_LEAST = 2  # a chart is drawn only if at least this many numbers of accelerators were measured


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of cells that differ only in the number of accelerators and the source of batches."""
    return figure_specs(
        "feed", TITLE, draw_utilization, _searches(table), chart_table, caption_of_runs("point"), worth=_several
    )


def _searches(table: pd.DataFrame, *free: str) -> dict[Settings, pd.DataFrame]:
    """Return the cells of each search for the number of accelerators that a storage can serve.

    The cells of a search may be on several storages, and may differ in the settings `free`.
    """
    if not {NUMBER, SHARE, *OWN} <= {*table}:
        return {}
    cells = table[table[NUMBER].notna() & table["accelerator.minimum"].notna()]
    return group_rows(cells, cells["set_key"].map(lambda key: reduced_set_key(key, _FREE.union(free))))


def _several(frame: pd.DataFrame) -> bool:
    done = frame[frame["status"] == "done"]
    return len(set(done[NUMBER])) >= _LEAST


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart, which has one row per storage, source of batches and number of accelerators.

    ``demand`` has the MB/s that the accelerators need to compute without waiting. ``baseline`` has the MB/s at which
    one file is read from end to end.
    """
    own = {name.partition(".")[2]: cells[name] for name in OWN}
    need = cells[NUMBER] * own["batch"] * own["sample_bytes"] / own["step_s"] / 1e6
    percent = cells["percent_of_baseline"] if "percent_of_baseline" in cells else float("nan")
    frame = cells.assign(
        batches=cells["cache"].where(cells["benchmark.source"] != "memory", "memory"),
        demand=need * cells.get("nodes", 1),
        minimum=100 * own["minimum"],
        baseline=100 * cells[RATE] / percent,
    )
    frame = frame.astype(dict.fromkeys((*NUMBERS, WAIT, "demand", "minimum", "baseline"), "float64") | {NUMBER: int})
    frame = numbers_of_done_cells(with_status_of_drawing(frame, PLACE, SHARE), NUMBERS)
    return frame.sort_values([*PLACE, "cell"])[COLUMNS].reset_index(drop=True)


@panels.complete_figure
def draw_utilization(frame: pd.DataFrame) -> Panels:
    """Draw two panels over the number of accelerators.

    The left panel has the utilization of the worst accelerator, and the minimum utilization. The right panel has the
    measured MB/s, the MB/s that the accelerators need, and the MB/s of the baseline.
    """
    figure, (left, right) = panels.panel_grid(2, 2, (2.9, 2.4), 5.6)
    shown = frame[frame[SHARE].notna()]
    for (_, batches), rows in shown.groupby(["storage", "batches"], sort=False):
        look = storage_colours.look_of_storage(rows["storage_name"].iloc[0])
        _line(left, rows, SHARE, look, _STYLES.get(str(batches), "dashdot"))
        if batches == "cold":
            _line(right, rows, RATE, look, "solid")
    left.axhline(frame["minimum"].iloc[0], color="0.3", linewidth=0.8, linestyle="dashed")
    numbers = sorted(set(frame[NUMBER]))
    needs = frame.drop_duplicates(NUMBER).sort_values(NUMBER)
    right.plot(needs[NUMBER], needs["demand"], color="0.3", linewidth=0.8, linestyle="dashed")
    for _, rows in shown[shown["baseline"].notna()].groupby("storage"):
        look = storage_colours.look_of_storage(rows["storage_name"].iloc[0])
        right.axhline(rows["baseline"].iloc[0], color=look.color, linewidth=0.8, linestyle="dotted")
    left.set_ylabel("AU of the worst accelerator (%)")
    right.set_ylabel("MB/s read")
    for axes, top in ((left, 110.0), (right, 1.1 * float(frame[["demand", f"{RATE}_max", "baseline"]].max().max()))):
        axes.set_xlabel("accelerators per node")
        axes.set_xticks(numbers)
        axes.minorticks_off()
        axes.set_ylim(0, top)
    storages = dict.fromkeys(zip(frame["storage"], frame["storage_name"], strict=True))
    return figure, [
        *(panels.line_sign(storage, storage_colours.look_of_storage(name)) for storage, name in storages),
        *(_sign(f"batches {name}", _STYLES[name]) for name in dict.fromkeys(shown["batches"]) if name in _STYLES),
        _sign("needed: share at least, MB/s at 100 %", "dashed"),
        _sign("one file, end to end", "dotted"),
    ]


def _sign(label: str, style: Any) -> Line2D:
    return Line2D([], [], color="0.3", linewidth=0.8, linestyle=style, label=label)


def _line(axes: Axes, rows: pd.DataFrame, metric: str, look: storage_colours.StorageLook, style: str) -> None:
    panels.draw_line(axes, rows[NUMBER].tolist(), rows_of(rows), metric, look, style, n=panels.needs_run_counts(rows))


def answers(table: pd.DataFrame, runs: pd.DataFrame) -> Iterator[str]:
    """Yield the answer of each finished search, for each storage and accelerator.

    The answer is the sentence that the command `feed` prints too.
    """
    for searches in _searches(table, STEP).values():
        for (storage, step_s), rows in searches.groupby(["storage", STEP], sort=False):
            if len(rows) == 1 and step_s > searches[STEP].min():
                continue  # a probe with a longer step, with which `feed` searches for a number below one
            outcomes, minimum = _outcomes(chart_table(rows), runs), 100 * rows["accelerator.minimum"].iloc[0]
            nodes = rows["nodes"].iloc[0] if "nodes" in rows else 1
            if edge := edge_of(outcomes, minimum):
                what = accelerator_label(rows["accelerator.name"].iloc[0], nodes)
                yield f"{feed_sentence(str(storage), what, edge, outcomes, minimum)} ({NOT_MLPERF})"


def _outcomes(frame: pd.DataFrame, runs: pd.DataFrame) -> Outcomes:
    """Return the outcomes of the probes in the table of a chart, where a probe is one cell of a search.

    Only probes that are done, or that ended because the client was late, have an outcome.
    """
    runs = runs[runs["cell"].isin(frame["cell"])].fillna({"cpu_wait_percent": 0.0})
    runs_of_cell = {cell: rows_of(rows, OF_RUN) for cell, rows in runs.groupby("cell")}
    outcomes = {}
    for row in rows_of(frame[frame["status"] != "ambiguous"]):
        outcome = outcome_of(runs_of_cell.get(row["cell"], ()))
        if row["status"] == "done" or outcome.late:
            outcomes[Setup(row[NUMBER], row["batches"])] = outcome
    return outcomes
