"""What staging has gained by measurement, beside what a plan predicted."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from campaign.cells import record, stopping
from campaign.cells.contract import Record
from campaign.cells.folder import CampaignFolder
from campaign.errors import UsageError
from campaign.staging.plan import RULES, Plan

_WITHIN = 0.1  # of the bandwidth, by which a prediction may be off


@dataclass(frozen=True)
class Outcome:
    """Gains of bandwidth as shares: the predicted one, and that of the medians with the extremes of the runs."""

    predicted: Mapping[str, float]
    measured: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Tell whether the bandwidth came within 10 % of what was predicted."""
        return abs((1 + self.measured) / (1 + self.predicted["gain"]) - 1) <= _WITHIN


def outcomes(folder: CampaignFolder, plan: Plan) -> dict[str, Outcome]:
    """Hold the cells that are done, with copies, against the one that the plan was made from, by rule.

    Raises UsageError: none of them is done, or the plan is of no cell.
    """
    found = [record.read_or_fault(path)[0] for path in sorted(folder.records.glob("*/record.json"))]
    cells = {each["cell"]["id"]: each for each in found if each}
    origin = cells.get(plan["origin"])
    if origin is None:
        raise UsageError(f"{folder.root} has no cell {plan['origin']}, of which the plan is", "plan from a cell")
    done = [each for each in cells.values() if each["status"] == "done"]
    staged = {each["cell"]["settings"].get("staging"): each for each in done if _beside(each, origin)}
    rules = [rule for rule in RULES if rule in staged and plan["rules"][rule]["files"]]
    if not rules or not _rates(origin):
        raise UsageError("no cell is done with the copies of this plan", "the words of its cell with staging=RULE")
    before = _rates(origin)
    made = {}
    for rule in rules:
        after = _rates(staged[rule])
        middle = statistics.median(after) / statistics.median(before) - 1
        made[rule] = Outcome(
            plan["rules"][rule]["gain"], middle, min(after) / max(before) - 1, max(after) / min(before) - 1
        )
    return made


def _beside(one: Record, other: Record) -> bool:
    """Tell whether two cells differ in what is staged alone."""
    settings = [
        {key: value for key, value in each["cell"]["settings"].items() if key != "staging"} for each in (one, other)
    ]
    return settings[0] == settings[1] and "staging" in one["cell"]["settings"]


def _rates(recorded: Record) -> list[float]:
    """Return the bandwidth of each valid run, MB/s: over the profiled window where there is one."""
    runs: list[Any] = stopping.measured(recorded, "valid")
    return [run.get("profile", run)["read_mb_per_s"] for run in runs]
