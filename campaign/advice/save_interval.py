"""Calculate how often to save snapshots: the intervals by Young and by Daly, from the cost of a snapshot.

J. W. Young, "A first order approximation to the optimum checkpoint interval", Comm. ACM 17 (1974) 530; J. T. Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303, equation 37.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from campaign import console
from jobs.model.results import Run

FAILURES_S = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
"""Mean times between failures, in seconds."""
_DRAWN_INTERVALS, _BAR_CHARACTERS = 9, 20
_MOST_EXPONENT = 700.0  # e to a higher power overflows


class Interval(TypedDict):
    """The seconds of training between two snapshots, by Young and by Daly, for one failure per hour, day or week."""

    failure_per: str
    young_s: float
    daly_s: float


class SaveInterval(TypedDict):
    """The costs of a snapshot (medians in seconds), and the recommended intervals between snapshots."""

    blocked_s: float  # time for which a snapshot stops the training
    durable_s: float | None  # time until the snapshot is on the slow storage; None if unknown, or if it never is
    restore_s: float | None  # time to read a snapshot back; None if unknown
    intervals: list[Interval]


def young_s(blocked_s: float, failure_s: float) -> float:
    """Return Young's interval in seconds, if a snapshot stops the training for `blocked_s`.

    `failure_s` is the mean time between two failures.
    """
    return math.sqrt(2 * blocked_s * failure_s)


def daly_s(blocked_s: float, failure_s: float) -> float:
    """Return Daly's interval in seconds, which is valid even if a snapshot takes long.

    `failure_s` is the mean time between two failures.
    """
    if blocked_s >= 2 * failure_s:
        return failure_s
    share = blocked_s / (2 * failure_s)
    return young_s(blocked_s, failure_s) * (1 + math.sqrt(share) / 3 + share / 9) - blocked_s


def lost_share(every_s: float, blocked_s: float, failure_s: float, restore_s: float = 0.0) -> float:
    """Return the share of the wall time that is lost by saving and by failures, by Daly's complete model.

    `every_s`: the seconds of training between two snapshots; `restore_s`: the seconds of a restart.
    """
    attempts_s = failure_s * math.expm1(min((every_s + blocked_s) / failure_s, _MOST_EXPONENT))
    return 1 - every_s / (attempts_s * math.exp(min(restore_s / failure_s, _MOST_EXPONENT)))


def save_interval(runs: Sequence[Run]) -> SaveInterval | None:
    """Return how often a training should save, from its valid runs; None if the runs save nothing."""
    valid = [run for run in runs if run["status"] == "valid"]
    snapshots: list[Mapping[str, Any]] = [snapshot for run in valid for snapshot in run.get("checkpoints", ())]
    if not snapshots:
        return None
    blocked_s = statistics.median(snapshot["blocked_s"] for snapshot in snapshots)
    return {
        "blocked_s": blocked_s,
        "durable_s": _median([snapshot["durable_slow_s"] for snapshot in snapshots]),
        "restore_s": _median([run.get("restore_s") for run in valid]),
        "intervals": [
            {"failure_per": per, "young_s": young_s(blocked_s, every_s), "daly_s": daly_s(blocked_s, every_s)}
            for per, every_s in FAILURES_S.items()
        ],
    }


def _median(seconds: Sequence[float | None]) -> float | None:
    """Return the median of all values, or None if there are no values or if a value is None."""
    known = [value for value in seconds if value is not None]
    return statistics.median(known) if known and len(known) == len(seconds) else None


def format_interval(interval: SaveInterval) -> str:
    """Return one sentence with the cost of a snapshot and the recommended intervals."""
    intervals = "; ".join(
        f"a failure per {row['failure_per']}: every {row['young_s']:.3g} s (Young) or {row['daly_s']:.3g} s (Daly)"
        for row in interval["intervals"]
    )
    durable_s, restore_s = interval["durable_s"], interval["restore_s"]
    loss = "" if durable_s is None else f"; a failure costs at most that interval and {durable_s:.3g} s"
    loss += "" if restore_s is None else f", and {restore_s:.3g} s to read the snapshot back"
    return f"a snapshot stops the training for {interval['blocked_s']:.3g} s; best interval for {intervals}{loss}"


def draw_lost_time(interval: SaveInterval) -> list[str]:
    """Return a chart as lines of text: the lost share of the time over the interval between two snapshots.

    The chart goes from half of Daly's shortest interval to twice Daly's longest interval. Each column of bars has its
    own scale. The list is empty if snapshots cost nothing.
    """
    first_s, *_, last_s = sorted(row["daly_s"] for row in interval["intervals"])
    if not first_s:
        return []
    steps = [number / (_DRAWN_INTERVALS - 1) for number in range(_DRAWN_INTERVALS)]
    every_s = [first_s / 2 * (4 * last_s / first_s) ** step for step in steps]
    restore_s = interval["restore_s"] or 0.0
    columns = [["save every", *(f"{seconds:,.1f} s" for seconds in every_s)]]
    for per, failure_s in FAILURES_S.items():
        shares = [lost_share(seconds, interval["blocked_s"], failure_s, restore_s) for seconds in every_s]
        bars = [f"{share:6.1%} {'#' * math.ceil(_BAR_CHARACTERS * share / max(shares))}" for share in shares]
        columns.append([f"lost, a failure per {per}", *bars])
    return console.format_table(list(zip(*columns, strict=True)), right={0})
