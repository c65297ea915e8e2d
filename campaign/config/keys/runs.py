"""How a cell is run: how many runs, what is watched of each, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from enum import Enum

from omegaconf import MISSING

from campaign.errors import UsageError
from jobs import steps
from jobs.judging import stopping
from jobs.model.conduct import Flat
from jobs.model.limits import Limits
from jobs.model.settings import declared, key


@dataclass
class Trace:
    """Node ``trace``."""

    interval_s: float | None = key(MISSING, 0.1, 3600)
    tail_s: float = key(MISSING, 0, 3600)


class Posix(Enum):
    """What is kept of the POSIX calls of each run."""

    none = "none"
    counters = "counters"
    trace = "trace"


@dataclass
class Profile:
    """Node ``profile``."""

    posix: Posix = MISSING
    tensorflow: str = MISSING
    every: int | None = key(MISSING, 1, 10**9)
    compare: bool = MISSING


Checks = make_dataclass(
    "Checks", [(name, float, key(each.default, *(each.bounds or ()))) for name, each in declared(Limits).items()]
)
Checks.__doc__ = "Node ``checks``."


def check(values: Flat) -> None:
    """Refuse numbers of runs that leave no measured run, or no room for those that ``until_spread`` needs.

    And steps of a profile that are no steps, and parts of a window that keeps no calls.
    """
    _steps(values["profile.tensorflow"])
    if values["profile.every"] is not None and values["profile.posix"] != Posix.trace.value:
        raise UsageError(
            f"profile.every={values['profile.every']} with profile.posix={values['profile.posix']}: only a trace has"
            " calls that can be divided",
            "profile.posix=trace",
        )
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


def _steps(asked: str) -> None:
    try:
        if asked != steps.NONE:
            steps.window(asked)
    except ValueError:
        raise UsageError(
            f"profile.tensorflow={asked} is no window of steps", "5-15, from the fifth step to the 15th; all; or none"
        ) from None
