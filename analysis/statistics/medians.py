"""Compute the statistics of each cell: median, minimum and maximum over the valid measured runs."""

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


def valid_measured_runs(runs: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return the valid measured runs, with the columns `names` and `cell`.

    All code of the analysis uses this function to select the runs that count.
    """
    return runs.loc[(runs["role"] == "measured") & (runs["status"] == "valid"), ["cell", *names]]


def medians_of_disturbed_runs(runs: pd.DataFrame, figures: Iterable[str]) -> dict[str, Row]:
    """Return the metrics (with `_min` and `_max`) of the disturbed runs, for each cell without a valid measured run.

    A disturbed run is a measured run that failed only the check `quiet`. The metrics of disturbed runs are only
    displayed; no other value is computed from these metrics.
    """
    rules = [name for name in map(str, runs) if name.startswith("check.")]
    if QUIET not in rules:
        return {}
    failed = runs[rules].eq(other=False).fillna(value=False)
    alone = failed[QUIET] & (failed.sum(axis=1) == 1) & (runs["status"] == "invalid") & (runs["role"] == "measured")
    wasted = runs[alone & ~runs["cell"].isin(valid_measured_runs(runs, [])["cell"])]
    if wasted.empty:
        return {}
    columns: dict[str, Any] = {}
    for name in figures:
        columns |= median_and_range(wasted.groupby("cell"), name)
    metrics = pd.DataFrame(columns)
    return dict(zip(map(str, metrics.index), rows_of(metrics), strict=True))


def positive_values(runs: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return for each cell the values of a metric in the valid measured runs, without values of 0 or less."""
    good = valid_measured_runs(runs, [figure])
    return values_by_cell(good[good[figure] > 0], figure)


def values_by_cell(runs: pd.DataFrame, figure: str) -> dict[str, list[float]]:
    """Return for each cell the values of a metric, one value per run."""
    values: dict[str, list[float]] = {}
    for cell, value in zip(runs["cell"].tolist(), runs[figure].tolist(), strict=True):
        values.setdefault(cell, []).append(value)
    return values


def median_and_range(groups: Any, figure: str) -> dict[str, Any]:
    """Return three columns with the median, minimum (`_min`) and maximum (`_max`) of a metric per group of runs."""
    values = groups[figure]
    return {figure: values.median(), f"{figure}_min": values.min(), f"{figure}_max": values.max()}


def add_statistics(cells: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the frame of cells with their statistics, one row per cell.

    The added columns are:

    - `n_valid`, `n_invalid` and `n_failed`: the numbers of measured runs;
    - the median, `_min` and `_max` of each main metric, and of each metric in `METRICS` that the runs have;
    - `disturbed`: the metrics of disturbed runs (`medians_of_disturbed_runs`), which is None for most cells;
    - `spread`: (max - min) / median;
    - `coverage`: 1 - 2/2^n, the probability that [min, max] contains the true median of independent runs;
    - `bytes_per_image`;
    - `scaling`, `no_scaling` and `scaling_unstable` (`scaling_column`).
    """
    numbers = [name for name, kind in runs.dtypes.items() if kind.kind in "if"]
    declared = [name for name in METRICS if name in runs]
    merits = sorted({*cells["figure"]}.intersection(numbers).difference(declared))
    figures = [*merits, *declared]
    good = valid_measured_runs(runs, figures)
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
    """Return three columns about the images/s of each done cell relative to the one-thread cell of the same series.

    `scaling` is the ratio. The ratio is missing if the series has no done one-thread cell or several of them, or if the
    two cells cannot be compared; too few runs do not remove the ratio. `no_scaling` is the reason why the two cells
    cannot be compared, or `""`. `scaling_unstable` tells whether one of the two cells is unstable.
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
    refused = column_of(
        comparable.sentence_on_looser_checks(pair) or comparable.sentence_on_replaced_calls(pair) for pair in pairs
    )
    return {
        "scaling": ratio.where((unlike == "") & (refused == "")),
        "no_scaling": unlike.where(unlike != "", weak),
        "scaling_unstable": unstable.reindex(table.index, fill_value=False),
    }


def _unlike(pairs: Sequence[tuple[Row, Row]], table: pd.DataFrame) -> Iterator[str]:
    """Yield for each pair of rows the differences that forbid a comparison.

    The differences are computed only once for pairs with equal facts.
    """
    names = [name for name in comparable.COLUMNS if name in table and name not in {"cell", "n_valid"}]
    words_of_facts: dict[tuple[Any, ...], str] = {}
    for pair in pairs:
        # A dictionary cannot be hashed, so its `id` is used. Equal conditions are one shared object with one `id`.
        facts = tuple(id(row[name]) if isinstance(row[name], dict) else row[name] for row in pair for name in names)
        if facts not in words_of_facts:
            words_of_facts[facts] = comparable.forbidding_differences(pair)
        yield words_of_facts[facts]


def runs_not_counted(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the invalid and failed runs as a frame with one row per cell, role, status and cause.

    `count` is the number of runs with this cause. `reason` is the reason of the first of these runs, because the
    reasons of one cause differ only in numbers (`cold: 99.1 % …` and `cold: 98.7 % …`).
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
    """Return for each cell the spread of the first metric in `figures` that the cell has."""
    spread = pd.Series(float("nan"), index=table.index, dtype="float64")
    for name in figures:
        spread = spread.fillna((table[f"{name}_max"] - table[f"{name}_min"]) / table[name])
    return spread
