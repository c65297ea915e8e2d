"""Define the columns of the tables for people, and the text that a row has in each column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from analysis.records.frame import Row, each_row, rows_of
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.selection import is_plain, swept_names
from analysis.statistics.training import CONTROL, NO_TARGET, device_shared_with_data, is_training
from analysis.text import DAGGER, DOUBLE_DAGGER, NONE, PLUS_MINUS, number, percentage, ratio_text

ENDS = ("", "_min", "_max")
UNSTABLE, UNKNOWN_SPREAD = "unstable", "spread unverifiable"
TENTH = 0.0995  # a spread from 10 % (rounded) on is shown without a decimal
DISTURBED = (
    f"{DOUBLE_DAGGER} disturbed: other processes kept the machine busy in every run (check quiet), so no run counts;"
    " figures and claims do not use this cell"
)


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the function that returns the text of a row in this column.

    If `daggered` is true, a sign (`mark_of_number`) is added to the text. A `left` column has words, which a terminal
    may wrap if the column is still at least `least_width` characters wide. An `expendable` column appears only on the
    report page and in the table files.
    """

    heading: str
    text: Callable[[Row], str]
    left: bool = False
    daggered: bool = False
    least_width: int = 14
    expendable: bool = False


def shown_rows(rows: pd.DataFrame) -> Iterator[Row]:
    """Yield the rows of a table as dictionaries for display.

    The row of a cell without a valid run gets the metrics of the cell's disturbed runs. The CSV files do not have these
    metrics, so charts and claims do not use them.
    """
    for row in each_row(rows):
        if wasted := row["disturbed"]:
            row |= {**wasted, **{f"mb_per_s{end}": wasted.get(f"{row['figure']}{end}", math.nan) for end in ENDS}}
        yield row


def mark_of_number(column: Column, row: Row) -> str:
    """Return the sign to print after a number: a dagger for an unstable cell, a double dagger for a disturbed cell.

    Return `""` for all other cells and columns.
    """
    if not column.daggered:
        return ""
    return DOUBLE_DAGGER if row["disturbed"] else DAGGER * (row["unstable"] is True)


def count_of_runs(row: Row) -> str:
    """Return the number of valid measured runs as text, for example `5`.

    If some measured runs are not valid, also return the number of all measured runs, for example `4/5`.
    """
    measured = row["n_valid"] + row["n_invalid"] + row["n_failed"]
    return str(row["n_valid"]) if measured == row["n_valid"] else f"{row['n_valid']}/{measured}"


def remarks_on_cell(row: Row) -> str:
    """Return the status of a cell that is not done, and the checks that failed or could not be verified.

    Return `""` if the cell is done and no such check exists.
    """
    failed = [told for told in row["checks"].split("; ") if told not in ("passed", UNSTABLE, UNKNOWN_SPREAD)]
    return "; ".join([row["status"].upper()] * (row["status"] != "done") + failed)


def _median(heading: str, figure: str, *, expendable: bool = False) -> Column:
    return Column(heading, lambda row: number(row.get(figure, math.nan)), expendable=expendable)


def _share(name: str, *, expendable: bool = False) -> Column:
    return Column(name.replace("_", " "), lambda row: percentage(row[name]), expendable=expendable)


def _merit(heading: str, figure: str = "") -> Column:
    """Return a column with the median and the spread of the metric `figure`.

    If `figure` is `""`, the column has the main metric of each row's benchmark.
    """
    return Column(heading, lambda row: median_with_spread(row, figure or row["figure"]), daggered=True)


def median_with_spread(row: Row, figure: str) -> str:
    """Return a median with the largest distance of a run from the median, for example `448 ± 1.9 %`.

    If all runs are equal, return only the median.
    """
    middle, low, high = (row.get(f"{figure}{end}", math.nan) for end in ENDS)
    if not middle or not high > low:
        return number(middle)
    farthest = max(high - middle, middle - low) / middle
    return f"{number(middle)} {PLUS_MINUS} {percentage(farthest, int(farthest < TENTH))}"


def ratio_to_one_thread(row: Row) -> str:
    """Return the ratio of a cell's throughput to the throughput at one thread, or a dash if there is no ratio.

    A dagger follows the ratio if one of the two cells is unstable.
    """
    return NONE if math.isnan(row["scaling"]) else ratio_text(row["scaling"]) + DAGGER * row["scaling_unstable"]


STORAGE = Column("storage", lambda row: str(row["storage"]), left=True, least_width=20)
THREADS = Column("threads", lambda row: str(row.get("threads") or NONE))
N = Column("n", count_of_runs)
MB, SECONDS = _median("MB/s", "read_mb_per_s"), _median("s", "wall_s", expendable=True)
OF_BASELINE = Column("of baseline", lambda row: percentage(row["percent_of_baseline"] / 100))
SCALING = Column("vs 1 thread", lambda row: NONE if row["no_scaling"] else ratio_to_one_thread(row), expendable=True)
BOUND = Column("bound by", lambda row: row["bound"] or NONE, left=True)
BOUND_BECAUSE = Column(
    "bound by", lambda row: ": ".join(filter(None, (BOUND.text(row), row["bound_by"]))), left=True, least_width=24
)
REMARKS = Column("remarks", remarks_on_cell, left=True)
INPUT, COMPUTE = _share("input_share"), _share("compute_share", expendable=True)
SAVING, BETWEEN = _share("checkpoint_share"), _share("between")
ACCELERATOR = Column("accelerator", lambda row: row["accelerator"] or NONE, left=True, expendable=True)

