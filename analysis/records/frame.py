"""Tidy frames: one row per run, and one row per cell."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from analysis.records import emulation
from analysis.records.merit import Merit
from analysis.records.record import COUNTS, FIGURES, TEXTS, Check, Record, Run
from analysis.records.settings import (
    IMPLIED,
    Facts,
    Settings,
    family_key,
    series_key,
    set_key,
    storage_labels,
    storage_name,
)
from analysis.records.shared import Parts

# A row of a frame by the names of its columns, which follow from the records.
Row = dict[str, Any]
Kind = TypeVar("Kind")
Column = NDArray[Any] | ExtensionArray

OF_CELL = ("cell", "benchmark", "benchmark_version")
OF_RUN = ("run", "role", "status", "reason", "cause")
OF_HOST = ("host", "started_utc")
# Columns of the frame of cells that are no settings.
KEYS = ("kind", "figure", "unit", "better", "set_key", "series_key", "storage", "storage_name")
# Columns that say with what a cell may be compared, or by what what does not count is grouped; they stand in no file.
OF_COMPARISON = ("looser_checks", "conditions", "cause")
OF_BOUND = ("bound", "bound_share", "bound_by")
OF_RECORD = (
    *OF_CELL, "status", "reason", *OF_BOUND, "checks", "unstable", "spread_limit", "size", "site", "host", "device",
    "tensorflow", *KEYS, *OF_COMPARISON,
)  # fmt: skip

# A setting of one of these names is shown as `settings.<name>`.
RESERVED = frozenset({*OF_CELL, *OF_RUN, *OF_HOST, *FIGURES, *TEXTS, *OF_RECORD})


def runs_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return every run of every record as one row.

    Columns: the cell, its settings under flat names (`dataset.name`), the run, its raw figures, one nullable
    boolean `check.<rule>` per check (missing where unverifiable or not made), host and UTC stamp. Arrays of
    steps stay in the record.
    """
    runs = [run for record in records for run in record.runs]
    counts = [len(record.runs) for record in records]
    of_cells = _of_cells(records).items()
    columns: dict[str, Column] = {
        name: np.repeat(values, counts) if name in OF_CELL else _repeated(values, counts) for name, values in of_cells
    }
    columns |= {name: _objects([getattr(run, name) for run in runs]) for name in OF_RUN}
    emulated = _objects([" ".join(sorted(record.emulated)) or None for record in records])
    kinds, codes = _kinds([run.texts for run in runs])
    texts = {name: _objects([words.get(name) for words in kinds]) for name in TEXTS}
    columns |= {
        name: np.repeat(emulated, counts) if name == "emulated" else values[codes]
        for name, values in texts.items()
        if any(emulated if name == "emulated" else values)
    }
    figures, checks = _figures(runs), _passed(runs)
    hosts = np.repeat(_objects([record.host for record in records]), counts)
    stamps = _objects([run.started_utc for run in runs])
    columns["run"] = columns["run"].astype("int64")
    figures = {f"run.{name}" if name in columns else name: values for name, values in figures.items()}
    return _frame({**columns, **figures, **checks, "host": hosts, "started_utc": stamps})


