"""The number of runs that a cell still needs: those of ``runs``, and those that ``until_spread`` adds.

The interval of the median (`jobs.judging.intervals`) is tested after each run, and the runs stop at the first narrow
one. This is a sequential procedure: one of many intervals is narrow by chance, so the last interval encloses the median
less often than its confidence (Y. S. Chow and H. Robbins, Ann. Math. Statist. 36, 1965, prove the confidence for a
mean, and only for very narrow intervals). In 4,000 simulated cells with until_spread=0.01 it enclosed the median in 93,
91, 88 and 92 % (normal noise: 0.3, 0.5, 1 and 2 %). The procedure bounds the width, not the error of the median;
`max_runs` bounds the number of tests.

With ``profile.compare=true`` each measured run is paired with a run without the profile, directly before or after it.
The order changes from pair to pair, so that a machine that becomes slower or faster favours neither. Runs without the
profile have a role of their own and do not count for the cell's median.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from jobs import checks
from jobs.judging.intervals import interval_of_median
from jobs.model.record import ProfileCost, Record, Terms
from jobs.model.results import Check, ReasonOfAddedRun, Role, Run
from jobs.model.settings import Settings

UNPROFILED: Final = "unprofiled"
"""The role of a run without the profile that its cell requires."""


def adds_runs(terms: Terms) -> bool:
    """Return whether ``until_spread`` may add runs."""
    return terms["until_spread"] is not None


def most_runs(terms: Terms) -> int:
    """Return the largest number of valid measured runs of a cell."""
    required = terms["runs"] - terms["warmup_runs"]
    return max(required, terms["max_runs"] - terms["warmup_runs"]) if adds_runs(terms) else required


def owed_runs(record: Record | None, terms: Terms) -> int:
    """Return the number of measured runs that ``runs`` requires and the cell lacks.

    An invalid run counts if the cell is done, and is repeated otherwise. A pair of runs (`profile_pairs`) with a
    missing run is repeated as a whole.
    """
    required = terms["runs"] - terms["warmup_runs"]
    if record is None:
        return required
    status = None if record["status"] == "done" else "valid"
    in_pairs = has_pairs(record["cell"]["settings"], terms)
    return max(0, required - len(profile_pairs(record, status) if in_pairs else measured_runs(record, status)))


def missing_runs(record: Record | None, terms: Terms) -> int:
    """Return the least number of runs still needed: those of ``runs``, else 1 if ``until_spread`` adds one."""
    return owed_runs(record, terms) or int(record is not None and reason_to_add(record, terms) is not None)


def most_missing_runs(record: Record | None, terms: Terms) -> int:
    """Return the largest number of measured runs that may still be needed, if ``until_spread`` adds all it can."""
    missing = missing_runs(record, terms)
    room = most_runs(terms) - (len(measured_runs(record, "valid")) if record else 0)
    return max(missing, room) if missing else 0


def reason_to_add(record: Record, terms: Terms) -> ReasonOfAddedRun | None:
    """Return why ``until_spread`` adds a run to a cell; None if it adds no run."""
    valid_rates = rates_of_valid_runs(record)
    if not adds_runs(terms) or len(valid_rates) >= most_runs(terms) or not _is_wide(valid_rates, terms):
        return None
    current = interval_of_median(valid_rates)
    return {
        "until_spread": terms["until_spread"],
        "n": len(valid_rates),
        "interval": [current.low, current.high] if current else None,
        "confidence": current.confidence if current else None,
        "width": _width(valid_rates),
    }


def rates_of_valid_runs(record: Record) -> list[float]:
    """Return the rates of the valid measured runs: in images/s, or in MB/s for a baseline."""
    return [rate for run in measured_runs(record, "valid") if (rate := checks.judged_rate(run)) is not None]


def measured_runs(record: Record, status: str | None = None) -> list[Run]:
    """Return the measured runs (no warm-ups) with this status; None: all."""
    return [run for run in record["runs"] if run["role"] == "measured" and status in (None, run["status"])]


def has_pairs(settings: Settings, terms: Terms) -> bool:
    """Return whether each measured run of a cell is paired with a run without the profile."""
    return terms["compare"] and "profile" in settings


def next_pair_roles(record: Record) -> list[Role]:
    """Return the roles of the next pair."""
    is_reversed = sum(run["role"] == "measured" for run in record["runs"]) % 2
    return [UNPROFILED, "measured"] if is_reversed else ["measured", UNPROFILED]


def profile_pairs(record: Record, status: str | None = "valid") -> list[tuple[Run, Run]]:
    """Return the pairs (measured run, run without the profile) in which both have this status; None: any.

    If a pair was repeated, its later runs count; the earlier ones belong to another session of a worker.
    """
    runs_of_pair: dict[int, dict[str, Run]] = defaultdict(dict)
    for run in record["runs"]:
        if "pair" in run:
            runs_of_pair[run["pair"]][run["role"]] = run
    pairs = [(runs["measured"], runs[UNPROFILED]) for runs in runs_of_pair.values() if len(runs) == 2]  # noqa: PLR2004
    return [pair for pair in pairs if status is None or pair[0]["status"] == pair[1]["status"] == status]


def profile_cost(record: Record) -> ProfileCost | None:
    """Return the time that the profile added, as a share of the wall time; None if no pair is valid."""
    shares = [profiled["wall_s"] / plain["wall_s"] - 1 for profiled, plain in profile_pairs(record)]
    if not shares:
        return None
    return {"pairs": len(shares), "median": statistics.median(shares), "min": min(shares), "max": max(shares)}


def cost_in_words(cost: ProfileCost) -> str:
    """Return the cost as a text for people."""
    low, high, median = (f"{cost[key]:+.2%}" for key in ("min", "max", "median"))
    return f"{median} of wall time (median of {cost['pairs']} pairs of runs, {low} to {high})"


def pairs_of_turns(cold: Record, warm: Record) -> list[tuple[Run, Run]]:
    """Return the pairs (cold, warm) of valid measured runs of one turn, in the order of the turns."""
    cold_runs, warm_runs = (
        {run["pair"]: run for run in measured_runs(record, "valid") if "pair" in run} for record in (cold, warm)
    )
    return [(cold_runs[pair], warm_runs[pair]) for pair in sorted(cold_runs.keys() & warm_runs.keys())]


def check_spread(rates: Sequence[float], terms: Terms) -> Check | None:
    """Return the check ``until_spread`` of a cell; None without that setting."""
    if not adds_runs(terms):
        return None
    median_interval, width = interval_of_median(rates), _width(rates)
    is_wide = _is_wide(rates, terms)
    message = f"{len(rates)} measured runs, too few for an interval of the median"
    if median_interval and width is not None:
        confidence = f"{median_interval.confidence:.1%}"
        message = f"the {confidence} interval of the median of {len(rates)} measured runs is {width:.2%} wide"
    if is_wide:
        is_at_limit = len(rates) >= most_runs(terms)
        message += f"; max_runs={terms['max_runs']} is reached" if is_at_limit else "; the same command adds more"
    return {
        "rule": "until_spread",
        "passed": not is_wide,
        "observed": width,
        "limit": terms["until_spread"],
        "message": message,
    }


def _is_wide(rates: Sequence[float], terms: Terms) -> bool:
    width, limit = _width(rates), terms["until_spread"]
    return limit is not None and (width is None or width > limit)


def _width(rates: Sequence[float]) -> float | None:
    """Return the width of the interval as a share of the median."""
    median_interval = interval_of_median(rates)
    return (median_interval.high - median_interval.low) / statistics.median(rates) if median_interval else None
