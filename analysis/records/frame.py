"""Tidy frames: one row per run, and one row per cell."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.records.read import COUNTS, FIGURES, TEXTS
from analysis.records.settings import facts_of, flatten, series_key, set_key, storage_labels, storage_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.records.read import Record

OF_CELL = ("cell", "benchmark", "benchmark_version")
OF_RUN = ("run", "role", "status", "reason")
OF_HOST = ("host", "started_utc")
# Columns of the frame of cells that are no settings.
KEYS = ("set_key", "series_key", "storage", "storage_name")
OF_RECORD = (
    *OF_CELL, "status", "reason", "checks", "unstable", "spread_limit", "size", "site", "host", "device", "tensorflow",
    *KEYS,
)  # fmt: skip

# A setting of one of these names is told as `settings.<name>`.
RESERVED = frozenset({*OF_CELL, *OF_RUN, *OF_HOST, *FIGURES, *TEXTS, *OF_RECORD})


def runs_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return every run of every record as one row.

    Columns: the cell, its settings under flat names (`dataset.name`), the run, its raw figures, one nullable
    boolean `check.<rule>` per check (missing where unverifiable or not made), host and UTC stamp. Arrays of
    steps stay in the record.
    """
    of_cells = [_row_of_settings(record) for record in records]
    pairs = zip(records, of_cells, strict=True)
    rows = [of_cell | _row_of_run(record, run) for record, of_cell in pairs for run in record.runs]
    settings = _settings_of(of_cells)
    more = {name for row in rows for name in row}.difference(OF_CELL, OF_RUN, OF_HOST, FIGURES, settings)
    texts = [name for name in TEXTS if name in more]
    checks = sorted(name for name in more if name.startswith("check."))
    figures = [*FIGURES, *sorted(more.difference(checks, texts))]
    frame = pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=object)
            for name in (*OF_CELL, *settings, *OF_RUN, *texts, *figures, *checks, *OF_HOST)
        }
    )
    types = {"run": "int64"} | dict.fromkeys(figures, "float64") | dict.fromkeys(checks, "boolean")
    return frame.astype(types | dict.fromkeys(COUNTS, "Int64")).copy()


def cells_frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return every record as one row: the cell, its settings, its state and the keys that group it.

    `unstable` is the cell's own check `spread`, missing where it was not made; `checks` is the verdict in
    words; `set_key` is what one figure shares, `series_key` what one curve shares.
    """
    of_cells = [_row_of_settings(record) for record in records]
    rows = [of_cell | _row_of_cell(record) for record, of_cell in zip(records, of_cells, strict=True)]
    _adopt_data(rows)
    labels = storage_labels(dict.fromkeys(row["series_key"] for row in rows))
    for row in rows:
        row["storage"] = labels[row["series_key"]]
    names = (*OF_RECORD, *(name for name in _settings_of(of_cells) if name not in OF_RECORD))
    frame = pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names})
    return frame.astype({"unstable": "boolean", "spread_limit": "float64"}).copy()  # whole, and not in a piece a column


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as plain dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def verdict(record: Record) -> str:
    """Return the checks of the measured runs and of the cell in words.

    `passed`; or the rules that failed with the number of runs; then the rules that could not be verified.
    """
    checks = [check for run in record.runs if run["role"] == "measured" for check in run["checks"]]
    failed = Counter(check["rule"] for check in checks if check["passed"] is False)
    of_cell = [check["rule"] for check in record.checks if check["passed"] is False]
    told = [f"{rule} failed {count}x" for rule, count in sorted(failed.items())]
    told += [f"{rule} failed" for rule in of_cell]
    unknown = dict.fromkeys(check["rule"] for check in (*checks, *record.checks) if check["passed"] is None)
    told += [f"{rule} unverifiable" for rule in unknown]
    if told:
        return "; ".join(told)
    return "passed" if checks else "none made"


def _row_of_run(record: Record, run: Mapping[str, Any]) -> dict[str, Any]:
    checks = {f"check.{check['rule']}": check["passed"] for check in run["checks"]}
    of_run = {name: value for name, value in run.items() if name != "checks"}
    emulated = {"emulated": " ".join(sorted(record.emulated))} if record.emulated else {}
    return {**of_run, **checks, **emulated, "host": record.host}


def _row_of_cell(record: Record) -> dict[str, Any]:
    spread = [check["passed"] for check in record.checks if check["rule"] == "spread"]
    facts = {
        **flatten(record.settings),
        "benchmark": record.benchmark,
        "benchmark_version": record.benchmark_version,
        "data": record.data,
        **{f"{key}.emulated": True for key in record.emulated},
    }
    return {
        "status": record.status,
        "reason": record.reason,
        "checks": verdict(record),
        "unstable": None if not spread or spread[-1] is None else not spread[-1],
        "spread_limit": record.spread_limit,
        "size": record.size,
        "site": record.site,
        "host": record.host,
        "device": record.device,
        "tensorflow": record.tensorflow,
        "storage_name": storage_name(facts),
        "series_key": series_key(facts),
        "set_key": set_key(facts),
    }


def _row_of_settings(record: Record) -> dict[str, Any]:
    flat = {f"settings.{n}" if n in RESERVED else n: v for n, v in flatten(record.settings).items()}
    of_cell = {
        "cell": record.cell,
        "benchmark": record.benchmark,
        "benchmark_version": record.benchmark_version,
    }
    return flat | of_cell


def _settings_of(of_cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all settings, in the order in which the records give them."""
    names = dict.fromkeys(name for of_cell in of_cells for name in of_cell)
    return [name for name in names if name not in OF_CELL]


def _adopt_data(rows: Sequence[dict[str, Any]]) -> None:
    """Give a cell that died before it saw its dataset the one that all cells of its settings read."""
    known: dict[str, set[str]] = defaultdict(set)
    facts = [facts_of(row["series_key"]) for row in rows]
    for each in facts:
        known[set_key({**each, "data": ""})] |= {each["data"]} - {""}
    for row, each in zip(rows, facts, strict=True):
        candidates = known[set_key({**each, "data": ""})]
        if not each["data"] and len(candidates) == 1:
            each["data"] = next(iter(candidates))
            row["series_key"], row["set_key"] = series_key(each), set_key(each)
