"""Make pandas frames from records: the frame of runs has one row per run, the frame of cells one row per cell."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from analysis.records.record import Record, emulation_mark
from analysis.records.runs import COUNTS, METRIC_NAMES, TEXTS, Check, Kind, MainMetric, Runs, SharedTuple
from analysis.records.settings import (
    IMPLIED,
    Facts,
    Settings,
    reduced_set_key,
    series_key,
    set_key,
    storage_labels,
    storage_name,
)

# A row of a frame as a dictionary. The column names (the keys) depend on the settings in the records.
Row = dict[str, Any]
Shared = TypeVar("Shared")
Column = NDArray[Any] | ExtensionArray

OF_CELL = ("cell", "benchmark", "benchmark_version")
OF_KIND = ("role", "status", "reason", "cause")
OF_HOST = ("host", "started_utc")
# Columns of the frame of cells with the main metric and with the keys by which cells are grouped.
KEYS = ("kind", "figure", "unit", "better", "set_key", "series_key", "storage", "storage_name")
# Columns that are used to decide which cells may be compared, or to group invalid runs. No table file contains these
# columns.
OF_COMPARISON = ("looser_checks", "conditions", "cause")
OF_BOUND = ("bound", "bound_share", "bound_by")
OF_RECORD = (
    *OF_CELL, "status", "reason", *OF_BOUND, "checks", "unstable", "spread_limit", "size", "site", "host", "device",
    "tensorflow", *KEYS, *OF_COMPARISON,
)  # fmt: skip

AT_ONCE = 1000  # the number of rows that `each_row` converts to dictionaries at once
# Column names that are not settings. A setting with such a name gets the column `settings.<name>`.
RESERVED = frozenset({*OF_CELL, "run", *OF_KIND, *OF_HOST, *METRIC_NAMES, *TEXTS, *OF_RECORD})


def runs_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return the frame of runs, which has one row per run of each record.

    The columns are the cell, the settings under flat names (`dataset.name`), the number of the run, the raw metrics,
    the checks, the host and the start time (UTC). Each check has a nullable boolean column `check.<rule>`, which has no
    value if the check is unverifiable or was not made. The arrays with one value per step are not in the frame.
    """
    runs = [record.runs for record in records]
    counts = [*map(len, runs)]
    of_cells = _of_cells(records).items()
    columns: dict[str, Column] = {
        name: np.repeat(values, counts) if name in OF_CELL else _repeated(values, counts) for name, values in of_cells
    }
    columns["run"] = np.fromiter(chain.from_iterable(each.run for each in runs), "int64", sum(counts))
    kinds, codes = _kinds(runs)
    columns |= {name: _objects([getattr(kind, name) for kind in kinds])[codes] for name in OF_KIND}
    emulated = _objects([" ".join(sorted(record.emulated)) or None for record in records])
    texts = {name: _objects([kind.texts.get(name) for kind in kinds]) for name in TEXTS}
    columns |= {
        name: np.repeat(emulated, counts) if name == "emulated" else values[codes]
        for name, values in texts.items()
        if any(emulated if name == "emulated" else values)
    }
    figures, checks = _figures(runs, kinds, codes), _passed(kinds, codes)
    hosts = np.repeat(_objects([record.host for record in records]), counts)
    stamps = _objects([stamp for each in runs for stamp in each.started_utc])
    figures = {f"run.{name}" if name in columns else name: values for name, values in figures.items()}
    return _frame({**columns, **figures, **checks, "host": hosts, "started_utc": stamps})


