"""What staging has gained by measurement, beside what a plan predicted."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.cells.verdicts import Verdicts
from campaign.errors import UsageError
from campaign.staging import observed
from campaign.staging.cost import Gain
from campaign.staging.staging_plan import RULES, Plan
from jobs.data import staged_copies
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.profiler.window import Window

_WITHIN = 0.1  # of the bandwidth, by which a prediction may be off
_SAME_READS = 0.01  # of the bytes, by which two profiles of the same reads differ at most


@dataclass(frozen=True)
class Outcome:
    """Gains of bandwidth as shares: the predicted one, and that of the medians with the extremes of the runs."""

    predicted: Gain
    measured: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Tell whether the bandwidth came within 10 % of what was predicted."""
        return abs((1 + self.measured) / (1 + self.predicted["gain"]) - 1) <= _WITHIN


def outcomes(verdicts: Verdicts, plan: Plan) -> dict[str, Outcome]:
    """Hold the cells that are done, with copies, against the one that the plan was made from, by rule.

    Raises UsageError: none of them is done, or the plan is of no cell.
    """
    folder = verdicts.folder
    found = [verdicts.read(path)[0] for path in sorted(folder.records.glob("*/record.json"))]
    cells = {each["cell"]["id"]: each for each in found if each}
    origin = cells.get(plan["origin"])
    if origin is None:
        raise UsageError(f"{folder.root} has no cell {plan['origin']}, of which the plan is", "plan from a cell")
    done = [each for each in cells.values() if each["status"] == "done" and _rates(each)]
    staged = {each["cell"]["settings"].get("staging"): each for each in done if _beside(each, origin)}
    rules = [rule for rule in RULES if rule in staged and plan["rules"][rule]["files"]]
    if not rules or not _rates(origin):
        raise UsageError("no cell is done with the copies of this plan", "the words of its cell with staging=RULE")
    return {rule: _outcome(plan, rule, _rates(origin), _rates(staged[rule])) for rule in rules}


def of_profiles(folder: Path, plan: Plan, paths: Sequence[Path]) -> dict[str, Outcome]:
    """Hold profiles of a program that read the copies against the one that the plan was made from, by rule.

    `folder`: of the plan and its maps. Raises UsageError: a profile is not of the same reads, or of no rule's copies.
    """
    maps = {rule: staged_copies.load(path) for rule in RULES if (path := folder / f"{rule}.json").exists()}
    rates: dict[str, list[float]] = {}
    for path in paths:
        window = observed.window_of(path)
        copied = observed.read_below(window, [each.copies for each in maps.values()])
        rule = next((rule for rule, each in maps.items() if each.files.keys() == copied.keys()), None)
        if rule is None:
            why = f"{path} has read {len(copied)} copies, which are those of no rule that was applied"
            raise UsageError(why, f"read jobs.data.staged(paths, MAP), where MAP is {folder}/RULE.json")
        rates.setdefault(rule, []).append(_bytes_of_plan(window, plan, copied, path) / 1e6 / window.wall_s)
    return {rule: _outcome(plan, rule, [plan["mb_per_s"]], after) for rule, after in rates.items()}


def _bytes_of_plan(window: Window, plan: Plan, copied: Mapping[str, Sequence[int]], path: Path) -> float:
    """Return the bytes that were read of the plan's files, originals and copies; UsageError: not as in its profile."""
    originals = observed.read_below(window, [Path(plan["source"]), Path(plan["called"])])
    rows = [row for name, *_ in plan["listed"] for places in (originals, copied) for row in places.get(name, ())]
    read_bytes = float(window.counters["bytes_read"][rows].sum())
    if abs(read_bytes - plan["read_bytes"]) > _SAME_READS * plan["read_bytes"]:
        before = f"{plan['origin']} {plan['read_bytes'] / 1e6:,.1f}"
        why = f"{path} has read {read_bytes / 1e6:,.1f} MB of the plan's files, {before}"
        raise UsageError(why, "profile the same reads with the copies")
    from_device = [row for row in rows if observed.has_device(Path(window.paths[row]))]
    counted = int(window.counters["bytes_read"][from_device].sum())
    if window.device_bytes is not None and window.device_bytes < observed.COLD_FROM * counted:
        raise observed.from_memory_error(path, window.device_bytes, counted)
    return read_bytes


def _outcome(plan: Plan, rule: str, before: Sequence[float], after: Sequence[float]) -> Outcome:
    middle = statistics.median(after) / statistics.median(before) - 1
    return Outcome(plan["rules"][rule]["gain"], middle, min(after) / max(before) - 1, max(after) / min(before) - 1)


def _beside(one: Record, other: Record) -> bool:
    """Tell whether two cells differ in what is staged alone."""
    settings = [
        {key: value for key, value in each["cell"]["settings"].items() if key != "staging"} for each in (one, other)
    ]
    return settings[0] == settings[1] and "staging" in one["cell"]["settings"]


def _rates(recorded: Record) -> list[float]:
    """Return the bandwidth of each valid run that read, MB/s: over the profiled window where there is one."""
    runs: list[Any] = stopping.measured(recorded, "valid")
    return [rate for run in runs if (rate := run.get("profile", run).get("read_mb_per_s"))]
