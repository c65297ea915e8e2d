"""Draw the figure of a benchmark that no paper has: its main metric over each swept setting."""

from __future__ import annotations

import math
import re
import textwrap

import pandas as pd
from matplotlib.axes import Axes

from analysis import paper
from analysis.figures.kit import panels, storage_colours
from analysis.figures.kit.figure_spec import (
    FigureSpec,
    caption,
    sentence_on_counts,
    sentence_on_cut,
    sentences_on_statistic,
    thin_out_axes,
)
from analysis.figures.kit.panels import Panels
from analysis.records.frame import rows_of
from analysis.statistics.selection import (
    cells_of_commonest_values,
    is_number,
    numbers_of_done_cells,
    plain_sets,
    setting_sort_key,
    swept_names,
    with_status_of_drawing,
)

STORAGE = "storage"
PLACE = ["swept", "value", "storage"]
COLUMNS = [
    "swept", "value", "held", "storage", "storage_name", "median", "min", "max", "n_valid", "unstable", "figure",
    "unit", "better", "status", "host", "cell",
]  # fmt: skip
IN_A_ROW = 3
ACROSS = 42  # maximum number of characters in a line of a panel's title
# New names for the columns of the main metric, because `panels.draw_line` expects the names `merit`, `merit_min` etc.
MERIT = {"median": "merit", **{end: f"merit_{end}" for end in ("min", "max", "low", "high")}}
# The maximum number of tick labels on an axis.
MOST_TICKS = 12
# Tick labels are rotated if they have more characters in total than this limit, because they would overlap.
LETTERS = 20
# An axis is logarithmic if the largest value divided by the smallest value is at least this number.
WIDE = 16


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per benchmark and version that has a done cell.

    Each panel shows cells that differ in one swept setting. The other settings have the values with most measurements.
    If only the storage was swept, a single panel compares the storages.
    """
    charts = []
    for shared, every in plain_sets(table):
        cells, cuts = thin_out_axes(every, [STORAGE])
        frame = chart_table(cells)
        shown = cells[cells["cell"].isin(frame["cell"][frame["status"] == "done"])]
        if shown.empty:
            continue
        facts = shared.facts
        cuts += [f"{len(shown)} of {len(every)} cells"] * (len(shown) < len(every))
        words = caption(
            facts,
            (),
            shown,
            f"{sentences_on_statistic(shown, 'point')} {sentence_on_counts(shown)}{sentence_on_cut(cuts)}",
        )
        several = len(set(table["benchmark_version"][table["benchmark"] == facts["benchmark"]])) > 1
        name = f"{facts['benchmark']} version {facts['benchmark_version']}" if several else str(facts["benchmark"])
        *first, last = dict.fromkeys(frame["swept"])
        title = f"{name}: {frame['figure'].iloc[0]} over {' and '.join(filter(None, (', '.join(first), last)))}"
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", f"sweep-{name}")
        charts.append(FigureSpec(stem, title, words, frame, draw_swept_settings))
    return charts


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart, which has one row per swept value and storage.

    A cell that cannot be drawn has a row too, with its status and without numbers.
    """
    names = swept_names(cells)
    parts = []
    for name in names:
        others = [other for other in names if other != name]
        alike = cells_of_commonest_values(cells, name, others)
        at = ", ".join(f"{other}={alike[other].iloc[0]}" for other in others)
        parts.append(alike.assign(swept=name, value=alike[name], held=at))
    parts = [part for part in parts if len(set(part["value"])) > 1] or [
        cells.assign(swept=STORAGE, value=cells["storage"], held="")
    ]
    frame = pd.concat(parts, ignore_index=True)
    figure = str(frame["figure"].iloc[0])
    ends = {"median": figure, "min": f"{figure}_min", "max": f"{figure}_max"}
    frame = frame.assign(**{name: frame.get(column) for name, column in ends.items()})
    frame = numbers_of_done_cells(
        with_status_of_drawing(frame.astype(dict.fromkeys(ends, "float64")), PLACE, "median"), ends
    )
    places = [
        (
            names.index(row["swept"]) if row["swept"] in names else 0,
            paper.storage_sort_key(row["storage_name"]),
            row["storage"],
            setting_sort_key(row["value"]),
            row["cell"],
        )
        for row in rows_of(frame[[*PLACE, "storage_name", "cell"]])
    ]
    return frame.iloc[sorted(range(len(frame)), key=places.__getitem__)][COLUMNS].reset_index(drop=True)


@panels.complete_figure
def draw_swept_settings(frame: pd.DataFrame) -> Panels:
    """Draw the main metric over the swept settings, with one panel per setting, one line per storage, and whiskers."""
    panes = [rows for _, rows in frame.groupby("swept", sort=False)]
    figure, grid = panels.panel_grid(len(panes), IN_A_ROW, (2.6, 2.2), 4.2)
    merit = frame.iloc[0]
    unit = f" ({merit['unit']})" if merit["unit"] else ""
    label = f"{merit['figure']}{unit}\n{merit['better']} is better"
    for place, (axes, rows) in enumerate(zip(grid, panes, strict=True)):
        _panel(axes, rows.rename(columns=MERIT), n=panels.needs_run_counts(frame[frame["median"].notna()]))
        axes.set_ylabel("" if place % IN_A_ROW else label)
    storages = dict.fromkeys(zip(frame["storage"], frame["storage_name"], strict=True))
    return figure, [panels.line_sign(storage, storage_colours.look_of_storage(name)) for storage, name in storages]


def _panel(axes: Axes, rows: pd.DataFrame, *, n: bool) -> None:
    """Draw the lines of one swept setting.

    Values that are numbers are placed on a number axis. Other values are placed at equal distances. If `n` is true, the
    number of runs is written above each point.
    """
    values = sorted(dict.fromkeys(rows["value"]), key=setting_sort_key)
    numbers = all(map(is_number, values))
    spots = {value: float(value) if numbers else float(place) for place, value in enumerate(values)}
    if numbers and values[0] > 0 and values[-1] / values[0] >= WIDE:
        axes.set_xscale("log", base=2)
    for _, line in rows.groupby("storage", sort=False):
        drawn = line[line["merit"].notna()]
        if len(drawn):
            # Points of several hosts are not joined by a line, because such points must not be compared.
            style = "solid" if numbers and len(set(drawn["host"])) == 1 else "none"
            look = storage_colours.look_of_storage(drawn["storage_name"].iloc[0])
            places = [spots[value] for value in drawn["value"]]
            panels.draw_line(axes, places, rows_of(drawn), "merit", look, style, n=n)
    if not numbers or len(values) <= MOST_TICKS:
        step = math.ceil(len(values) / MOST_TICKS)
        words = [_tick(value) for value in values[::step]]
        turned, side = (20, "right") if sum(map(len, words)) > LETTERS else (0, "center")
        axes.set_xticks([spots[value] for value in values[::step]], words, rotation=turned, ha=side)
        axes.minorticks_off()
    axes.margins(x=0.08 if numbers else 0.25)
    axes.set_ylim(0, panels.axis_top(rows, "merit_max"))
    axes.set_xlabel(str(rows["swept"].iloc[0]))
    if rows["held"].iloc[0]:
        axes.set_title(textwrap.fill(f"at {rows['held'].iloc[0]}", ACROSS), fontsize=7, fontweight="normal")


def _tick(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
