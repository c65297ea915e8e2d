"""Compare cells with baselines, which measure the speed of a storage alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.records.runs import STORAGE
from analysis.records.settings import is_storage
from analysis.statistics.comparable import AND, sentence_on_looser_checks
from analysis.statistics.medians import valid_measured_runs
from analysis.text import DASH

ACCESS, RANDOM = "benchmark.access", "random_read"
# The access patterns of the baselines with which a cell is compared. The first measured pattern is used.
PEAKS = (RANDOM, "read")
# The name of this project's own engine. For any other engine, the recorded version also contains the engine's name.
OWN_ENGINE = "builtin"
# The columns that are needed to find the baseline of a cell, and to compare the cell's speed with this baseline.
OF_A_BASELINE = (
    "cell", "kind", "status", "cache", "benchmark.control", ACCESS, "read_mb_per_s", "series_key", "threads", "host",
    "device", "looser_checks", "spread_limit",
)  # fmt: skip


def is_baseline(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the rows that are baselines, which only read or only write a storage."""
    mine: pd.Series[bool] = (frame["kind"] == STORAGE) & (frame[ACCESS].notna() if ACCESS in frame else False)
    return mine


def add_baselines(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with columns about baselines. A table without baselines is returned unchanged.

    A baseline gets the columns `mb_per_s`, `mb_per_s_min`, `mb_per_s_max` (read or written) and `engine` (the engine
    that its runs recorded). Each other cell gets the column `baseline` (the id of the baseline with which the cell is
    compared), `baseline_access`, and `percent_of_baseline` (the cell's median MB/s as a percentage of the baseline's).
    """
    mine = is_baseline(table)
    if not mine.any():
        return table
    ends = ("", "_min", "_max")
    rates = {f"mb_per_s{end}": table[f"read_mb_per_s{end}"].fillna(table[f"write_mb_per_s{end}"]) for end in ends}
    table = table.assign(**{name: values.where(mine) for name, values in rates.items()}).copy()
    engines = _engines(runs).to_dict()
    table["engine"] = [engines.get(cell, "") for cell in table["cell"]]
    rows = rows_of(table, OF_A_BASELINE)
    peaks = fastest_baselines(rows)
    baselines = [_of(row, peaks) for row in rows]
    columns = ["baseline", "baseline_access", "percent_of_baseline"]
    joined = pd.DataFrame(baselines, index=table.index, columns=columns).astype({"percent_of_baseline": "float64"})
    return table.join(joined.fillna({"baseline": "", "baseline_access": ""}))


def sentence_on_baseline(shown: pd.DataFrame) -> str:
    """Return a sentence with the speed of cells as a percentage of the baseline of each storage.

    Return `""` if no cell has a baseline.
    """
    if "percent_of_baseline" not in shown:
        return ""
    phrases = []
    for (storage, access), cells in shown.groupby(["storage", "baseline_access"], sort=False):
        shares = cells["percent_of_baseline"].dropna()
        if not shares.empty:
            low, high = (f"{share:.0f}" for share in (shares.min(), shares.max()))
            phrases.append(f"{storage} {low if low == high else low + DASH + high} % ({access})")
    return f"Of what the storage gives by itself: {', '.join(phrases)}." if phrases else ""


def _engines(runs: pd.DataFrame) -> pd.Series[str]:
    """Return for each baseline the engine of its measured runs, with the version.

    If the runs of a baseline had several engines, all engines are returned, joined by `AND`.
    """
    if "engine" not in runs:
        return pd.Series(dtype="object")
    good = valid_measured_runs(runs, ["engine", "engine_version"]).dropna(subset=["engine"])
    own = good["engine"] == OWN_ENGINE
    named = good.assign(words=good["engine_version"].mask(own, OWN_ENGINE).fillna(good["engine"]))
    return named.drop_duplicates(["cell", "words"]).sort_values("words").groupby("cell")["words"].agg(AND.join)


def fastest_baselines(rows: Iterable[Row]) -> Mapping[str, Row]:
    """Return the fastest done baseline for each `baseline_key`."""
    fastest_of_kind: dict[str, Row] = {}
    for row in rows:
        if row["kind"] != STORAGE or row["status"] != "done" or row.get(ACCESS) not in PEAKS:
            continue
        kind = baseline_key(row, row[ACCESS])
        if row["read_mb_per_s"] > (fastest_of_kind[kind]["read_mb_per_s"] if kind in fastest_of_kind else 0):
            fastest_of_kind[kind] = row
    return fastest_of_kind


def _of(row: Row, known: Mapping[str, Row]) -> tuple[Any, ...]:
    """Return the id and the access pattern of a cell's baseline, and the cell's speed as a percentage of this baseline.

    Return three Nones if the cell did not read with a cold page cache, or if there is no baseline. The percentage is
    None if one of the two cells was judged by looser checks.
    """
    reads = row["status"] == "done" and row.get("cache") == "cold" and row.get("benchmark.control") != "no_io"
    if reads and row["kind"] != STORAGE:
        for access in PEAKS:
            if peak := known.get(baseline_key(row, access)):
                share = 100 * row["read_mb_per_s"] / peak["read_mb_per_s"]
                return peak["cell"], access, None if sentence_on_looser_checks((row, peak)) else share
    return None, None, None


def baseline_key(row: Mapping[str, Any], access: str) -> str:
    """Return the key that a cell and its baseline share: storage, host, device and access pattern.

    For random reads, the key also has the number of threads and the dataset.
    """
    facts = row["series_key"].facts
    shared = {name: value for name, value in facts.items() if is_storage(name)}
    if access == RANDOM:
        shared |= {name: value for name, value in facts.items() if name == "data" or name.startswith("dataset.")}
        shared["threads"] = row.get("threads")
    return json.dumps({**shared, "host": row["host"], "device": row["device"], "access": access}, sort_keys=True)
