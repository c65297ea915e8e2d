"""The statistics of a cell: median, min and max over its valid measured runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.statistics import comparable
from jobs.model.results import METRICS

RATE, READ, WRITTEN, RUNTIME = "images_per_s", "read_mb_per_s", "write_mb_per_s", "wall_s"
BYTES_PER_MB = 10**6
QUIET = "check.quiet"


def counted_runs(runs: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the cell and these columns of the runs that count (measured and valid); no other function decides that."""
    return runs.loc[(runs["role"] == "measured") & (runs["status"] == "valid"), ["cell", *names]]


def medians_of_disturbed_runs(runs: pd.DataFrame, figures: Iterable[str]) -> dict[str, Row]:
    """Return the metrics (with `_min` and `_max`) of the disturbed runs, for each cell without a valid measured run.

    A run is disturbed where `quiet` is the one check that it failed. It counts for nothing, and is only shown.
    """
    rules = [name for name in map(str, runs) if name.startswith("check.")]
    if QUIET not in rules:
        return {}
    failed = runs[rules].eq(other=False).fillna(value=False)
    alone = failed[QUIET] & (failed.sum(axis=1) == 1) & (runs["status"] == "invalid") & (runs["role"] == "measured")
    wasted = runs[alone & ~runs["cell"].isin(counted_runs(runs, [])["cell"])]
    if wasted.empty:
        return {}
    columns: dict[str, Any] = {}
    for name in figures:
        columns |= median_and_range(wasted.groupby("cell"), name)
    metrics = pd.DataFrame(columns)
    return dict(zip(map(str, metrics.index), rows_of(metrics), strict=True))


