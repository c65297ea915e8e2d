"""Say how often to save snapshots: the intervals by Young and by Daly, from the cost of a snapshot.

J. W. Young, "A first order approximation to the optimum checkpoint interval", Comm. ACM 17 (1974) 530; J. T. Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303, equation 37.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.model.results import Run

FAILURES_S = {"hour": 3600.0, "day": 86_400.0, "week": 604_800.0}
"""Mean times between failures, in seconds."""


def young_s(blocked_s: float, failure_s: float) -> float:
    """Return Young's interval in seconds for snapshots that stop the training for `blocked_s`.

    `failure_s` is the mean time between two failures.
    """
    return math.sqrt(2 * blocked_s * failure_s)


def daly_s(blocked_s: float, failure_s: float) -> float:
    """Return Daly's interval in seconds, which is valid even if a snapshot takes long."""
    if blocked_s >= 2 * failure_s:
        return failure_s
    share = blocked_s / (2 * failure_s)
    return young_s(blocked_s, failure_s) * (1 + math.sqrt(share) / 3 + share / 9) - blocked_s


def save_interval(runs: Sequence[Run]) -> str:
    """Return in one sentence what a snapshot costs and how often to save, or "" if no valid run saves anything."""
    valid = [run for run in runs if run["status"] == "valid"]
    snapshots: list[Mapping[str, Any]] = [snapshot for run in valid for snapshot in run.get("checkpoints", ())]
    if not snapshots:
        return ""
    blocked_s = statistics.median(snapshot["blocked_s"] for snapshot in snapshots)
    intervals = "; ".join(
        f"a failure per {per}: every {young_s(blocked_s, each_s):.3g} s (Young) or {daly_s(blocked_s, each_s):.3g} s"
        " (Daly)"
        for per, each_s in FAILURES_S.items()
    )
    durable_s = _median([snapshot["durable_slow_s"] for snapshot in snapshots])
    restore_s = _median([run.get("restore_s") for run in valid])
    loss = "" if durable_s is None else f"; a failure costs at most that interval and {durable_s:.3g} s"
    loss += "" if restore_s is None else f", and {restore_s:.3g} s to read the snapshot back"
    return f"a snapshot stops the training for {blocked_s:.3g} s; best interval for {intervals}{loss}"


def _median(seconds: Sequence[float | None]) -> float | None:
    """Return the median of all values, or None if a value is None: a snapshot never became durable or was not read."""
    known = [value for value in seconds if value is not None]
    return statistics.median(known) if len(known) == len(seconds) else None
