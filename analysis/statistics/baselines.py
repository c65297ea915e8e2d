"""What storages give by themselves, and which share of it each cell got."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.records.merit import STORAGE
from analysis.records.settings import is_storage
from analysis.statistics.comparable import AND
from analysis.statistics.medians import counted
from analysis.text.plain import DASH

ACCESS, RANDOM = "benchmark.access", "random_read"
# In the order in which they are asked what a storage gives to a cell: the first that is known answers.
PEAKS = (RANDOM, "read")
# Others say their own name with their version.
OWN_ENGINE = "builtin"
# What of a cell says which baseline is its own, and which share of it the cell got.
OF_A_BASELINE = (
    "cell", "kind", "status", "cache", "benchmark.control", ACCESS, "read_mb_per_s", "series_key", "threads", "host",
    "device",
)  # fmt: skip


def is_baseline(frame: pd.DataFrame) -> pd.Series[bool]:
    """Say which rows are of baselines: what reads or writes a storage by itself, one way of access each."""
    mine: pd.Series[bool] = (frame["kind"] == STORAGE) & (frame[ACCESS].notna() if ACCESS in frame else False)
    return mine


def with_baselines(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with what baselines say of them, the table as it is where it holds none.

    Added columns: `mb_per_s`, `_min` and `_max` (of a baseline, whatever it does), `engine` (what its runs really had);
    of the other cells `baseline` (the cell that says what their storage gives), `baseline_access` and
    `percent_of_baseline` (their median MB/s in percent of its).
    """
    mine = is_baseline(table)
    if not mine.any():
        return table
    ends = ("", "_min", "_max")
    both = {f"mb_per_s{end}": table[f"read_mb_per_s{end}"].fillna(table[f"write_mb_per_s{end}"]) for end in ends}
    table = table.assign(**{name: values.where(mine) for name, values in both.items()}).copy()
    engines = _engines(runs).to_dict()
    table["engine"] = [engines.get(cell, "") for cell in table["cell"]]
    rows = rows_of(table, OF_A_BASELINE)
    known = fastest(rows)
    found = [_of(row, known) for row in rows]
    columns = ["baseline", "baseline_access", "percent_of_baseline"]
    told = pd.DataFrame(found, index=table.index, columns=columns).astype({"percent_of_baseline": "float64"})
    return table.join(told.fillna({"baseline": "", "baseline_access": ""}))


def of_baseline(shown: pd.DataFrame) -> str:
    """Return in words which share of what its storage gives each of some cells got; empty where nothing is known."""
    if "percent_of_baseline" not in shown:
        return ""
    told = []
    for (storage, access), cells in shown.groupby(["storage", "baseline_access"], sort=False):
        shares = cells["percent_of_baseline"].dropna()
        if not shares.empty:
            low, high = (f"{share:.0f}" for share in (shares.min(), shares.max()))
            told.append(f"{storage} {low if low == high else low + DASH + high} % ({access})")
    return f"Of what the storage gives by itself: {', '.join(told)}." if told else ""


def _engines(runs: pd.DataFrame) -> pd.Series[str]:
    """Return for each baseline the engine and the version that its measured runs had, all of them where they differ."""
    if "engine" not in runs:
        return pd.Series(dtype="object")
    good = counted(runs, ["engine", "engine_version"]).dropna(subset=["engine"])
    own = good["engine"] == OWN_ENGINE
    told = good.assign(words=good["engine_version"].mask(own, OWN_ENGINE).fillna(good["engine"]))
    return told.drop_duplicates(["cell", "words"]).sort_values("words").groupby("cell")["words"].agg(AND.join)


def fastest(rows: Iterable[Row]) -> Mapping[str, Row]:
    """Return the fastest done baseline of each kind, by what it shares with the cells that it speaks of (`key`)."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["kind"] != STORAGE or row["status"] != "done" or row.get(ACCESS) not in PEAKS:
            continue
        kind = key(row, row[ACCESS])
        if row["read_mb_per_s"] > (found[kind]["read_mb_per_s"] if kind in found else 0):
            found[kind] = row
    return found


def _of(row: Row, known: Mapping[str, Row]) -> tuple[Any, ...]:
    """Return the baseline of a cell that read cold from its storage, how that read, and the cell's share in percent."""
    reads = row["status"] == "done" and row.get("cache") == "cold" and row.get("benchmark.control") != "no_io"
    if reads and row["kind"] != STORAGE:
        for access in PEAKS:
            if peak := known.get(key(row, access)):
                return peak["cell"], access, 100 * row["read_mb_per_s"] / peak["read_mb_per_s"]
    return None, None, None


def key(row: Mapping[str, Any], access: str) -> str:
    """Return what a cell shares with the baseline of its storage: host, device, of random reads threads and data."""
    facts = row["series_key"].facts
    shared = {name: value for name, value in facts.items() if is_storage(name)}
    if access == RANDOM:
        shared |= {name: value for name, value in facts.items() if name == "data" or name.startswith("dataset.")}
        shared["threads"] = row.get("threads")
    return json.dumps({**shared, "host": row["host"], "device": row["device"], "access": access}, sort_keys=True)
