"""How a cell is run: how many runs, what is watched of each, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from campaign.cells import stopping
from campaign.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "runs": (1, 1000),
    "warmup_runs": (0, 999),
    "min_valid_runs": (1, 1000),
    "until_spread": (0, 1),
    "max_runs": (1, 1000),
    "run_timeout_s": (1, 7 * 24 * 3600),
    "order_seed": (0, 2**31 - 1),
    "trace.interval_s": (0.1, 3600),
    "trace.tail_s": (0, 3600),
    "checks.resident_max": (0, 1),
    "checks.device_bytes_min": (0, 1),
    "checks.time_error_max": (0, 1),
    "checks.other_mb_per_s_max": (0, 1e6),
    "checks.other_cpu_max": (0, 1e4),
    "checks.throttled_max": (0, 1e4),
    "checks.spread_max": (0, 100),
    "checks.peak_max": (0, 1000),
}


@dataclass
class Trace:
    """Node ``trace``."""

    interval_s: float | None = MISSING
    tail_s: float = MISSING


@dataclass
class Checks:
    """Node ``checks``."""

    resident_max: float = MISSING
    device_bytes_min: float = MISSING
    time_error_max: float = MISSING
    other_mb_per_s_max: float = MISSING
    other_cpu_max: float = MISSING
    throttled_max: float = MISSING
    spread_max: float = MISSING
    peak_max: float = MISSING


def check(values: Mapping[str, Any]) -> None:
    """Refuse numbers of runs that leave no measured run, or no room for those that ``until_spread`` needs."""
    runs, warmups = values["runs"], values["warmup_runs"]
    if warmups >= runs:
        raise UsageError(
            f"runs={runs} with warmup_runs={warmups} leaves no measured run", f"runs={warmups + 1} or more"
        )
    least = max(runs, warmups + stopping.FEWEST_RUNS)
    if values["until_spread"] is not None and values["max_runs"] < least:
        raise UsageError(
            f"max_runs={values['max_runs']} with until_spread={values['until_spread']}: runs={runs} with"
            f" warmup_runs={warmups} is more, or an interval of the median needs {stopping.FEWEST_RUNS} measured runs",
            f"max_runs={least} or more",
        )
