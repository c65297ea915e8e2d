"""Draw the MB/s of objects and of files over their mean size, with one line per storage.

There is one panel per number of parallel calls.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.figures.kit.storage_colours import StorageLook
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import Settings, reduced_set_key
from analysis.statistics.selection import numbers_of_done_cells, with_status_of_drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from analysis.figures.kit.panels import Panels

TITLE = "Objects beside files: MB/s over the size of what is read"
KIND, SIZE, RATE = "storage.kind", "bytes_per_image", "read_mb_per_s"
NUMBERS = [RATE, f"{RATE}_min", f"{RATE}_max"]
PLACE = ["storage", "threads", SIZE]
COLUMNS = [*PLACE, "storage_name", *NUMBERS, "n_valid", "unstable", "status", "host", "cell"]
LOOKS = (
    StorageLook("#0072B2", "o"), StorageLook("#D55E00", "s"), StorageLook("#009E73", "^"),
    StorageLook("#CC79A7", "D"), StorageLook("#E69F00", "v"),
    StorageLook("#56B4E9", "P"),
)  # fmt: skip
IN_A_ROW, LEAST = 4, 2
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# The measured sizes get ticks only if each size is at least this many times the next smaller size, because the labels
# of the ticks would overlap otherwise.
CLOSE = 2.0


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of cells that differ only in dataset, storage and threads.

    A set gets a figure only if it has an object store, and if two sizes were measured with some storage.
    """
    if not {KIND, SIZE, "threads", *NUMBERS} <= {*table}:
        return []
    cells = table[table[SIZE].notna() & (table["figure"] == "images_per_s")]
    cells = cells.astype({"threads": int})
    sets = group_rows(cells, cells["set_key"].map(_but_data))
    with_objects = {key: each for key, each in sets.items() if each[KIND].notna().any()}
    return figure_specs(
        "objects",
        TITLE,
        draw_object_sizes,
        with_objects,
        chart_table,
        caption_of_runs("point"),
        worth=_several,
        sizes=True,
    )


def _but_data(key: Settings) -> Settings:
    return reduced_set_key(key, frozenset(name for name in key.facts if name == "data" or name.startswith("dataset.")))


def _several(frame: pd.DataFrame) -> bool:
    done = frame[frame["status"] == "done"]
    return bool((done.groupby("storage")[SIZE].nunique() >= LEAST).any())


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart, which has one row per storage, number of threads and mean size in bytes.

    The mean size is the size of a file or of an object.
    """
    frame = numbers_of_done_cells(with_status_of_drawing(cells.round({SIZE: 0}), PLACE, RATE), NUMBERS)
    return frame.sort_values([*PLACE, "cell"])[COLUMNS]


@panels.complete_figure
def draw_object_sizes(frame: pd.DataFrame) -> Panels:
    """Draw MB/s over the mean size with one panel per number of threads, logarithmic axes, and whiskers."""
    counts, shown = sorted(set(frame["threads"])), frame[frame[RATE].notna()]
    looks = {name: LOOKS[place % len(LOOKS)] for place, name in enumerate(dict.fromkeys(frame["storage"]))}
    figure, grid = panels.panel_grid(len(counts), IN_A_ROW, (2.1, 2.3), 4.2, sharex=True, sharey=True)
    for place, (axes, threads) in enumerate(zip(grid, counts, strict=True)):
        _panel(axes, shown[shown["threads"] == threads], looks, n=panels.needs_run_counts(shown))
        axes.set_title(f"{threads} call{'s' * (threads > 1)} at once")
        lowest = place + IN_A_ROW >= len(counts)
        axes.tick_params(axis="x", labelbottom=lowest)
        axes.set_xlabel("mean size of a file or an object" if lowest else "")
        axes.set_ylabel("" if place % IN_A_ROW else "MB/s delivered")
    _ticks(grid[0], sorted(set(shown[SIZE])))
    return figure, [panels.line_sign(name, look) for name, look in looks.items()]


def _panel(axes: Axes, cells: pd.DataFrame, looks: dict[str, StorageLook], *, n: bool) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.12)
    for name, rows in cells.groupby("storage", sort=False):
        panels.draw_line(axes, rows[SIZE].tolist(), rows_of(rows), RATE, looks[str(name)], n=n)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="0.9", zorder=0)


def _ticks(axes: Axes, sizes: list[float]) -> None:
    """Label the shared x axis with the measured sizes if the labels do not overlap (`CLOSE`)."""
    if all(other >= CLOSE * one for one, other in pairwise(sizes)):
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(_bytes))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _bytes(size: float, _: object = None) -> str:
    """Return a number of bytes as text with a unit, for example `10 kB` or `1 MB`."""
    size = float(f"{size:.3g}")  # rounding comes first, because 999,900 bytes must become 1 MB and not 1000 kB
    unit, name = next((each for each in _UNITS if size >= each[0]), _UNITS[-1])
    return f"{size / unit:g} {name}"
