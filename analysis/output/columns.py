"""What the tables show of a cell: the columns of each benchmark, and how figures are written in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.statistics.baselines import ACCESS, is_baseline
from analysis.statistics.saving_costs import NO_TARGET, beside_data
from analysis.statistics.sweeps import is_plain, swept
from analysis.statistics.training import CONTROL, is_training
from analysis.text.plain import DAGGER, DASH, DOUBLE_DAGGER, NONE, number, share, span, times

ENDS = ("", "_min", "_max")
RANGE = f"min{DASH}max"
DISTURBED = (
    f"{DOUBLE_DAGGER} disturbed: others kept the machine busy in every run (check quiet), so that none counts; it is"
    " drawn in no figure, and no claim rests on it"
)


@dataclass(frozen=True)
class Column:
    """A column: its heading, the text of a cell, and whether the text takes the cell's `mark`."""

    heading: str
    text: Callable[[Row], str]
    left: bool = False
    daggered: bool = False


def shown_rows(rows: pd.DataFrame) -> list[Row]:
    """Return the rows of a table as they are shown: a cell without a valid run with the figures of its disturbed ones.

    These stand in no file of numbers, so that nothing is drawn of them and no claim rests on them.
    """
    shown = rows_of(rows)
    for row in shown:
        if wasted := row["disturbed"]:
            row |= {**wasted, **{f"mb_per_s{end}": wasted.get(f"{row['figure']}{end}", math.nan) for end in ENDS}}
    return shown


def mark(column: Column, row: Row) -> str:
    """Return the sign behind a figure: of a cell that is unstable, or has no runs but disturbed ones."""
    if not column.daggered:
        return ""
    return DOUBLE_DAGGER if row["disturbed"] else DAGGER * (row["unstable"] is True)


def count(row: Row) -> str:
    """Return the number of runs that count, of those that were measured."""
    measured = row["n_valid"] + row["n_invalid"] + row["n_failed"]
    return str(row["n_valid"]) if measured == row["n_valid"] else f"{row['n_valid']}/{measured}"


def _median(heading: str, figure: str, *, daggered: bool = False) -> Column:
    return Column(heading, lambda row: number(row[figure]), daggered=daggered)


def _range(figure: str) -> Column:
    return Column(RANGE, lambda row: span(row[f"{figure}_min"], row[f"{figure}_max"]))


def versus_one_thread(row: Row) -> str:
    """Return what a cell gives relative to one thread, marked where either is unstable; a dash where none is known."""
    return NONE if math.isnan(row["scaling"]) else times(row["scaling"]) + DAGGER * row["scaling_unstable"]


STORAGE = Column("storage", lambda row: str(row["storage"]), left=True)
THREADS = Column("threads", lambda row: str(row.get("threads") or NONE))
N = Column("n", count)
RATE, RATES = _median("images/s", "images_per_s", daggered=True), _range("images_per_s")
SCALING = Column("vs 1 thread", lambda row: row["no_scaling"] or versus_one_thread(row))
BOUND = Column("bound by", lambda row: row["bound"] or NONE)
BECAUSE = Column("because", lambda row: row["bound_by"] or NONE, left=True)
CHECKS = Column("checks", lambda row: str(row["checks"]), left=True)
STATUS = Column("status", lambda row: str(row["status"]), left=True)
MB, MBS = _median("MB/s", "read_mb_per_s"), _range("read_mb_per_s")
RUNTIME, RUNTIMES = _median("runtime s", "wall_s", daggered=True), _range("wall_s")
INPUT, COMPUTE, SAVING, BETWEEN = (
    Column(figure.replace("_", " "), lambda row, figure=figure: share(row[figure]))  # type: ignore[misc]
    for figure in ("input_share", "compute_share", "checkpoint_share", "between")
)
ACCELERATOR = Column("accelerator", lambda row: row["accelerator"] or NONE, left=True)

# Settings that the mini-application's cells of one table may differ in.
OF_TRAINING = ("batch_size", "prefetch", CONTROL)
BATCH, PREFETCH, CONTROLS = (
    Column(name.rpartition(".")[2].removesuffix("_size"), lambda row, name=name: str(row[name]))  # type: ignore[misc]
    for name in OF_TRAINING
)
CHECKPOINT = Column(
    "checkpoint",
    lambda row: ", ".join(filter(None, (row["target"], row["mode"], "on the data's device" * bool(beside_data(row))))),
    left=True,
)
ONE_CHECKPOINT = Column("one checkpoint, s", lambda row: number(row.get("snapshot_blocked_s", math.nan)))
RATE_BESIDE = _median("images/s", "images_per_s")

