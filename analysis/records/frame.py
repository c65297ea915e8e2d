"""Pandas frames made from records: one with a row per run, one with a row per cell."""

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
from analysis.records.runs import COUNTS, FIGURES, TEXTS, Check, Kind, Merit, Runs, SharedTuple
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

# A row of a frame, by column name; the names depend on the records.
Row = dict[str, Any]
Shared = TypeVar("Shared")
Column = NDArray[Any] | ExtensionArray

OF_CELL = ("cell", "benchmark", "benchmark_version")
OF_KIND = ("role", "status", "reason", "cause")
OF_HOST = ("host", "started_utc")
# Columns of the frame of cells that are no settings.
KEYS = ("kind", "figure", "unit", "better", "set_key", "series_key", "storage", "storage_name")
# Columns that decide which cells may be compared, or group the runs that do not count; they are written to no file.
OF_COMPARISON = ("looser_checks", "conditions", "cause")
OF_BOUND = ("bound", "bound_share", "bound_by")
OF_RECORD = (
    *OF_CELL, "status", "reason", *OF_BOUND, "checks", "unstable", "spread_limit", "size", "site", "host", "device",
    "tensorflow", *KEYS, *OF_COMPARISON,
)  # fmt: skip

AT_ONCE = 1000  # rows as dictionaries
# A setting with one of these names is shown as `settings.<name>`.
RESERVED = frozenset({*OF_CELL, "run", *OF_KIND, *OF_HOST, *FIGURES, *TEXTS, *OF_RECORD})


