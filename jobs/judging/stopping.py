"""How many runs a cell lacks: those that it was asked for and does not have, and those that ``until_spread`` adds.

The interval of the median is that of two order statistics, exact for independent runs of any distribution: the k-th
smallest and the k-th largest of n hold the true median with probability 1 - 2 P(Bin(n, 1/2) < k) (H. A. David and
H. N. Nagaraja, "Order Statistics", 3rd ed., Sec. 7.1). k follows from n alone, as the largest with 90 % or more: the
narrowest pair, picked by its values, would hold it less often. Of fewer than five runs no pair does.

To test the interval after each run and to stop at the first narrow one is a sequential procedure: among many
intervals one is narrow by luck, so that the one that it stops at holds the median less often than it says (Y. S. Chow
and H. Robbins, Ann. Math. Statist. 36, 1965, promise as much for a mean, and for very narrow ones alone). 4,000
simulated cells, until_spread=0.01: 93, 91, 88 and 92 % with normal noise of 0.3, 0.5, 1 and 2 %. It bounds the width,
and proves nothing of the median; `max_runs` bounds the number of tests.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from jobs import checks
from jobs.judging import paired
from jobs.model.record import Record
from jobs.model.results import Addition, Check, Run
from jobs.model.terms import Terms

CONFIDENCE = 0.9
# 1 - 2 / 2^5 = 93.75 %; of four runs 87.5 %.
FEWEST_RUNS = 5


@dataclass(frozen=True)
class Interval:
    """Two order statistics, and the probability with which they hold the median between them."""

    low: float
    high: float
    confidence: float


def interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of the median; None where there are too few values for one."""
    ordered, n = sorted(values), len(values)
    found, beyond = None, 0.0
    for k in range(1, n // 2 + 1):
        beyond += comb(n, k - 1) / 2**n
        if 1 - 2 * beyond < CONFIDENCE:
            break
        found = Interval(ordered[k - 1], ordered[n - k], 1 - 2 * beyond)
    return found


def adds_runs(terms: Terms) -> bool:
    """Return whether runs are to be added."""
    return terms["until_spread"] is not None


def most_runs(terms: Terms) -> int:
    """Return how many valid measured runs a cell may come to have."""
    wanted = terms["runs"] - terms["warmup_runs"]
    return max(wanted, terms["max_runs"] - terms["warmup_runs"]) if adds_runs(terms) else wanted


def owed_runs(record: Record | None, terms: Terms) -> int:
    """Count the measured runs that were asked for and are still to be had; a done cell owes no more than it lacks.

    A cell that was found done keeps its few invalid runs unrepeated; in another cell each of them is repeated. Where
    runs come in pairs, one of which a half is missing is owed whole.
    """
    wanted = terms["runs"] - terms["warmup_runs"]
    if record is None:
        return wanted
    status = None if record["status"] == "done" else "valid"
    in_pairs = paired.asked(record["cell"]["settings"], terms)
    return max(0, wanted - len(paired.pairs(record, status) if in_pairs else measured(record, status)))


def missing_runs(record: Record | None, terms: Terms) -> int:
    """Count the measured runs that are still to be had, at least: those owed, else one where one is to be added."""
    return owed_runs(record, terms) or int(record is not None and reason_to_add(record, terms) is not None)


def most_missing_runs(record: Record | None, terms: Terms) -> int:
    """Count the measured runs that may be still to be had, if ``until_spread`` adds all that it may."""
    least = missing_runs(record, terms)
    room = most_runs(terms) - (len(measured(record, "valid")) if record else 0)
    return max(least, room) if least else 0


def reason_to_add(record: Record, terms: Terms) -> Addition | None:
    """Return why a cell that has all the runs it was asked for is to have another; None where it is not."""
    known = rates(record)
    if not adds_runs(terms) or len(known) >= most_runs(terms) or not _wide(known, terms):
        return None
    found = interval(known)
    return {
        "until_spread": terms["until_spread"],
        "n": len(known),
        "interval": [found.low, found.high] if found else None,
        "confidence": found.confidence if found else None,
        "width": _width(known),
    }


def rates(record: Record) -> list[float]:
    """Return what each run that counts achieved: images/s, of a baseline MB/s."""
    return [rate for run in measured(record, "valid") if (rate := checks.rate(run)) is not None]


def measured(record: Record, status: str | None = None) -> list[Run]:
    """List the measured runs (not the warm-ups), all or those of one status."""
    return [run for run in record["runs"] if run["role"] == "measured" and status in (None, run["status"])]


def check(rates: Sequence[float], terms: Terms) -> Check | None:
    """Return the check ``until_spread`` of a cell; None where it was not asked for."""
    if not adds_runs(terms):
        return None
    found, width = interval(rates), _width(rates)
    wide = _wide(rates, terms)
    message = f"{len(rates)} measured runs, too few for an interval of the median"
    if found and width is not None:
        message = f"the {found.confidence:.1%} interval of the median of {len(rates)} measured runs is {width:.2%} wide"
    if wide:
        reached = len(rates) >= most_runs(terms)
        message += f"; max_runs={terms['max_runs']} is reached" if reached else "; the same command adds more"
    return {
        "rule": "until_spread",
        "passed": not wide,
        "observed": width,
        "limit": terms["until_spread"],
        "message": message,
    }


def _wide(rates: Sequence[float], terms: Terms) -> bool:
    width, most = _width(rates), terms["until_spread"]
    return most is not None and (width is None or width > most)


def _width(rates: Sequence[float]) -> float | None:
    """Return the width of the interval as a share of the median."""
    found = interval(rates)
    return (found.high - found.low) / statistics.median(rates) if found else None
