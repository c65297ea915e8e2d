"""The structure of a paper's claim: its words, its cells, the comparison, and the range in which our value must lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from analysis.claims.cell_sets import Cell, CellSet, Evidence

# What a claim compares: cells of one host; the same with data sets of several sizes; storages, possibly on several
# hosts; nothing (it is about each cell by itself).
CELLS, SIZES, STORAGES, EACH = "cells", "sizes", "storages", "each"
ANY_SITE = "site=mysite"  # in `measure`, if the records do not name one site

# The tolerance. Two stable cells with one true value may each scatter over L, the limit of the check `spread`, so
# together over 2 L. The observed scatter never widens it: otherwise more claims would hold on a noisier machine.
# And a printed number may be wrong by half a unit of its last digit.
CELLS_THAT_SCATTER = 2
SITE = f"{CELLS_THAT_SCATTER} times the site's (limit of the check spread)"
DIGITS = "half a unit of the last digit printed"


@dataclass(frozen=True)
class Predicate:
    """The range in which our value must lie: from `low` to `high`, both widened by the tolerance.

    Attributes
    ----------
    tolerance
        `SITE`, `DIGITS` or both, or a share of our own choice; if it is empty, `source` is the source of the ends.
    number
        The published number as printed: its last digit says how exact it is.
    whole
        The whole interval must lie in the range, not only our value.
    """

    low: float
    high: float
    tolerance: tuple[str | float, ...] = ()
    source: str = "none: the text gives a bound"
    number: str = ""
    whole: bool = False

    def widened_range(self, cells: Iterable[Cell]) -> tuple[float, float, float | None]:
        """Return the widened ends and the share that widened them (None: none; NaN: no record has a spread limit)."""
        if not self.tolerance:
            return self.low, self.high, None
        limits = [cell["spread_limit"] for cell in cells if not math.isnan(cell["spread_limit"])]
        shares = {SITE: CELLS_THAT_SCATTER * min(limits, default=math.nan), DIGITS: _rounding(self.number or "1")}
        wide = sum(shares[each] if isinstance(each, str) else each for each in self.tolerance)
        of_nothing = self.low == self.high == 0  # a share of 0 would be 0
        return (-wide, wide, wide) if of_nothing else (self.low * (1 - wide), self.high * (1 + wide), wide)

    @property
    def tolerance_from(self) -> str:
        """The source of the tolerance or, without a tolerance, of the ends."""
        return " and ".join(each if isinstance(each, str) else "ours" for each in self.tolerance) or self.source


def _rounding(number: str) -> float:
    """Return half a unit of the last digit of a printed number, as a share of it."""
    return 0.5 * 10.0 ** int(Decimal(number).as_tuple().exponent) / float(number)


def equal_to(number: str | float, *tolerance: str | float) -> Predicate:
    """Return the predicate "our value equals this number"; `number`: text as printed, or a number from running text."""
    return Predicate(float(number), float(number), tolerance, number=number if isinstance(number, str) else "")


def at_least(number: str, *tolerance: str | float) -> Predicate:
    """Return the predicate "our value is the published number or more"."""
    return Predicate(float(number), math.inf, tolerance, number=number)


def below_bound(number: str) -> Predicate:
    """Return the predicate "our value is below a published bound"."""
    return Predicate(-math.inf, math.nextafter(float(number), -math.inf), number=number)


FLAT = equal_to(0.0, SITE)
"""The predicate "the difference (a share) is 0"."""
POSITIVE = Predicate(math.nextafter(0, 1), math.inf)
ORDER = Predicate(
    math.nextafter(1, 2), math.inf, source="none: of an order the whole 95 % interval must be on its side", whole=True
)
"""The predicate "the ratio is above 1"."""


@dataclass(frozen=True)
class Finding:
    """Our value for a claim, with its interval, its unit, the cells that it rests on and the words for the sentence.

    `pair` names a part of the set that has its own verdict.
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
    """The reason why a set has nothing to compare."""

    why: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, eq=False)
class Claim:
    """One claim of a paper, and how our cells are compared with it.

    `cells` returns its sets, `compare` the findings of a set, and the value of each finding must satisfy `predicate`.
    `words` say what our value rests on, with words of the finding in braces. `recipe`: the campaign's arguments to
    measure it; several recipes are separated by `; `.

    Attributes
    ----------
    machine
        The paper's machine, if the claim is only about that machine's devices; empty: the claim is a shape, which any
        machine can be compared with.
    emulable
        The claim is about a storage only: an emulated storage can replace the machine, and a model the paper's size.
    compares
        `CELLS`, `SIZES`, `STORAGES` or `EACH`.
    hindrance, doubt
        Function that returns why cells cannot be compared with it (or `""`); why a differing value proves nothing.
    in_all
        Each pair of a set has its own verdict, and the claim holds if all pairs do.
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
        """The commands that measure it."""
        return "; ".join(f"python -m campaign {each} {ANY_SITE}" for each in self.recipe.split("; "))
