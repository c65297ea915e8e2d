"""The columns of the tables of each benchmark, and the text of a cell in each column."""

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
TENTH = 0.0995  # from this spread on, 10 % and more are shown without a decimal
DISTURBED = (
    f"{DOUBLE_DAGGER} disturbed: others kept the machine busy in every run (check quiet), so that none counts; it is"
    " drawn in no figure, and no claim rests on it"
)


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, the function that gives a cell's text, and whether a cell's `mark` is added.

    A `left` column holds words; a terminal may wrap them, but not below `least_width` letters. An `expendable` column
    appears only in the report page and in the table files.
    """

    heading: str
    text: Callable[[Row], str]
    left: bool = False
    daggered: bool = False
    least_width: int = 14
    expendable: bool = False


def shown_rows(rows: pd.DataFrame) -> Iterator[Row]:
    """Yield the rows of a table for display: a cell without a valid run gets the metrics of its disturbed runs.

    Those metrics are in no file of numbers, so no chart and no claim uses them.
    """
    for row in each_row(rows):
        if wasted := row["disturbed"]:
            row |= {**wasted, **{f"mb_per_s{end}": wasted.get(f"{row['figure']}{end}", math.nan) for end in ENDS}}
        yield row


def mark_of_number(column: Column, row: Row) -> str:
    """Return the sign to print after a number: for an unstable cell, or one with only disturbed runs."""
    if not column.daggered:
        return ""
    return DOUBLE_DAGGER if row["disturbed"] else DAGGER * (row["unstable"] is True)


def count_of_runs(row: Row) -> str:
    """Return the number of valid measured runs, followed by that of all measured runs if some do not count."""
    measured = row["n_valid"] + row["n_invalid"] + row["n_failed"]
    return str(row["n_valid"]) if measured == row["n_valid"] else f"{row['n_valid']}/{measured}"


def remarks_on_cell(row: Row) -> str:
    """Return why a cell is not done, and which checks failed; empty if its numbers can be used."""
    failed = [told for told in row["checks"].split("; ") if told not in ("passed", UNSTABLE, UNKNOWN_SPREAD)]
    return "; ".join([row["status"].upper()] * (row["status"] != "done") + failed)


def _median(heading: str, figure: str, *, expendable: bool = False) -> Column:
    return Column(heading, lambda row: number(row.get(figure, math.nan)), expendable=expendable)


def _share(name: str, *, expendable: bool = False) -> Column:
    return Column(name.replace("_", " "), lambda row: percentage(row[name]), expendable=expendable)


def _merit(heading: str, figure: str = "") -> Column:
    """Return a column of medians with their spread: of `figure`, or else of the metric that the row names."""
    return Column(heading, lambda row: median_with_spread(row, figure or row["figure"]), daggered=True)


def median_with_spread(row: Row, figure: str) -> str:
    """Return a median with the distance of the farthest run (`448 ± 1.9 %`); only the median if all runs are equal."""
    middle, low, high = (row.get(f"{figure}{end}", math.nan) for end in ENDS)
    if not middle or not high > low:
        return number(middle)
    farthest = max(high - middle, middle - low) / middle
    return f"{number(middle)} {PLUS_MINUS} {percentage(farthest, int(farthest < TENTH))}"


def ratio_to_one_thread(row: Row) -> str:
    """Return the ratio to one thread, with a dagger if either cell is unstable; a dash if it is not known."""
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

# Settings that may differ between cells of the mini-application in one table.
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

# Columns that a narrow terminal drops, in this order, and the column shown instead; the tables in files keep them.
EXPENDABLE = {BOUND_BECAUSE: BOUND, INPUT: None, BETWEEN: None, ONE_CHECKPOINT: None, SAVING: None, MB: None,
              OF_BASELINE: None, BOUND: None}  # fmt: skip


def table_columns(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns of one table; `whole`: all columns, else only those that a person needs on a terminal.

    A setting with one value in all cells is left to the heading; columns without any content are left out, and so is
    the position between controls if there are none.
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
    """Return the columns that are empty in all cells of a table, or have the same value in all."""
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
    """Return the number of runs of each cell if all runs are valid and the number is equal; else None."""
    counts = {count_of_runs(row) for row in rows_of(rows, ("n_valid", "n_invalid", "n_failed"))}
    return int(*counts) if len(counts) == 1 and next(iter(counts)).isdigit() else None


def _plain(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns of a benchmark that is not in the paper: its swept settings and its main metric."""
    keys = (_setting(name, name if whole else name.rpartition(".")[2]) for name in swept_names(rows))
    units = " or ".join(sorted(set(rows["unit"].dropna())))
    shares = (INPUT, COMPUTE, SAVING) if is_training(rows).all() else ()
    return (STORAGE, *keys, _merit(units), *shares, BOUND_BECAUSE)


def _setting(name: str, heading: str) -> Column:
    return Column(heading, lambda row: NONE if row[name] is None else str(row[name]))


def _saves(rows: pd.DataFrame) -> bool:
    """Return whether any cell wrote checkpoints."""
    return "target" in rows and bool((rows["target"] != NO_TARGET).any())