# The settings in which training cells of the same table may differ.
OF_TRAINING = ("batch_size", "prefetch", CONTROL)
BATCH, PREFETCH, CONTROLS = (
    Column(name.rpartition(".")[2].removesuffix("_size"), lambda row, name=name: str(row[name]))  # type: ignore[misc]
    for name in OF_TRAINING
)
CHECKPOINT = Column(
    "checkpoint",
    lambda row: ", ".join(
        filter(None, (row["target"], row["mode"], "on the data's device" * bool(device_shared_with_data(row))))
    ),
    left=True,
)
ONE_CHECKPOINT = _median("one checkpoint, s", "snapshot_blocked_s")
ACCESSES = Column("access", lambda row: str(row[ACCESS]), left=True)
ENGINE = Column("engine", lambda row: row["engine"] or NONE, left=True)

MICRO = (STORAGE, THREADS, _merit("images/s", "images_per_s"), MB, OF_BASELINE, SECONDS, SCALING, BOUND_BECAUSE)
TRAINING = (
    STORAGE, THREADS, BATCH, PREFETCH, CONTROLS, CHECKPOINT, _merit("runtime s", "wall_s"), ONE_CHECKPOINT,
    _median("images/s", "images_per_s", expendable=True), INPUT, OF_BASELINE, COMPUTE, SAVING, BETWEEN, ACCELERATOR,
    BOUND_BECAUSE,
)  # fmt: skip
BASELINE = (STORAGE, ACCESSES, THREADS, _merit("MB/s", "mb_per_s"), SECONDS, ENGINE)

# The columns that are dropped one after the other, in this order, until the table fits on a narrow terminal. The value
# is the column that is printed instead, or None. The table files have all columns.
EXPENDABLE = {BOUND_BECAUSE: BOUND, INPUT: None, BETWEEN: None, ONE_CHECKPOINT: None, SAVING: None, MB: None,
              OF_BASELINE: None, BOUND: None}  # fmt: skip


def table_columns(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns of one table.

    If `whole` is false, `expendable` columns are left out, because a terminal has little space. A column without any
    content is left out. The column of a setting is left out if all cells have the same value, which the heading of the
    table then names.
    """
    idle = _idle(rows)
    if is_plain(rows).all():
        shown = _plain(rows, whole=whole)
    else:
        shown = BASELINE if is_baseline(rows).all() else TRAINING if is_training(rows).all() else MICRO
    counts = (N,) * (whole or common_run_count(rows) is None)
    told = (REMARKS,) * any(map(remarks_on_cell, each_row(rows)))
    return tuple(each for each in (*shown, *counts, *told) if each not in idle and (whole or not each.expendable))


def _idle(rows: pd.DataFrame) -> set[Column]:
    """Return the columns that are empty in all rows of a table, or that have the same value in all rows."""
    known = {name: name in rows and rows[name].notna().any() for name in ("bound", "between", "percent_of_baseline")}
    idle = {
        column for column, name in zip((BATCH, PREFETCH, CONTROLS), OF_TRAINING, strict=True) if _is_one(rows, name)
    }
    idle |= set() if known["bound"] else {BOUND_BECAUSE}
    idle |= set() if known["between"] else {BETWEEN}
    idle |= set() if known["percent_of_baseline"] else {OF_BASELINE}
    idle |= set() if _saves(rows) else {CHECKPOINT, ONE_CHECKPOINT, SAVING}
    return idle | ({ACCELERATOR} if _is_one(rows, "accelerator") else set())


def _is_one(rows: pd.DataFrame, name: str) -> bool:
    return name not in rows or len(rows[name].drop_duplicates()) == 1


def common_run_count(rows: pd.DataFrame) -> int | None:
    """Return the number of measured runs that every cell has, if all these runs are valid.

    Return None if a measured run is not valid, or if cells have different numbers of runs.
    """
    counts = {count_of_runs(row) for row in rows_of(rows, ("n_valid", "n_invalid", "n_failed"))}
    return int(*counts) if len(counts) == 1 and next(iter(counts)).isdigit() else None


def _plain(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns for a benchmark that is not in the paper: its swept settings and its main metric.

    A swept setting is a setting with several values in the table.
    """
    keys = (_setting(name, name if whole else name.rpartition(".")[2]) for name in swept_names(rows))
    units = " or ".join(sorted(set(rows["unit"].mask(rows["unit"] == "", rows["figure"]).dropna())))
    shares = (INPUT, COMPUTE, SAVING) if is_training(rows).all() else ()
    return (STORAGE, *keys, _merit(units), *shares, BOUND_BECAUSE)


def _setting(name: str, heading: str) -> Column:
    return Column(heading, lambda row: NONE if row[name] is None else str(row[name]))


def _saves(rows: pd.DataFrame) -> bool:
    """Return whether any cell wrote checkpoints."""
    return "target" in rows and bool((rows["target"] != NO_TARGET).any())