def cells_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return every record as one row: the cell, its settings, its state, its merit and the keys that group it.

    `bound` says in a word what bounds it (`jobs.judging.bound`), missing of a baseline; `bound_by` has the numbers that
    decide. `unstable` is the cell's own check `spread`, missing where it was not made; `checks` is the verdict in
    words; `set_key` is what one figure shares, `series_key` what one curve shares.
    """
    keys = _series(records)
    labels = storage_labels(dict.fromkeys(keys))
    spreads = [[check.passed for check in record.checks if check.rule == "spread"] for record in records]
    made: dict[str, list[Any]] = {
        **{name: [getattr(record.merit, name) for record in records] for name in Merit._fields},
        "checks": [verdict(record) for record in records],
        "bound": [record.bound.word if record.bound else None for record in records],
        "bound_share": [record.bound.share if record.bound else math.nan for record in records],
        "bound_by": [record.bound.words if record.bound else "" for record in records],
        "unstable": [None if not found or found[-1] is None else not found[-1] for found in spreads],
        "storage": [labels[key] for key in keys],
        "storage_name": [storage_name(key.facts) for key in keys],
        "series_key": keys,
        "set_key": [set_key(key) for key in keys],
    }
    of_records = {name: made.get(name) or [getattr(record, name) for record in records] for name in OF_RECORD}
    columns = {name: _objects(values) for name, values in of_records.items()}
    frame = _frame(columns | {name: it for name, it in _of_cells(records).items() if name not in OF_RECORD})
    kinds = {"unstable": "boolean", "spread_limit": "float64", "bound_share": "float64"}
    return frame.astype(kinds).copy()  # whole, and not a piece a column


def grouped(frame: pd.DataFrame, keys: pd.Series[Any]) -> dict[Settings, pd.DataFrame]:
    """Return the rows by their key, in the order of the keys."""
    groups: Iterable[tuple[Any, pd.DataFrame]] = frame.groupby(keys, sort=True)
    return dict(iter(groups))


def rows_of(frame: pd.DataFrame, names: Iterable[str] | None = None) -> list[Row]:
    """Return the rows of a frame as plain dictionaries; with `names`, of these columns as far as there are any."""
    wanted = [str(name) for name in (frame if names is None else names) if name in frame]
    columns = (frame[name].tolist() for name in wanted)
    return [dict(zip(wanted, values, strict=True)) for values in zip(*columns, strict=True)]


def verdict(record: Record) -> str:
    """Return the checks of the measured runs and of the cell in words.

    `passed`; or the rules that failed with the number of runs; then the rules that could not be verified.
    """
    return _verdict(tuple(run.checks for run in record.runs if run.role == "measured"), record.checks)


@lru_cache(1 << 12)
def _verdict(of_runs: Sequence[Parts[Check]], of_cell: Parts[Check]) -> str:
    checks = [*chain.from_iterable(of_runs)]
    if checks and all(check.passed for check in (*checks, *of_cell)):
        return "passed"
    failed = Counter(check.rule for check in checks if check.passed is False)
    told = [f"{rule} failed {count}x" for rule, count in sorted(failed.items())]
    told += [f"{check.rule} failed" for check in of_cell if check.passed is False]
    unknown = dict.fromkeys(check.rule for check in (*checks, *of_cell) if check.passed is None)
    told += [f"{rule} unverifiable" for rule in unknown]
    if told:
        return "; ".join(told)
    return "passed" if checks else "none made"


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return values as an array of objects, each as it is."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def _frame(columns: Mapping[str, Column]) -> pd.DataFrame:
    """Return columns as a frame in which objects stay what they are."""
    return pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()})


def _repeated(values: NDArray[Any], counts: Sequence[int]) -> Column:
    """Return the value of each cell once for each of its runs, as few objects as there are values."""
    if len(set(map(type, values)) - {type(None)}) == 1:
        places, different = pd.factorize(values)
        return pd.Categorical.from_codes(np.repeat(places, counts), categories=pd.Index(different, dtype=object))
    known: dict[tuple[type, Any], int] = {}
    codes = [-1 if each is None else known.setdefault((type(each), each), len(known)) for each in values]
    if len({value for _, value in known}) < len(known):  # 1 and 1.0, which are written apart
        return np.repeat(values, counts)
    kinds = pd.Index(_objects([value for _, value in known]), dtype=object)
    return pd.Categorical.from_codes(np.repeat(codes, counts), categories=kinds)


def _figures(runs: Sequence[Run]) -> dict[str, Column]:
    """Return the numbers of all runs by name, NaN where a run has none: those of `FIGURES`, then what was added."""
    kinds, codes = _kinds([run.names for run in runs])
    more = sorted({name for names in kinds for name in names}.difference(FIGURES))
    found = {name: np.full(len(runs), np.nan) for name in (*FIGURES, *more)}
    for code, names in enumerate(kinds):
        places = np.flatnonzero(codes == code).tolist()
        numbers = np.frombuffer(b"".join(runs[place].numbers for place in places)).reshape(len(places), len(names))
        for name, column in zip(names, numbers.T, strict=True):
            found[name][places] = column
    return {name: pd.array(values, dtype="Int64") if name in COUNTS else values for name, values in found.items()}


def _passed(runs: Sequence[Run]) -> dict[str, Column]:
    """Return how each check of each run ended, by `check.<rule>`."""
    kinds, codes = _kinds([run.checks for run in runs])
    ends = [{check.rule: check.passed for check in checks} for checks in kinds]
    rules = sorted({rule for rules in ends for rule in rules})
    return {f"check.{rule}": pd.array([end.get(rule) for end in ends], dtype="boolean").take(codes) for rule in rules}


def _kinds(shared: Sequence[Kind]) -> tuple[list[Kind], NDArray[np.intp]]:
    """Return the different ones of parts of which equal ones are one object, and the place of each among them."""
    places = {id(each): place for place, each in enumerate(shared)}
    kinds = [shared[place] for place in sorted(places.values())]
    codes = {id(kind): code for code, kind in enumerate(kinds)}
    return kinds, np.fromiter((codes[id(each)] for each in shared), np.intp, len(shared))


def _of_cells(records: Sequence[Record]) -> dict[str, NDArray[Any]]:
    """Return of each cell what names it and all settings, in the order in which the records give them."""
    columns = {name: _objects([getattr(record, name) for record in records]) for name in OF_CELL}
    for name in dict.fromkeys(name for record in records for name in record.settings):
        told = f"settings.{name}" if name in RESERVED else name
        columns[told] = _objects([record.settings.get(name) for record in records])
    return columns


def _series(records: Sequence[Record]) -> list[Settings]:
    """Return what the curve of each cell shares.

    A cell that died before it saw its dataset is given the one that all cells of its settings read.
    """
    keys = [series_key(_facts(record)) for record in records]
    if all(record.data for record in records):
        return keys
    known: dict[Settings, set[str]] = defaultdict(set)
    apart = [family_key(set_key(key), frozenset({"data"})) for key in keys]
    for record, key in zip(records, apart, strict=True):
        known[key] |= {record.data} - {""}
    pairs = zip(records, keys, apart, strict=True)
    return [
        series_key({**key.facts, "data": next(iter(known[of]))}) if not record.data and len(known[of]) == 1 else key
        for record, key, of in pairs
    ]


def _facts(record: Record) -> Facts:
    return {
        **record.settings,
        "benchmark": record.benchmark,
        "benchmark_version": record.benchmark_version,
        "data": record.data,
        IMPLIED: record.merit.kind,
        **{f"{key}.emulated": emulation.mark(facts) for key, facts in record.emulated.items()},
    }