def runs_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return the frame of runs: one row per run of each record.

    Columns: the cell, its settings under flat names (`dataset.name`), the run, its raw figures, one nullable
    boolean `check.<rule>` per check (missing where unverifiable or not made), host and UTC stamp. Arrays of
    steps stay in the record.
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
    """Return the frame of cells: one row per record, with its settings, state, main metric and grouping keys.

    `bound` is a word for what limits the speed of the cell (`jobs.judging.bound`), missing for a baseline; `bound_by`
    has the numbers behind it. `unstable` says whether the cell's check `spread` failed (missing if not made); `checks`
    sums up all checks in words; cells of one chart share the `set_key`, cells of one curve the `series_key`.
    """
    keys = _series(records)
    labels = storage_labels(dict.fromkeys(keys))
    bounds: list[Sequence[Any]] = [record.bound or (None, math.nan, "") for record in records]
    spreads = [[check.passed for check in record.checks if check.rule == "spread"] for record in records]
    derived: dict[str, list[Any]] = {
        **{name: [getattr(record.merit, name) for record in records] for name in Merit._fields},
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
    return frame.astype(kinds).copy()  # one block of memory, not one per column


def group_rows(frame: pd.DataFrame, keys: pd.Series[Any]) -> dict[Settings, pd.DataFrame]:
    """Return the rows of a frame per key, sorted by key."""
    groups: Iterable[tuple[Any, pd.DataFrame]] = frame.groupby(keys, sort=True)
    return dict(iter(groups))


def each_row(frame: pd.DataFrame) -> Iterator[Row]:
    """Yield the rows of a frame as dictionaries, made `AT_ONCE` at a time: all would take several times its memory."""
    for start in range(0, len(frame), AT_ONCE):
        yield from rows_of(frame.iloc[start : start + AT_ONCE])


def rows_of(frame: pd.DataFrame, names: Iterable[str] | None = None) -> list[Row]:
    """Return the rows of a frame as dictionaries; `names` limits them to those of these columns that exist."""
    wanted = [str(name) for name in (frame if names is None else names) if name in frame]
    columns = (frame[name].tolist() for name in wanted)
    return [dict(zip(wanted, values, strict=True)) for values in zip(*columns, strict=True)]


def json_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame as JSON takes them: None for a missing value."""
    return rows_of(frame.astype(object).where(frame.notna(), None))


def checks_in_words(record: Record) -> str:
    """Return a summary in words of the checks of the measured runs and of the cell.

    `passed`, or each rule that failed with the number of runs, followed by each rule that could not be verified.
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
    """Return a frame of the columns, without a copy of them; objects keep their type."""
    return pd.DataFrame(
        {name: pd.Series(values, dtype=values.dtype, copy=False) for name, values in columns.items()}, copy=False
    )


def _repeated(values: NDArray[Any], counts: Sequence[int]) -> Column:
    """Return a column with the value of each cell repeated per run; equal values share one object."""
    if len(set(map(type, values)) - {type(None)}) == 1:
        places, different = pd.factorize(values)
        return pd.Categorical.from_codes(np.repeat(places, counts), categories=pd.Index(different, dtype=object))
    code_of: dict[tuple[type, Any], int] = {}
    codes = [-1 if each is None else code_of.setdefault((type(each), each), len(code_of)) for each in values]
    if len({value for _, value in code_of}) < len(code_of):  # 1 and 1.0, which differ in writing
        return np.repeat(values, counts)
    kinds = pd.Index(_objects([value for _, value in code_of]), dtype=object)
    return pd.Categorical.from_codes(np.repeat(codes, counts), categories=kinds)


def _kinds(runs: Sequence[Runs]) -> tuple[list[Kind], NDArray[np.intp]]:
    """Return the distinct kinds of runs, and for each run the index of its kind among them."""
    of_cells, cells = _different([each.kinds for each in runs])
    kinds, codes = _different([*chain.from_iterable(of_cells)])
    of_cell = np.split(codes, np.cumsum([*map(len, of_cells)])[:-1])
    return kinds, np.concatenate([of_cell[place] for place in cells.tolist()])


def _different(shared: Sequence[Shared]) -> tuple[list[Shared], NDArray[np.intp]]:
    """Return the distinct objects, and for each given object its index among them (compared by identity)."""
    parts = {id(each): each for each in shared}
    places = {key: place for place, key in enumerate(parts)}
    return [*parts.values()], np.fromiter((places[id(each)] for each in shared), np.intp, len(shared))


def _figures(runs: Sequence[Runs], kinds: Sequence[Kind], codes: NDArray[np.intp]) -> dict[str, Column]:
    """Return the numbers of all runs by name, NaN if a run lacks one: those of `FIGURES`, then any others."""
    numbers = np.frombuffer(b"".join(each.figures for each in runs))
    lengths = np.array([len(kind.names) for kind in kinds])[codes]
    firsts = lengths.cumsum() - lengths
    layouts, layout_of_kind = _different([kind.names for kind in kinds])
    more = sorted({name for names in layouts for name in names}.difference(FIGURES))
    columns = {name: np.full(len(codes), np.nan) for name in (*FIGURES, *more)}
    for layout, names in enumerate(layouts):
        places = np.flatnonzero(layout_of_kind[codes] == layout)
        for column, name in enumerate(names):
            columns[name][places] = numbers[firsts[places] + column]
    return {name: pd.array(values, dtype="Int64") if name in COUNTS else values for name, values in columns.items()}


def _passed(kinds: Sequence[Kind], codes: NDArray[np.intp]) -> dict[str, Column]:
    """Return a column `check.<rule>` per rule: whether each run passed that check."""
    ends = [{check.rule: check.passed for check in kind.checks} for kind in kinds]
    rules = sorted({rule for rules in ends for rule in rules})
    return {f"check.{rule}": pd.array([end.get(rule) for end in ends], dtype="boolean").take(codes) for rule in rules}


def _of_cells(records: Sequence[Record]) -> dict[str, NDArray[Any]]:
    """Return the columns of each cell's names (`OF_CELL`) and all its settings, in the order of the records."""
    columns = {name: _objects([getattr(record, name) for record in records]) for name in OF_CELL}
    many = [record.settings for record in records]
    for name in dict.fromkeys(chain.from_iterable(many)):
        column = f"settings.{name}" if name in RESERVED else name
        columns[column] = _objects([settings.get(name) for settings in many])
    return columns


def _series(records: Sequence[Record]) -> list[Settings]:
    """Return the series key (`series_key`) of each record.

    If a cell died before it read its dataset, it gets the dataset of the cells with the same settings, if that is one.
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
