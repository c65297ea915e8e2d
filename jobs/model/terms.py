"""The terms of a verdict on a cell: everything that it depends on except the raw metrics of the runs.

Annotations are evaluated here: `jobs.model.reading` asks which keys are required.
"""

from typing import TYPE_CHECKING, TypedDict

from jobs.model.conduct import Conduct, Runs, Share, WarmUps
from jobs.model.limits import Limits, Tolerances

OF_SITE = Tolerances.__struct_fields__  # of the other limits the defaults are everybody's


if TYPE_CHECKING:
    OfChecks = dict[str, float]
    OfSite = dict[str, float]
else:
    OfChecks, OfSite = Limits, Tolerances


class Terms(TypedDict):
    """The terms of a verdict: the limits of the checks, and the number of runs."""

    checks: OfChecks  # the limits
    of_site: OfSite  # the site's own limits, of those that it has; looser ones are named in a verdict
    runs: Runs  # with the warm-ups
    warmup_runs: WarmUps
    min_valid_runs: Runs  # measured ones
    max_runs: Runs  # with the warm-ups, where `until_spread` adds runs
    until_spread: Share | None  # width of the interval of the median, as a share of the median
    compare: bool  # each measured run has one without a profile beside it


def terms_of(conduct: Conduct) -> Terms:
    """Return the terms that a configuration asks for."""
    site: dict[str, float] = {**conduct["site"]}
    return {
        "checks": conduct["checks"],
        "of_site": {name: site[name] for name in OF_SITE if name in site},
        "runs": conduct["runs"],
        "warmup_runs": conduct["warmup_runs"],
        "min_valid_runs": conduct["min_valid_runs"],
        "max_runs": conduct["max_runs"],
        "until_spread": conduct["until_spread"],
        "compare": bool(conduct.get("profile", {}).get("compare")),
    }