def cells_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return the frame of cells, which has one row per record: settings, status, main metric and grouping keys.

    The column `bound` names the resource that limits the speed of the cell (`jobs.judging.bound`). A baseline has no
    `bound`. The column `bound_by` has the numbers from which `bound` follows. The column `unstable` tells whether the
    check `spread` of the cell failed, and has no value if the check was not made. The column `checks` summarizes all
    checks in words. Cells of one chart have the same `set_key`. Cells of one curve have the same `series_key`.
    """
    keys = _series(records)
    labels = storage_labels(dict.fromkeys(keys))
    bounds: list[Sequence[Any]] = [record.bound or (None, math.nan, "") for record in records]
    spreads = [[check.passed for check in record.checks if check.rule == "spread"] for record in records]
    derived: dict[str, list[Any]] = {
        **{name: [getattr(record.merit, name) for record in records] for name in MainMetric._fields},
        "checks": [checks_in_words(record) for record in records],
        **{name: [each[place] for each in bounds] for place, name in enumerate(OF_BOUND)},
        "unstable": [None if not found or found[-1] is None else not found[-1] for found in spreads],
        "storage": [labels[key] for key in keys],
        "storage_name": [storage_name(key.facts) for key in keys],
        "series_key": keys,
        "set_key": [set_key(key) for key in keys],
    }
    of_records = {name: derived.get(name) or [getattr(record, name) for record in records] for name in OF_RECORD}
    columns = {name: _objects(values) for name, values in of_records.items()}
    frame = _frame(columns | {name: it for name, it in _of_cells(records).items() if name not in OF_RECORD})
    kinds = {"unstable": "boolean", "spread_limit": "float64", "bound_share": "float64"}
    return frame.astype(kinds).copy()  # the copy joins the columns in one block of memory


def group_rows(frame: pd.DataFrame, keys: pd.Series[Any]) -> dict[Settings, pd.DataFrame]:
    """Return a mapping from each distinct key to the rows of the frame with this key, sorted by key."""
    groups: Iterable[tuple[Any, pd.DataFrame]] = frame.groupby(keys, sort=True)
    return dict(iter(groups))


def each_row(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the rows of a frame as dictionaries.

    `AT_ONCE` rows are converted at a time, because dictionaries take several times the memory of the frame.
    """
    for start in range(0, len(frame), AT_ONCE):
        yield from rows_of(frame.iloc[start : start + AT_ONCE])


def rows_of(frame: pd.DataFrame, names: Iterable[str] | None = None) -> list[Row]:
    """Return the rows of a frame as dictionaries.

    If `names` is given, the dictionaries have only these columns. A name that the frame does not have is ignored.
    """
    wanted = [str(name) for name in (frame if names is None else names) if name in frame]
    columns = (frame[name].tolist() for name in wanted)
    return [dict(zip(wanted, values, strict=True)) for values in zip(*columns, strict=True)]


def json_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame as dictionaries for JSON, with None for a missing value."""
    return rows_of(frame.astype(object).where(frame.notna(), None))


def checks_in_words(record: Record) -> str:
    """Return a summary in words of the checks of the cell and of its measured runs.

    The summary is `passed` if all checks hold. Otherwise the summary names each rule that failed with the number of
    runs, then each rule that could not be verified.
    """
    return _verdict(tuple([kind.checks for kind in record.runs.kinds if kind.role == "measured"]), record.checks)


@lru_cache(1 << 12)
def _verdict(of_runs: Sequence[SharedTuple[Check]], of_cell: SharedTuple[Check]) -> str:
    checks = [*chain.from_iterable(of_runs)]
    if checks and all(check.passed for check in (*checks, *of_cell)):
        return "passed"
    failed = Counter(check.rule for check in checks if check.passed is False)
    phrases = [f"{rule} failed {count}x" for rule, count in sorted(failed.items())]
    phrases += [
        "unstable" if check.rule == "spread" else f"{check.rule} failed" for check in of_cell if check.passed is False
    ]
    unknown = dict.fromkeys(check.rule for check in (*checks, *of_cell) if check.passed is None)
    phrases += [f"{rule} unverifiable" for rule in unknown]
    if phrases:
        return "; ".join(phrases)
    return "passed" if checks else "none made"


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return an array of type object that holds the values unchanged."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _frame(columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return a frame with the columns, without copying the columns or changing their types."""
    return pd.DataFrame(
        {name: pd.Series(values, dtype=values.dtype, copy=False) for name, values in columns.items()}, copy=False
    )


def _repeated(values: NDArray[Any], counts: Sequence[int]) -> Column:
    """Return a column of the frame of runs, in which the value of each cell is repeated for each run of the cell.

    If possible, the column is a categorical, which stores each distinct value only once.
    """
    if len(set(map(type, values)) - {type(None)}) == 1:
        places, different = pd.factorize(values)
        return pd.Categorical.from_codes(np.repeat(places, counts), categories=pd.Index(different, dtype=object))
    code_of: dict[tuple[type, Any], int] = {}
    codes = [-1 if each is None else code_of.setdefault((type(each), each), len(code_of)) for each in values]
    if len({value for _, value in code_of}) < len(code_of):  # a categorical cannot hold both 1 and 1.0
        return np.repeat(values, counts)
    kinds = pd.Index(_objects([value for _, value in code_of]), dtype=object)
    return pd.Categorical.from_codes(np.repeat(codes, counts), categories=kinds)