def positive_values(runs: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return the values above 0 of a metric per cell, one per run that counts."""
    good = counted_runs(runs, [figure])
    return values_by_cell(good[good[figure] > 0], figure)


def values_by_cell(runs: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return the values of a metric per cell, one per run."""
    values: dict[str, list[float]] = {}
    for cell, value in zip(runs["cell"].tolist(), runs[figure].tolist(), strict=True):
        values.setdefault(cell, []).append(value)
    return values


def median_and_range(groups: Any, figure: str) -> dict[str, Any]:
    """Return the columns with the median, `_min` and `_max` of a metric over grouped runs."""
    values = groups[figure]
    return {figure: values.median(), f"{figure}_min": values.min(), f"{figure}_max": values.max()}


def add_statistics(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of cells with their statistics, one row per cell.

    Added columns: `n_valid`, `n_invalid`, `n_failed` (measured runs); median, `_min` and `_max` of the main metrics
    and of those `METRICS` that the runs have; `disturbed` (see `medians_of_disturbed_runs`; None for most cells),
    which enters no other column; `spread` = (max - min) / median; `coverage` = 1 - 2/2^n, the probability that
    [min, max] holds the true median (of independent runs); `bytes_per_image`; `scaling`, the median relative to the
    same series at one thread, with `no_scaling` and `scaling_unstable` (see `scaling_column`).
    """
    numbers = [name for name, kind in runs.dtypes.items() if kind.kind in "if"]
    declared = [name for name in METRICS if name in runs]
    merits = sorted({*cells["figure"]}.intersection(numbers).difference(declared))
    figures = [*merits, *declared]
    good = counted_runs(runs, figures)
    groups = good.groupby("cell")
    columns = {"n_valid": groups.size()} | _not_counted(runs)
    for name in (*declared, *merits):
        columns |= median_and_range(groups, name)
    wasted = medians_of_disturbed_runs(runs, figures)
    size = good["read_mb_per_s"] * BYTES_PER_MB / good["images_per_s"]
    columns["bytes_per_image"] = size.groupby(good["cell"]).median()
    table = cells.join(pd.DataFrame(columns), on="cell").copy()
    counts = ["n_valid", "n_invalid", "n_failed"]
    table[counts] = table[counts].fillna(0).astype("int64")
    table["disturbed"] = pd.Series([wasted.get(cell) for cell in table["cell"]], index=table.index, dtype=object)
    table["spread"] = _spread(table, [*merits, RATE, READ, WRITTEN, RUNTIME])
    table["coverage"] = (1 - 2.0 ** (1 - table["n_valid"])).where(table["n_valid"] > 0)
    return table.assign(**scaling_column(table))


def scaling_column(table: pd.DataFrame) -> dict[str, pd.Series[Any]]:
    """Return the column `scaling`: images/s of each done cell divided by that of the one-thread cell of its series.

    The value is missing if the series has no done one-thread cell, or two. `no_scaling` says why the two cells cannot
    be compared, else it is empty; if they are unlike, the ratio is missing. `scaling_unstable`: one is unstable.
    """
    done = table["status"] == "done"
    cells = table[done & (table["threads"] == 1)] if "threads" in table else table[:0]
    one_thread_cells = cells[~cells["series_key"].duplicated(keep=False)]
    base = table["series_key"].map(one_thread_cells.set_index("series_key")["images_per_s"]).astype("float64")
    base = base.where(base > 0)
    ratio = (table["images_per_s"] / base).where(done)
    lines = table.loc[ratio.notna()].reindex(columns=[*comparable.COLUMNS, "unstable"]).astype({"unstable": object})
    one_thread_rows = rows_of(lines.loc[lines.index.intersection(one_thread_cells.index)])
    row_by_series = {row["series_key"]: row for row in one_thread_rows}
    pairs = [(row_by_series[row["series_key"]], row) for row in rows_of(lines)]

    def column_of(words: Iterable[str]) -> pd.Series[Any]:
        return pd.Series(list(words), index=lines.index, dtype=object).reindex(table.index, fill_value="")

    unlike, weak = column_of(_unlike(pairs, table)), column_of(map(comparable.reason_for_weak_proof, pairs))
    unstable = pd.Series([any(row["unstable"] is True for row in pair) for pair in pairs], lines.index, dtype=bool)
    return {
        "scaling": ratio.where(unlike == ""),
        "no_scaling": unlike.where(unlike != "", weak),
        "scaling_unstable": unstable.reindex(table.index, fill_value=False),
    }


def _unlike(pairs: Sequence[tuple[Row, Row]], table: pd.DataFrame) -> Iterator[str]:
    """Yield per pair of rows the differences that forbid a comparison; pairs with equal facts share the work."""
    names = [name for name in comparable.COLUMNS if name in table and name not in {"cell", "n_valid"}]
    words_of_facts: dict[tuple[Any, ...], str] = {}
    for pair in pairs:
        # Equal conditions share one object, and have no hash.
        facts = tuple(id(row[name]) if isinstance(row[name], dict) else row[name] for row in pair for name in names)
        if facts not in words_of_facts:
            words_of_facts[facts] = comparable.forbidding_differences(pair)
        yield words_of_facts[facts]


def runs_not_counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the invalid and failed runs, one row per cell, role, status and cause.

    Columns `cell, role, status, cause, count, reason`: `reason` is the first of one cause (of `cold: 99.1 % …`
    and `cold: 98.7 % …`).
    """
    bad = runs[runs["status"].isin(["invalid", "failed"])]
    groups = bad.groupby(["cell", "role", "status", "cause"], sort=False)["reason"]
    return groups.agg(count="size", reason="first").reset_index()


def _not_counted(runs: pd.DataFrame) -> dict[str, pd.Series[int]]:
    measured = runs[runs["role"] == "measured"]
    return {
        f"n_{status}": measured[measured["status"] == status].groupby("cell").size() for status in ("invalid", "failed")
    }


def _spread(table: pd.DataFrame, figures: Sequence[str]) -> pd.Series[float]:
    """Return the spread of the first of these metrics that a cell has: images/s, else MB/s, else seconds."""
    spread = pd.Series(float("nan"), index=table.index, dtype="float64")
    for name in figures:
        spread = spread.fillna((table[f"{name}_max"] - table[f"{name}_min"]) / table[name])
    return spread
