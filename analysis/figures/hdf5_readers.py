"""Readers of HDF5: MB/s over the calls at once, a line per reader, which shows what the lock of the library costs."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, figures, runs_told
from analysis.figures.kit.panels import Panels
from analysis.figures.kit.storage_colours import Look
from analysis.records.frame import grouped, rows_of
from analysis.records.settings import family_key
from analysis.statistics.selection import of_done, settled

TITLE = "Readers of HDF5: MB/s over the calls at once"
# In the order of the legend; one that is not known is drawn as it comes.
LOOKS = {
    "h5py_threads": Look("#D55E00", "o"), "h5py_pool": Look("#E69F00", "s"), "h5py_shared": Look("#56B4E9", "^"),
    "offsets": Look("#0072B2", "D"),
}  # fmt: skip
OTHER = Look("#B0B0B0", "X")
NUMBERS = ["read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max"]
PLACE = ["storage", "reader", "threads"]
COLUMNS = [*PLACE, "storage_name", *NUMBERS, "n_valid", "unstable", "status", "host", "cell"]


def specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return a figure per set of cells that differ in reader, calls at once and storage, of two readers or more."""
    if not {"reader", NUMBERS[0]} <= {*table}:
        return []
    cells = table[table["reader"].notna()].copy()
    cells = cells.assign(threads=cells["threads"].fillna(1).astype(int) if "threads" in cells else 1)
    sets = grouped(cells, cells["set_key"].map(lambda key: family_key(key, frozenset({"reader"}))))
    return figures("readers", TITLE, over_calls, sets, lines, runs_told("point"), hidden=["reader"], worth=_several)


def _several(frame: pd.DataFrame) -> bool:
    return len(set(frame["reader"][frame["status"] == "done"])) > 1


def lines(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what is drawn, a row per storage, reader and number of calls; one without a point keeps its row."""
    frame = of_done(settled(cells, PLACE, NUMBERS[0]), NUMBERS)[COLUMNS].copy()
    known = {name: place for place, name in enumerate(LOOKS)}
    order = frame["reader"].map(lambda name: known.get(name, len(known)))
    return frame.assign(order=order).sort_values(["storage", "order", "threads", "cell"])[COLUMNS]


@panels.framed
def over_calls(frame: pd.DataFrame) -> Panels:
    """Draw a panel per storage, min-max as whiskers."""
    top = (float(frame["read_mb_per_s_max"].fillna(0).max()) or 1.0) * panels.HEADROOM
    labels = "calls at once (threads)", "MB/s delivered"
    figure, panes = panels.per_storage(frame, 2.8, 2.1, labels=labels, top=top)
    for axes, rows in panes:
        _panel(axes, rows, sorted(set(frame["threads"])))
    signs = [_sign(name) for name in dict.fromkeys(frame["reader"])]
    return figure, [*signs, *panels.unstable_sign(frame[frame[NUMBERS[0]].notna()])]


def _panel(axes: Axes, cells: pd.DataFrame, values: list[int]) -> None:
    panels.categories(axes, values)
    for name, rows in cells[cells[NUMBERS[0]].notna()].groupby("reader", sort=False):
        places = [float(values.index(threads)) for threads in rows["threads"]]
        panels.whiskers(axes, places, rows_of(rows), NUMBERS[0])
        look = LOOKS.get(str(name), OTHER)
        axes.plot(places, rows[NUMBERS[0]], color=look.color, marker=look.marker, markeredgecolor="black")


def _sign(name: str) -> Line2D:
    look = LOOKS.get(name, OTHER)
    return Line2D([], [], label=name, color=look.color, marker=look.marker, markeredgecolor="black")