OF_BASELINE = Column("of baseline", lambda row: share(row["percent_of_baseline"] / 100))
OF_BASELINE_WHOLE = Column(
    "of baseline", lambda row: " ".join(filter(None, (OF_BASELINE.text(row), row["baseline_access"])))
)
ACCESSES = Column("access", lambda row: str(row[ACCESS]), left=True)
ENGINE = Column("engine", lambda row: row["engine"] or NONE, left=True)
GIVEN, GIVENS = _median("MB/s", "mb_per_s", daggered=True), _range("mb_per_s")

MERITS = Column(RANGE, lambda row: span(*(row.get(f"{row['figure']}_{end}", math.nan) for end in ("min", "max"))))

# On a terminal the checks and the cell follow.
MICRO = (STORAGE, THREADS, RATE, RATES, MB, N, BOUND, BECAUSE)
MICRO_WHOLE = (
    STORAGE, THREADS, RATE, RATES, MB, MBS, _median("s", "wall_s"), N, SCALING, BOUND, BECAUSE, CHECKS, STATUS,
)  # fmt: skip
TRAINING = (
    STORAGE, THREADS, BATCH, PREFETCH, CONTROLS, CHECKPOINT, RUNTIME, RUNTIMES, ONE_CHECKPOINT, RATE_BESIDE, INPUT,
    COMPUTE, SAVING, BETWEEN, N, BOUND, BECAUSE,
)  # fmt: skip
TRAINING_WHOLE = (
    STORAGE, THREADS, BATCH, PREFETCH, CONTROLS, CHECKPOINT, RUNTIME, RUNTIMES, ONE_CHECKPOINT, RATE_BESIDE, RATES,
    INPUT, COMPUTE, SAVING, BETWEEN, ACCELERATOR, N, BOUND, BECAUSE, CHECKS, STATUS,
)  # fmt: skip
BASELINE = (STORAGE, ACCESSES, THREADS, GIVEN, GIVENS, ENGINE, N)
BASELINE_WHOLE = (STORAGE, ACCESSES, THREADS, GIVEN, GIVENS, _median("s", "wall_s"), ENGINE, N, CHECKS, STATUS)

# What a narrow terminal does without, in this order; the tables in files have it.
EXPENDABLE = (RUNTIMES, COMPUTE, RATE_BESIDE, INPUT)


def columns(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns for the cells of one table; `whole`: all there are, else what fits on a terminal.

    What all cells agree in stands in the heading; without controls there is no distinguishing what lies between them,
    and where of no cell anything tells what bounds it, there is no column for it.
    """
    known = rows["bound"].notna().any()
    return tuple(each for each in _columns(rows, whole=whole) if known or each not in (BOUND, BECAUSE))


def _columns(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    if is_plain(rows).all():
        return _plain(rows, whole=whole)
    if is_baseline(rows).all():
        return BASELINE_WHOLE if whole else BASELINE
    known = "percent_of_baseline" in rows and rows["percent_of_baseline"].notna().any()
    beside = ((OF_BASELINE_WHOLE if whole else OF_BASELINE),) if known else ()
    if not is_training(rows).all():
        return _after(MICRO_WHOLE, MBS, beside) if whole else _after(MICRO, MB, beside)
    varied = zip((BATCH, PREFETCH, CONTROLS), OF_TRAINING, strict=True)
    idle = [column for column, name in varied if len(set(rows[name])) == 1]
    idle += [] if rows["between"].notna().any() else [BETWEEN]
    idle += [] if _saves(rows) else [CHECKPOINT, ONE_CHECKPOINT, SAVING]
    idle += [ACCELERATOR] if len(rows["accelerator"].drop_duplicates()) == 1 else []
    shown = tuple(each for each in (TRAINING_WHOLE if whole else TRAINING) if each not in idle)
    return _after(shown, INPUT, beside) if whole else shown


def _plain(rows: pd.DataFrame, *, whole: bool) -> tuple[Column, ...]:
    """Return the columns of a benchmark that the paper does not have: what was swept, its figure of merit."""
    keys = (_setting(name, name if whole else name.rpartition(".")[2]) for name in swept(rows))
    units = " or ".join(sorted(set(rows["unit"].dropna())))
    merit = Column(units, lambda row: number(row.get(row["figure"], math.nan)), daggered=True)
    shares = (INPUT, COMPUTE, *((SAVING,) if _saves(rows) else ())) if is_training(rows).all() else ()
    return (STORAGE, *keys, merit, MERITS, *shares, N, BOUND, BECAUSE, *((CHECKS, STATUS) if whole else ()))


def _setting(name: str, heading: str) -> Column:
    return Column(heading, lambda row: NONE if row[name] is None else str(row[name]))


def _saves(rows: pd.DataFrame) -> bool:
    """Say whether any cell wrote checkpoints."""
    return "target" in rows and bool((rows["target"] != NO_TARGET).any())


def _after(columns: tuple[Column, ...], place: Column, more: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with new ones inserted after a given column."""
    at = columns.index(place) + 1
    return (*columns[:at], *more, *columns[at:])
