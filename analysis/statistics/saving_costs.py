"""What cells of the mini-application save, where to, and what that costs them."""

from __future__ import annotations

import pandas as pd

from analysis.paper import BURST_BUFFER
from analysis.records.frame import Row, rows_of
from analysis.records.record import OF_SNAPSHOT
from analysis.records.settings import Facts, with_emulated
from analysis.records.shared_devices import BETWEEN, NAMED
from analysis.statistics.medians import counted, ends
from analysis.statistics.training import is_training

NO_TARGET = "none"
BELOW = ("target_below", "fast_below")
"""Columns that say with what a cell may be compared, and stand in no file."""
TIMES = tuple(f"snapshot_{name}" for name in OF_SNAPSHOT)


def with_saving(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the medians with the columns of checkpoints, the table as it is where no cell trains.

    Added columns: `target` (`none`, a storage, or what a burst buffer is made of), `target_name` (by which it has its
    look and its place), `mode`; the storage and the device that snapshots end on (`target_storage`, `target_device`),
    what that lies on, unless it is emulated (`target_below`), and the same of a burst buffer's fast side
    (`fast_storage`, `fast_device`, `fast_below`); median, `_min` and `_max` over the runs of each of `TIMES`, which in
    a run is the median over its snapshots.
    """
    mine = is_training(table)
    if not mine.any():
        return table
    facts = [key.facts for key in table["set_key"]]
    # Where snapshots were asked for, no run may have come to save one.
    good = counted(runs, runs.columns.intersection([*TIMES])).reindex(columns=["cell", *TIMES]).groupby("cell")
    columns = {name: values for time in TIMES for name, values in ends(good, time).items()}
    return (
        table.assign(
            target=[target(each) if trains else "" for each, trains in zip(facts, mine, strict=True)],
            target_name=[str(each.get("checkpoint.name", NO_TARGET)) for each in facts],
            mode=[mode(each) for each in facts],
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
    """Return by cell the kernel's counter of the device behind one side of its target, where there is one."""
    known = [runs[["cell", name]].dropna().set_axis(["cell", "source"], axis=1) for name in sources if name in runs]
    return {row["cell"]: row["source"] for each in known for row in rows_of(each)}


def _emulated(table: pd.DataFrame, role: str) -> pd.Series[bool]:
    """Tell of each cell whether a side of its target, or its only storage, is emulated: not as what it lies on."""
    keys = (f"checkpoint.{role}.emulated", "checkpoint.emulated")
    return table["set_key"].map(lambda key: any(key.facts.get(each) for each in keys)).astype("bool")


def beside_data(row: Row) -> str:
    """Return the device that a cell both reads its data from and saves its snapshots to; `""` where they are two."""
    (_, data), *saved = NAMED
    devices = {each for _, name in saved if isinstance(row.get(name), str) for each in row[name].split(BETWEEN)}
    return str(row[data]) if row.get(data) in devices - {""} else ""


def of_checkpoint(facts: Facts) -> frozenset[str]:
    """Return the names of the settings that say what is saved, and where."""
    return frozenset(name for name in facts if name.startswith("checkpoint."))


def target(facts: Facts) -> str:
    """Return the checkpoint target of a cell's settings in words."""
    name = str(facts.get("checkpoint.name", NO_TARGET))
    if name != BURST_BUFFER:
        return with_emulated(name, facts, "checkpoint")
    return f"burst buffer, {' to '.join(side(facts, each) for each in ('fast', 'slow'))}"


def side(facts: Facts, role: str) -> str:
    """Return the storage of a role of the checkpoint target, `only` where it has but one, in words."""
    key = "checkpoint" if role == "only" else f"checkpoint.{role}"
    return with_emulated(str(facts[f"{key}.name"]), facts, key)


def mode(facts: Facts) -> str:
    """Return how a cell saves, in the background with its copies in flight where there may be several."""
    name, copies = facts.get("checkpoint.mode"), facts.get("checkpoint.in_flight")
    return "" if name is None else str(name) if copies == 1 else f"{name}, {copies} in flight"
