"""Draw the MB/s of HDF5 readers over the number of parallel calls, which shows the cost of the HDF5 library's lock."""

from __future__ import annotations

import pandas as pd

from analysis.figures.kit import panels
from analysis.figures.kit.figure_spec import FigureSpec, caption_of_runs, figure_specs
from analysis.figures.kit.panels import Panels
from analysis.figures.kit.storage_colours import StorageLook
from analysis.records.frame import group_rows, rows_of
from analysis.records.settings import reduced_set_key
from analysis.statistics.selection import numbers_of_done_cells, with_status_of_drawing

TITLE = "Readers of HDF5: MB/s over the calls at once"
# The looks of the readers in the order of the legend. Other readers follow in the legend with the look `OTHER`.
LOOKS = {
    "h5py_threads": StorageLook("#D55E00", "o"), "h5py_pool": StorageLook("#E69F00", "s"),
    "h5py_shared": StorageLook("#56B4E9", "^"),
    "offsets": StorageLook("#0072B2", "D"),
}  # fmt: skip
APART = 0.5  # the part of the distance between two numbers of calls over which the readers are spread
OTHER = StorageLook("#B0B0B0", "X")
NUMBERS = ["read_mb_per_s", "read_mb_per_s_min", "read_mb_per_s_max"]
PLACE = ["storage", "reader", "threads"]
COLUMNS = [*PLACE, "storage_name", *NUMBERS, "n_valid", "unstable", "status", "host", "cell"]


def chart_specs(table: pd.DataFrame) -> list[FigureSpec]:
    """Return one figure per set of cells that differ only in reader, number of parallel calls and storage.

    A set gets a figure only if at least two readers have done cells.
    """
    if not {"reader", NUMBERS[0]} <= {*table}:
        return []
    cells = table[table["reader"].notna()].copy()
    cells = cells.assign(threads=cells["threads"].fillna(1).astype(int) if "threads" in cells else 1)
    sets = group_rows(cells, cells["set_key"].map(lambda key: reduced_set_key(key, frozenset({"reader"}))))
    return figure_specs(
        "readers", TITLE, draw_readers, sets, chart_table, caption_of_runs("point"), hidden=["reader"], worth=_several
    )


def _several(frame: pd.DataFrame) -> bool:
    return len(set(frame["reader"][frame["status"] == "done"])) > 1


def chart_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the table of the chart, which has one row per storage, reader and number of parallel calls.

    A cell that cannot be drawn has a row too.
    """
    frame = numbers_of_done_cells(with_status_of_drawing(cells, PLACE, NUMBERS[0]), NUMBERS)[COLUMNS].copy()
    places = {name: place for place, name in enumerate(LOOKS)}
    order = frame["reader"].map(lambda name: places.get(name, len(places)))
    return frame.assign(order=order).sort_values(["storage", "order", "threads", "cell"])[COLUMNS]


@panels.complete_figure
def draw_readers(frame: pd.DataFrame) -> Panels:
    """Draw MB/s over the number of parallel calls, with one panel per storage, one line per reader, and whiskers.

    The readers are side by side at each number of calls, so that no marker hides the dagger of another reader.
    """
    top = panels.axis_top(frame, NUMBERS[-1])
    labels = "calls at once (threads)", "MB/s delivered"
    figure, panes = panels.storage_panels(frame, 2.8, 2.1, labels=labels, top=top)
    values, n = sorted(set(frame["threads"])), panels.needs_run_counts(frame[frame[NUMBERS[0]].notna()])
    readers = list(dict.fromkeys(frame["reader"]))
    for axes, rows in panes:
        panels.set_categories(axes, values)
        for name, each in rows[rows[NUMBERS[0]].notna()].groupby("reader", sort=False):
            aside = APART * ((readers.index(name) + 0.5) / len(readers) - 0.5)
            places = [values.index(threads) + aside for threads in each["threads"]]
            panels.draw_line(axes, places, rows_of(each), NUMBERS[0], LOOKS.get(str(name), OTHER), n=n)
    return figure, [panels.line_sign(name, LOOKS.get(name, OTHER)) for name in readers]
