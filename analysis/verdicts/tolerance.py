"""Where ours is to lie for a claim to hold: the one place that says how far it may be off, and why.

The tolerance of a number is twice the site's own, the limit L of the check `spread`, that the records carry: two stable
cells of one true value may each scatter over L around it, so together over 2 L; and half a unit of the last digit that
the paper prints. What was observed never widens it: else the noisier the machine, the more would hold. An order has
none: it holds where the whole interval is on its side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.verdicts.all_claims import Claim
from analysis.verdicts.evidence import Cell

# Two cells, each as wide as the site allows.
CELLS_THAT_SCATTER = 2
OF_THE_SITE = f"{CELLS_THAT_SCATTER} times the site's (limit of the check spread)"
OF_THE_DIGITS = "half a unit of the last digit printed"
OF_THE_TEXT = "none: the text gives a bound"
OF_AN_ORDER = "none: of an order the whole 95 % interval must be on its side"


@dataclass(frozen=True)
class Held:
    """Where ours is to lie, how wide the tolerance makes that, and where the tolerance comes from.

    `whole`: the whole interval must lie there, and not ours alone. `tolerance` is a share, NaN where none is given.
    """

    low: float
    high: float
    tolerance: float | None
    source: str
    whole: bool = False


LARGER = Held(math.nextafter(1, 2), math.inf, None, OF_AN_ORDER, whole=True)
"""Where the ratio of an order is to lie: above 1."""
POSITIVE = Held(math.nextafter(0, 1), math.inf, None, OF_THE_TEXT)


def site_tolerance(cells: Iterable[Cell]) -> float:
    """Return twice the site's tolerance, the strictest where the cells differ in it; NaN where none names one."""
    limits = [cell["spread_limit"] for cell in cells if not math.isnan(cell["spread_limit"])]
    return CELLS_THAT_SCATTER * min(limits, default=math.nan)


def alike(cells: Iterable[Cell]) -> Held:
    """Return where the share of a difference is to lie: at 0."""
    tolerance = site_tolerance(cells)
    return Held(-tolerance, tolerance, tolerance, OF_THE_SITE)


def at_least(claim: Claim, cells: Iterable[Cell]) -> Held:
    """Return where a figure is to lie: at the published one or above."""
    tolerance = site_tolerance(cells)
    return Held(claim.value * (1 - tolerance), math.inf, tolerance, OF_THE_SITE)


def as_printed(claim: Claim, cells: Iterable[Cell] | None) -> Held:
    """Return where a figure is to lie: at the published one. Without cells it is one that does not scatter."""
    noise, digits = 0.0 if cells is None else site_tolerance(cells), claim.rounding / claim.value
    source = OF_THE_DIGITS if cells is None else f"{OF_THE_SITE} and {OF_THE_DIGITS}"
    tolerance = noise + digits
    return Held(claim.value * (1 - tolerance), claim.value * (1 + tolerance), tolerance, source)


def between(low: float, high: float) -> Held:
    """Return where a figure is to lie: between two that the text gives."""
    return Held(low, high, None, OF_THE_TEXT)


def below(limit: float) -> Held:
    """Return where a figure is to lie: below a bound that the text gives."""
    return Held(-math.inf, math.nextafter(limit, -math.inf), None, OF_THE_TEXT)
