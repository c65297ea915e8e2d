"""Runs that other programs disturbed (check `quiet`), and the limits with which they would be valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from jobs.model.results import Check, Run

_PARTS = {"other_cpu_max": 10, "other_device_max": 100}  # limits are proposed in tenths of a core, or in percent


def failed_checks(runs: Iterable[Run]) -> list[Check]:
    """Return the check `quiet` of each run that failed it."""
    every = (check for run in runs for check in run.get("checks") or ())
    return [check for check in every if check["rule"] == "quiet" and check["passed"] is False]


def allowing(failed: Sequence[Check], limits: Mapping[str, float]) -> str:
    """Return the settings with which the failed runs would pass `quiet`; `limits` are those that they had."""
    lacking = [each for check in failed for each in _lacking(check)]
    most = {name: max(more for key, more in lacking if key == name) for name, _ in lacking}
    enough = {name: math.ceil((limits[name] + more) * _PARTS[name]) / _PARTS[name] for name, more in most.items()}
    return " ".join(f"checks.{name}={value:g}" for name, value in enough.items())


def _lacking(check: Check) -> Iterator[tuple[str, float]]:
    """Yield each limit that was too low, and by how much.

    The limit in the check already allows for the processes that serve an emulated storage.
    """
    observed, limit = (cast("Mapping[str, Any]", check[side]) for side in ("observed", "limit"))
    for name in ("other_cpu", "other_device"):
        more = (observed[name] or 0.0) - limit[name]
        if more > 0:
            yield f"{name}_max", more
