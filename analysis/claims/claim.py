"""Define the classes for a claim of a paper: the claim, the findings, and the range of values for which it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from analysis.claims.cell_sets import Cell, CellSet, Evidence

# What a claim compares: `CELLS` cells of one host, `SIZES` cells of one host with datasets of several sizes, `STORAGES`
# storages that may be on several hosts. A claim with `EACH` is about single cells and compares no cells.
CELLS, SIZES, STORAGES, EACH = "cells", "sizes", "storages", "each"
ANY_SITE = "site=mysite"  # used in `Claim.measure` if the records are not all from one site

# The tolerance of a comparison. The runs of a stable cell may scatter over L, the limit of the check `spread`, so two
# stable cells with the same true value may differ by 2 L. The scatter that was measured does not change the tolerance,
# because more claims would then hold on a noisier machine. A number that a paper prints may be wrong by half a unit of
# its last digit.
CELLS_THAT_SCATTER = 2
SITE = f"{CELLS_THAT_SCATTER} times the site's (limit of the check spread)"
DIGITS = "half a unit of the last digit printed"


@dataclass(frozen=True)
class Predicate:
    """The range of measured values for which a claim holds: from `low` to `high`, widened by the tolerance.

    Attributes
    ----------
    tolerance
        `SITE`, `DIGITS` or both, or a fraction that this project chose. If `tolerance` is empty, the range is not
        widened, and `source` tells where `low` and `high` come from.
    number
        The published number as the paper prints it, because the last digit shows the precision of the number.
    whole
        Whether the whole confidence interval must be in the range, and not only the measured value.
    """

    low: float
    high: float
    tolerance: tuple[str | float, ...] = ()
    source: str = "none: the text gives a bound"
    number: str = ""
    whole: bool = False

    def widened_range(self, cells: Iterable[Cell]) -> tuple[float, float, float | None]:
        """Return the lower and the upper end of the widened range, and the tolerance as a fraction.

        The tolerance is None if the range is not widened, and NaN if no record has a spread limit.
        """
        if not self.tolerance:
            return self.low, self.high, None
        limits = [cell["spread_limit"] for cell in cells if not math.isnan(cell["spread_limit"])]
        shares = {SITE: CELLS_THAT_SCATTER * min(limits, default=math.nan), DIGITS: _rounding(self.number or "1")}
        wide = sum(shares[each] if isinstance(each, str) else each for each in self.tolerance)
        of_nothing = self.low == self.high == 0  # here the tolerance is absolute, because a fraction of 0 is 0
        return (-wide, wide, wide) if of_nothing else (self.low * (1 - wide), self.high * (1 + wide), wide)

    @property
    def tolerance_from(self) -> str:
        """The source of the tolerance. Without a tolerance, the source of `low` and `high`."""
        return " and ".join(each if isinstance(each, str) else "ours" for each in self.tolerance) or self.source


def _rounding(number: str) -> float:
    """Return half a unit of the last digit of a printed number, as a fraction of the number."""
    return 0.5 * 10.0 ** int(Decimal(number).as_tuple().exponent) / float(number)


def equal_to(number: str | float, *tolerance: str | float) -> Predicate:
    """Return the predicate "the measured value equals this number within the tolerance".

    `number` is a text if the paper prints the number with digits, and a float if the paper states it in words.
    """
    return Predicate(float(number), float(number), tolerance, number=number if isinstance(number, str) else "")


def at_least(number: str, *tolerance: str | float) -> Predicate:
    """Return the predicate "the measured value is at least the published number"."""
    return Predicate(float(number), math.inf, tolerance, number=number)


def below_bound(number: str) -> Predicate:
    """Return the predicate "the measured value is below a published upper bound"."""
    return Predicate(-math.inf, math.nextafter(float(number), -math.inf), number=number)


FLAT = equal_to(0.0, SITE)
"""The predicate "the difference, which is a fraction, is 0 within the tolerance"."""
POSITIVE = Predicate(math.nextafter(0, 1), math.inf)
ORDER = Predicate(
    math.nextafter(1, 2), math.inf, source="none: of an order the whole 95 % interval must be on its side", whole=True
)
"""The predicate "the ratio and its whole 95 % interval are above 1"."""


@dataclass(frozen=True)
class Finding:
    """The measured value for a claim (`ours`), with its interval (`low`, `high`), its unit and the measured cells.

    `words` has the values for the braces in `Claim.words`. If a verdict is given on a single pair of cells, `pair`
    names this pair.
    """

    ours: float
    low: float
    high: float
    unit: str
    cells: tuple[Cell, ...]
    words: Mapping[str, Any] = field(default_factory=dict)
    pair: str = ""


@dataclass(frozen=True)
class NothingToCompare:
    """The reason (`why`) for which a set of cells has no cells to compare."""

    why: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, eq=False)
class Claim:
    """One claim of a paper, and the comparison of this claim with measured cells.

    Attributes
    ----------
    text
        The claim in words.
    place
        The section, figure or table of the paper.
    published
        The published value, as text.
    recipe
        The arguments of `python -m campaign` that measure the claim. Several recipes are separated by `; `.
    cells
        A function that returns the sets of cells for which the claim is tested.
    compare
        A function that returns the findings for one set of cells.
    predicate
        The range in which the value of a finding must be, so that the claim holds.
    words
        A sentence that explains the measured value. Names in braces stand for the `words` of the finding.
    machine
        The machine of the paper, if the claim is about a device of this machine. If `machine` is empty, the claim can
        be tested on any machine.
    emulable
        Whether an emulated storage can replace the paper's device. With a storage model, the experiment may also be
        smaller than in the paper.
    compares
        `CELLS`, `SIZES`, `STORAGES` or `EACH`.
    hindrance
        A function that returns the reason why cells cannot be compared with the claim, or `""`.
    doubt
        The reason why a differing value does not refute the claim, or `""`.
    in_all
        Whether each pair of cells has its own verdict. The claim then holds if the verdict on every pair is `holds`.
    """

    paper: str
    text: str
    place: str
    published: str
    recipe: str
    cells: Callable[[Evidence], Iterable[CellSet]]
    compare: Callable[[CellSet], Iterator[Finding | NothingToCompare]]
    predicate: Predicate
    words: str
    machine: str = ""
    emulable: bool = False
    compares: str = CELLS
    hindrance: Callable[[Sequence[Cell]], str] = lambda _: ""
    doubt: str = ""
    in_all: bool = False

    @property
    def measure(self) -> str:
        """The commands that measure the cells for this claim, separated by `; `."""
        return "; ".join(f"python -m campaign {each} {ANY_SITE}" for each in self.recipe.split("; "))
