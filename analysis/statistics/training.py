"""The mini-application's own figures per cell: what its time went to, and where it lies between its controls."""

from __future__ import annotations

import pandas as pd

from analysis.records.merit import TRAINING
from analysis.records.settings import family_key
from analysis.statistics.comparable import AND
from analysis.statistics.medians import counted, ends

CONTROL = "benchmark.control"
# Seconds of a run whose share of its runtime is shown.
SHARES = {"input_share": "load_s", "compute_share": "compute_s", "checkpoint_share": "checkpoint_s"}
# What no_io may differ in from what it is the control of, beside storage and threads.
OF_READING = {CONTROL, "prefetch", "cache", "seed", "benchmark.prefetch_to_device", "benchmark.private_threads"}
# A control bounds what ran on the same machine with the same software, and nothing else.
ALIKE = ("accelerator", "host", "tensorflow")


def is_training(frame: pd.DataFrame) -> pd.Series[bool]:
    """Say which rows are of cells that train."""
    trains: pd.Series[bool] = frame["kind"] == TRAINING
    return trains


def with_training(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with the mini-application's columns, the table as it is where it holds none of it.

    Added columns: `accelerator` (what the runs really had); median, `_min` and `_max` of the seconds spent waiting
    for input (`load_s`); `input_share` = load_s / wall_s, `compute_share` and `checkpoint_share` of the same kind,
    medians over the runs; `no_io_s`, `no_compute_s` and `between` (see `between`).
    """
    mine = is_training(table)
    if not mine.any():
        return table
    good = counted(runs, ["wall_s", *SHARES.values()])
    good = good[good["cell"].isin(table["cell"][mine])]
    cell = good["cell"]
    columns = ends(good.groupby("cell"), "load_s")
    columns |= {share: (good[part] / good["wall_s"]).groupby(cell).median() for share, part in SHARES.items()}
    known = {name: of_cell for name, of_cell in columns.items() if name not in table}
    table = table.join(pd.DataFrame(known), on="cell").copy()
    table["accelerator"] = table["cell"].map(ran_on(runs)).astype(object).where(mine).fillna("")
    return table.assign(**between(table))


def ran_on(runs: pd.DataFrame) -> pd.Series[str]:
    """Return for each cell the accelerator that its measured runs had, all of them where they differ."""
    if "accelerator" not in runs:
        return pd.Series(dtype="object")
    told = runs[(runs["role"] == "measured") & runs["accelerator"].notna()].drop_duplicates(["cell", "accelerator"])
    return told.sort_values("accelerator").groupby("cell")["accelerator"].agg(AND.join)


def between(table: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return where the runtime of each cell lies between its controls: (runtime - no_io) / no_compute.

    0 is the runtime without input (`control=no_io`: one batch in memory, again and again), where all input is hidden;
    1 is no_io and no_compute (`control=no_compute`: input alone) laid end to end, where nothing overlaps. The controls
    are the done cells of otherwise equal settings on the same host with the same accelerator and TensorFlow; two of a
    kind are none. What reads nothing need not agree in how it would read: `no_io_s` is the median of such cells.
    """
    nothing = pd.Series(float("nan"), index=table.index)
    if CONTROL not in table:
        return {"no_io_s": nothing, "no_compute_s": nothing, "between": nothing}
    done = is_training(table) & (table["status"] == "done")
    plain = done & (table[CONTROL] == "none")
    wall = {control: table["wall_s"].where(done & (table[CONTROL] == control)) for control in ("no_io", "no_compute")}
    whole, loose = _keys(table, "series_key", ["threads"], {CONTROL}), _keys(table, "set_key", [], OF_READING)
    lone = wall["no_compute"].groupby(whole).count() == 1
    alone = wall["no_compute"].groupby(whole).first().where(lone)
    times = {"no_io_s": loose.map(wall["no_io"].groupby(loose).median()), "no_compute_s": whole.map(alone)}
    times = {name: of_cell.astype("float64").where(plain) for name, of_cell in times.items()}
    return times | {"between": (table["wall_s"] - times["no_io_s"]) / times["no_compute_s"]}


def _keys(table: pd.DataFrame, key: str, more: list[str], free: set[str]) -> pd.Series[str]:
    """Return what cells share that a control bounds: the settings in `key` but for those that are `free`."""
    names = [*more, *ALIKE]
    of = table.reindex(columns=names)
    held = (tuple(zip(names, values, strict=True)) for values in zip(*(of[name] for name in names), strict=True))
    keys = [family_key(of_cell, frozenset(free), each) for of_cell, each in zip(table[key], held, strict=True)]
    return pd.Series(keys, index=table.index)
