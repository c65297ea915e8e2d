"""Compute metrics of training cells: shares of the runtime, comparison with controls, and times of snapshots."""

from __future__ import annotations

import pandas as pd

from analysis.paper import BURST_BUFFER
from analysis.records.frame import Row, rows_of
from analysis.records.record import NAMED
from analysis.records.runs import BETWEEN, OF_SNAPSHOT, TRAINING
from analysis.records.settings import Facts, add_emulation_remark, reduced_set_key
from analysis.statistics.comparable import AND
from analysis.statistics.medians import median_and_range, valid_measured_runs

CONTROL = "benchmark.control"
# Columns with a share of the runtime, and the time of a run (in seconds) from which each share is computed.
SHARES = {"input_share": "load_s", "compute_share": "compute_s", "checkpoint_share": "checkpoint_s"}
# Settings in which a no_io control may differ from its cell, in addition to storage and threads. These settings only
# change how data is read, and a no_io control does not read data.
OF_READING = {CONTROL, "prefetch", "cache", "seed", "benchmark.prefetch_to_device", "benchmark.private_threads"}
# A control is valid only for cells on the same machine with the same software.
ALIKE = ("accelerator", "host", "tensorflow")


def is_training(frame: pd.DataFrame) -> pd.Series[bool]:
    """Return a mask of the rows of cells that train."""
    trains: pd.Series[bool] = frame["kind"] == TRAINING
    return trains


