"""The cost of a profile with ``profile.compare=true``: each measured run is paired with a run without the profile.

The two runs of a pair follow one another. The profiled run is first in every other pair, so that a machine that becomes
slower or faster favours neither. Runs without the profile have a role of their own and are not in the cell's median.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Final

from jobs.model.record import ProfileCost, Record
from jobs.model.results import Role, Run
from jobs.model.settings import Settings
from jobs.model.terms import Terms

UNPROFILED: Final = "unprofiled"
"""The role of a run without the profile that its cell asks for."""


def asked(settings: Settings, terms: Terms) -> bool:
    """Return whether each measured run of a cell is paired with a run without the profile."""
    return terms["compare"] and "profile" in settings


def order(record: Record) -> list[Role]:
    """Return the roles of the next pair."""
    turned = sum(run["role"] == "measured" for run in record["runs"]) % 2
    return [UNPROFILED, "measured"] if turned else ["measured", UNPROFILED]


def pairs(record: Record, status: str | None = "valid") -> list[tuple[Run, Run]]:
    """List the pairs of a measured run and a run without the profile in which both have this status; None: any.

    If a pair was started again, its later runs count; the earlier ones belong to another session of a worker.
    """
    found: dict[int, dict[str, Run]] = defaultdict(dict)
    for run in record["runs"]:
        if "pair" in run:
            found[run["pair"]][run["role"]] = run
    both = [(each["measured"], each[UNPROFILED]) for each in found.values() if len(each) == 2]  # noqa: PLR2004
    return [pair for pair in both if status is None or pair[0]["status"] == pair[1]["status"] == status]


def cost(record: Record) -> ProfileCost | None:
    """Return how much longer the profile made the runs, as shares of the wall time; None if no pair is valid."""
    shares = [profiled["wall_s"] / plain["wall_s"] - 1 for profiled, plain in pairs(record)]
    if not shares:
        return None
    return {"pairs": len(shares), "median": statistics.median(shares), "min": min(shares), "max": max(shares)}


def in_words(cost: ProfileCost) -> str:
    """Return the cost as a text for people."""
    low, high, median = (f"{cost[key]:+.2%}" for key in ("min", "max", "median"))
    return f"{median} of wall time (median of {cost['pairs']} pairs of runs, {low} to {high})"
