"""How many runs a cell may be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from campaign.cells import adaptive
from campaign.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "runs": (1, 1000),
    "warmup_runs": (0, 999),
    "min_valid_runs": (1, 1000),
    "until_spread": (0, 1),
    "max_runs": (1, 1000),
}


def check(values: Mapping[str, Any]) -> None:
    """Refuse numbers of runs that leave no measured run, or no room for those that ``until_spread`` needs.

    Raises
    ------
    UsageError
        Naming the keys and what would do.
    """
    runs, warmups = values["runs"], values["warmup_runs"]
    if warmups >= runs:
        raise UsageError(
            f"runs={runs} with warmup_runs={warmups} leaves no measured run", f"runs={warmups + 1} or more"
        )
    least = max(runs, warmups + adaptive.FEWEST_RUNS)
    if values["until_spread"] is not None and values["max_runs"] < least:
        raise UsageError(
            f"max_runs={values['max_runs']} with until_spread={values['until_spread']}: runs={runs} with"
            f" warmup_runs={warmups} is more, or an interval of the median needs {adaptive.FEWEST_RUNS} measured runs",
            f"max_runs={least} or more",
        )
