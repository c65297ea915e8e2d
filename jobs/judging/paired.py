"""What a profile costs the runs of a cell, where ``profile.compare`` asks: each measured run beside one without it.

The two of a pair follow one another, the profiled one first in every other pair, so that a machine that becomes slower
or faster takes neither side. Runs without a profile have a role of their own: they are in no median of the cell.
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
"""The role of a run that is made without the profile that its cell asks for."""


def asked(settings: Settings, terms: Terms) -> bool:
    """Return whether each measured run of a cell is to have one without a profile beside it."""
    return terms["compare"] and "profile" in settings


def order(record: Record) -> list[Role]:
    """Return the roles of the next pair."""
    turned = sum(run["role"] == "measured" for run in record["runs"]) % 2
    return [UNPROFILED, "measured"] if turned else ["measured", UNPROFILED]


def pairs(record: Record, status: str | None = "valid") -> list[tuple[Run, Run]]:
    """List each measured run with the one without a profile: pairs of which both are of a status, None for any.

    Of a pair that was begun again the later runs count: those before them were made in another session.
    """
    found: dict[int, dict[str, Run]] = defaultdict(dict)
    for run in record["runs"]:
        if "pair" in run:
            found[run["pair"]][run["role"]] = run
    both = [(each["measured"], each[UNPROFILED]) for each in found.values() if len(each) == 2]  # noqa: PLR2004
    return [pair for pair in both if status is None or pair[0]["status"] == pair[1]["status"] == status]


def cost(record: Record) -> ProfileCost | None:
    """Return by how much the profile made runs longer, as shares of the wall time; None without a valid pair."""
    shares = [profiled["wall_s"] / plain["wall_s"] - 1 for profiled, plain in pairs(record)]
    if not shares:
        return None
    return {"pairs": len(shares), "median": statistics.median(shares), "min": min(shares), "max": max(shares)}


def in_words(found: ProfileCost) -> str:
    """Return the cost for a person."""
    low, high, median = (f"{found[key]:+.2%}" for key in ("min", "max", "median"))
    return f"{median} of wall time (median of {found['pairs']} pairs of runs, {low} to {high})"