def add_training_columns(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with the columns of training cells. A table without training cells is returned unchanged.

    The added columns are:

    - `accelerator`: the accelerator that the runs recorded;
    - the median, `_min` and `_max` of the seconds spent waiting for input (`load_s`);
    - `input_share` (load_s / wall_s), `compute_share` and `checkpoint_share`: medians over the runs;
    - `no_io_s`, `no_compute_s` and `between` (`position_between_controls`).
    """
    mine = is_training(table)
    if not mine.any():
        return table
    good = valid_measured_runs(runs, ["wall_s", *SHARES.values()])
    good = good[good["cell"].isin(table["cell"][mine])]
    cell = good["cell"]
    columns = median_and_range(good.groupby("cell"), "load_s")
    columns |= {share: (good[part] / good["wall_s"]).groupby(cell).median() for share, part in SHARES.items()}
    new = {name: of_cell for name, of_cell in columns.items() if name not in table}
    table = table.join(pd.DataFrame(new), on="cell").copy()
    table["accelerator"] = table["cell"].map(accelerator_of_cells(runs)).astype(object).where(mine).fillna("")
    return table.assign(**position_between_controls(table))


def accelerator_of_cells(runs: pd.DataFrame) -> pd.Series[str]:
    """Return for each cell the accelerator of its measured runs.

    If the runs of a cell used several accelerators, all accelerators are returned, joined by `AND`.
    """
    if "accelerator" not in runs:
        return pd.Series(dtype="object")
    accelerators = runs[(runs["role"] == "measured") & runs["accelerator"].notna()].drop_duplicates(
        ["cell", "accelerator"]
    )
    return accelerators.sort_values("accelerator").groupby("cell")["accelerator"].agg(AND.join)


def position_between_controls(table: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return the position of each cell's runtime between its two controls: (runtime - no_io) / no_compute.

    At 0 the cell is as fast as without input (`control=no_io`, which trains on one batch in memory again and again), so
    the training hides all input. At 1 the runtime is the sum of no_io and no_compute (`control=no_compute`, which only
    reads input), so input and computing do not overlap.

    The controls of a cell are done cells with otherwise equal settings on the same host, with the same accelerator and
    TensorFlow. If a cell has two no_compute controls, no control is used. A no_io control may also differ in the
    settings `OF_READING`, and `no_io_s` is the median over all these controls.
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
    """Return for each cell the key that the cell shares with its controls: the settings in `key` without `free`.

    The columns `more` and `ALIKE` are part of the key too.
    """
    names = [*more, *ALIKE]
    of = table.reindex(columns=names)
    held = (tuple(zip(names, values, strict=True)) for values in zip(*(of[name] for name in names), strict=True))
    keys = [reduced_set_key(of_cell, frozenset(free), each) for of_cell, each in zip(table[key], held, strict=True)]
    return pd.Series(keys, index=table.index)


NO_TARGET = "none"
BELOW = ("target_below", "fast_below")
"""Columns that are used to decide which cells may be compared. No table file contains these columns."""
SNAPSHOT_TIMES = tuple(f"snapshot_{name}" for name in OF_SNAPSHOT)


def add_checkpoint_columns(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with the columns about checkpoints. A table without training cells is returned unchanged.

    The added columns are:

    - `target`: the checkpoint target (`none`, a storage, or the two storages of a burst buffer);
    - `target_name`: the name that determines the target's colour and order in charts;
    - `mode`: how snapshots are saved (`sync` or `async`);
    - `target_storage`, `target_device`: the storage and the device that have the snapshots at the end;
    - `target_below`: the devices below `target_device`, or no value if the storage is emulated;
    - `fast_storage`, `fast_device`, `fast_below`: the same for the fast storage of a burst buffer;
    - the median, `_min` and `_max` over the runs of each time in `SNAPSHOT_TIMES`. The value of a run is the median
      over its snapshots.
    """
    mine = is_training(table)
    if not mine.any():
        return table
    facts = [key.facts for key in table["set_key"]]
    # If no run saved a snapshot, the frame of runs has no columns `SNAPSHOT_TIMES`, and `reindex` adds these columns.
    good = (
        valid_measured_runs(runs, runs.columns.intersection([*SNAPSHOT_TIMES]))
        .reindex(columns=["cell", *SNAPSHOT_TIMES])
        .groupby("cell")
    )
    columns = {name: values for time in SNAPSHOT_TIMES for name, values in median_and_range(good, time).items()}
    return (
        table.assign(
            target=[target_in_words(each) if trains else "" for each, trains in zip(facts, mine, strict=True)],
            target_name=[str(each.get("checkpoint.name", NO_TARGET)) for each in facts],
            mode=[saving_mode(each) for each in facts],
            target_storage=[
                str(each.get("checkpoint.slow.name", each.get("checkpoint.name", NO_TARGET))) for each in facts
            ],
            fast_storage=[str(each.get("checkpoint.fast.name")) for each in facts],
            target_device=table["cell"].map(_device(runs, ("source_slow", "source_only"))),
            fast_device=table["cell"].map(_device(runs, ("source_fast",))),
            target_below=table["cell"].map(_device(runs, ("below_slow", "below_only"))).mask(_emulated(table, "slow")),
            fast_below=table["cell"].map(_device(runs, ("below_fast",))).mask(_emulated(table, "fast")),
        )
        .join(pd.DataFrame(columns), on="cell")
        .copy()
    )


def _device(runs: pd.DataFrame, sources: tuple[str, ...]) -> dict[str, str]:
    """Return for each cell the device (as `dsk/<name>`) that has the snapshots of one storage of its target.

    A cell without such a device is left out. `sources` are the columns of the frame of runs that name the device.
    """
    devices = [runs[["cell", name]].dropna().set_axis(["cell", "source"], axis=1) for name in sources if name in runs]
    return {row["cell"]: row["source"] for each in devices for row in rows_of(each)}


def _emulated(table: pd.DataFrame, role: str) -> pd.Series[bool]:
    """Return for each cell whether the storage of this role (`fast`, `slow`) in the checkpoint target is emulated.

    If the target has only one storage, return whether this storage is emulated.
    """
    keys = (f"checkpoint.{role}.emulated", "checkpoint.emulated")
    return table["set_key"].map(lambda key: any(key.facts.get(each) for each in keys)).astype("bool")


def device_shared_with_data(row: Row) -> str:
    """Return the device that has both the dataset and the snapshots of a cell, or `""` if there is no such device."""
    (_, data), *saved = NAMED
    devices = {each for _, name in saved if isinstance(row.get(name), str) for each in row[name].split(BETWEEN)}
    return str(row[data]) if row.get(data) in devices - {""} else ""


def checkpoint_settings(facts: Facts) -> frozenset[str]:
    """Return the names of the checkpoint settings of a cell."""
    return frozenset(name for name in facts if name.startswith("checkpoint."))


def target_in_words(facts: Facts) -> str:
    """Return the checkpoint target of a cell, in words."""
    name = str(facts.get("checkpoint.name", NO_TARGET))
    if name != BURST_BUFFER:
        return add_emulation_remark(name, facts, "checkpoint")
    return f"burst buffer, {' to '.join(storage_of_role(facts, each) for each in ('fast', 'slow'))}"


def storage_of_role(facts: Facts, role: str) -> str:
    """Return the name of the storage that has a role in the checkpoint target: `fast`, `slow` or `only`.

    If the storage is emulated, a remark follows the name.
    """
    key = "checkpoint" if role == "only" else f"checkpoint.{role}"
    return add_emulation_remark(str(facts[f"{key}.name"]), facts, key)


def saving_mode(facts: Facts) -> str:
    """Return the mode in which a cell saves snapshots, or `""` if the cell saves no snapshots.

    If several copies may be in flight at once, the number of copies follows the mode.
    """
    name, copies = facts.get("checkpoint.mode"), facts.get("checkpoint.in_flight")
    return "" if name is None else str(name) if copies == 1 else f"{name}, {copies} in flight"