def _kinds(runs: Sequence[Runs]) -> tuple[list[Kind], NDArray[np.intp]]:
    """Return the distinct kinds of runs, and for each run the index of its kind in the list of kinds."""
    of_cells, cells = _different([each.kinds for each in runs])
    kinds, codes = _different([*chain.from_iterable(of_cells)])
    of_cell = np.split(codes, np.cumsum([*map(len, of_cells)])[:-1])
    return kinds, np.concatenate([of_cell[place] for place in cells.tolist()])


def _different(shared: Sequence[Shared]) -> tuple[list[Shared], NDArray[np.intp]]:
    """Return the distinct objects, and for each given object its index in the list of distinct objects.

    Objects are compared by identity.
    """
    parts = {id(each): each for each in shared}
    places = {key: place for place, key in enumerate(parts)}
    return [*parts.values()], np.fromiter((places[id(each)] for each in shared), np.intp, len(shared))


def _figures(runs: Sequence[Runs], kinds: Sequence[Kind], codes: NDArray[np.intp]) -> dict[str, Column]:
    """Return one column per metric with the metric's value in each run, or NaN if the run lacks the metric.

    The metrics in `METRIC_NAMES` come first, then all other metrics of the runs.
    """
    numbers = np.frombuffer(b"".join(each.figures for each in runs))
    lengths = np.array([len(kind.names) for kind in kinds])[codes]
    firsts = lengths.cumsum() - lengths
    layouts, layout_of_kind = _different([kind.names for kind in kinds])
    more = sorted({name for names in layouts for name in names}.difference(METRIC_NAMES))
    columns = {name: np.full(len(codes), np.nan) for name in (*METRIC_NAMES, *more)}
    for layout, names in enumerate(layouts):
        places = np.flatnonzero(layout_of_kind[codes] == layout)
        for column, name in enumerate(names):
            columns[name][places] = numbers[firsts[places] + column]
    return {name: pd.array(values, dtype="Int64") if name in COUNTS else values for name, values in columns.items()}


def _passed(kinds: Sequence[Kind], codes: NDArray[np.intp]) -> dict[str, Column]:
    """Return one column `check.<rule>` per rule, which tells for each run whether the check passed."""
    ends = [{check.rule: check.passed for check in kind.checks} for kind in kinds]
    rules = sorted({rule for rules in ends for rule in rules})
    return {f"check.{rule}": pd.array([end.get(rule) for end in ends], dtype="boolean").take(codes) for rule in rules}


def _of_cells(records: Sequence[Record]) -> dict[str, NDArray[Any]]:
    """Return the columns `OF_CELL` and one column per setting, with one value per record."""
    columns = {name: _objects([getattr(record, name) for record in records]) for name in OF_CELL}
    many = [record.settings for record in records]
    for name in dict.fromkeys(chain.from_iterable(many)):
        column = f"settings.{name}" if name in RESERVED else name
        columns[column] = _objects([settings.get(name) for settings in many])
    return columns


def _series(records: Sequence[Record]) -> list[Settings]:
    """Return the series key (`series_key`) of each record.

    The record of a cell that failed before reading its dataset names no dataset. If all other cells with the same
    settings read one and the same dataset, this dataset is put into the key of the failed cell.
    """
    keys = [series_key(_facts(record)) for record in records]
    if all(record.data for record in records):
        return keys
    data_of: dict[Settings, set[str]] = defaultdict(set)
    apart = [reduced_set_key(set_key(key), frozenset({"data"})) for key in keys]
    for record, key in zip(records, apart, strict=True):
        data_of[key] |= {record.data} - {""}
    pairs = zip(records, keys, apart, strict=True)
    return [
        series_key({**key.facts, "data": next(iter(data_of[of]))}) if not record.data and len(data_of[of]) == 1 else key
        for record, key, of in pairs
    ]


def _facts(record: Record) -> Facts:
    return {
        **record.settings,
        "benchmark": record.benchmark,
        "benchmark_version": record.benchmark_version,
        "data": record.data,
        IMPLIED: record.merit.kind,
        **{f"{key}.emulated": emulation_mark(facts) for key, facts in record.emulated.items()},
    }
