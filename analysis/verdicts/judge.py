"""How a claim is judged, and what a verdict is made of.

A claim *holds* where ours is where the paper has it, within the tolerance, and *differs* where it is not. It is *not
comparable* where its cells cannot be compared (`analysis.statistics.comparable`), where a number is of a device that
this is not, and where an unstable cell leaves it open; *not measured* where cells are missing.

Where a cell is unstable, ours may be within the tolerance, or beyond it, by accident; then a verdict is given only if
the whole interval agrees with it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.statistics.ratio import ratio_of_medians
from analysis.text.plain import listed
from analysis.verdicts.comparable import emulated, hindrance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from analysis.verdicts.claims import Claim
    from analysis.verdicts.evidence import Cell
    from analysis.verdicts.tolerance import Held

HOLDS, DIFFERS, NOT_COMPARABLE, NOT_MEASURED = "holds", "differs", "not comparable", "not measured"
SHARE, TIMES, MB_PER_S, MB, SECONDS = "share", "times", "MB/s", "MB", "s"
COLUMNS = [
    "claim", "kind", "about", "pair", "source", "published", "ours", "unit", "interval", "tolerance", "tolerance_from",
    "verdict", "emulated", "why", "cells", "measure",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """Ours, and the interval that it may lie in."""

    ours: float
    low: float
    high: float
    unit: str = SHARE


@dataclass(frozen=True)
class Verdict:
    """A row of the checklist: a claim, the settings it was tested in, ours, the verdict and the cells it rests on.

    `pair` names one storage and thread count of several, `""` for the whole set.
    """

    claim: Claim
    verdict: str
    why: str
    cells: tuple[Cell, ...] = ()
    about: str = ""
    pair: str = ""
    finding: Finding | None = None
    held: Held | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The row of the table (`COLUMNS`); `cells` are ids between blanks, `interval` is JSON, low and high."""
        found, tolerance = self.finding, self.held.tolerance if self.held else None
        parts = dict.fromkeys(part for cell in self.cells for part in emulated(cell["series_key"].facts))
        return {
            "claim": self.claim.text, "kind": self.claim.kind, "about": self.about, "pair": self.pair,
            "source": self.claim.source, "published": self.claim.published, "ours": found.ours if found else None,
            "unit": found.unit if found else "", "interval": _interval(found) if found else "",
            "tolerance": None if tolerance is None or math.isnan(tolerance) else tolerance,
            "tolerance_from": self.held.source if self.held else "", "verdict": self.verdict,
            "emulated": ", ".join(parts), "why": self.why, "measure": self.claim.measure,
            "cells": " ".join(dict.fromkeys(cell["cell"] for cell in self.cells)),
        }  # fmt: skip


def judge(  # noqa: PLR0913 - what a verdict is made of
    claim: Claim, found: Finding, held: Held, words: str, cells: Iterable[Cell], *, why_not: str = ""
) -> Verdict:
    """Hold a finding of cells against where the paper has it; `why_not`, or a hindrance, leaves it not comparable."""
    evidence = tuple(cells)
    unstable = [cell["cell"] for cell in evidence if cell["unstable"] is True]
    verdict, why = _verdict(found, held, why_not or hindrance(claim, evidence), unstable)
    return Verdict(claim, verdict, f"{why}; {words}" if why else words, evidence, finding=found, held=held)


def _verdict(found: Finding, held: Held, why_not: str, unstable: Sequence[str]) -> tuple[str, str]:
    """Return the verdict, and why it is no better one."""
    if why_not:
        return NOT_COMPARABLE, why_not
    if held.tolerance is not None and math.isnan(held.tolerance):
        return NOT_COMPARABLE, "the records name no tolerance (limit of the check spread)"
    within = held.low <= found.low and found.high <= held.high
    beyond = found.high < held.low or held.high < found.low
    if unstable and not within and not beyond:
        return NOT_COMPARABLE, f"unstable: the runs of {listed(unstable)} scatter too widely to tell"
    good = within if held.whole else held.low <= found.ours <= held.high
    return HOLDS if good else DIFFERS, ""


def ratio(values: Mapping[str, Sequence[float]], above: Cell, below: Cell) -> Finding:
    """Return the ratio of two cells' medians with its 95 % interval.

    Parameters
    ----------
    values
        The figure of each cell's runs, above 0 (`analysis.compare.judge.values_of`).
    """
    found = ratio_of_medians(values[below["cell"]], values[above["cell"]])
    return Finding(found.value, found.low, found.high, TIMES)


def over(above: Finding, below: Finding) -> Finding:
    """Return the ratio of two ratios; its interval takes each at its worst."""
    return Finding(above.ours / below.ours, above.low / below.high, above.high / below.low, TIMES)


def weakest(steps: Sequence[tuple[Finding, str]]) -> tuple[Finding, str]:
    """Return the step of an order that is nearest to not being one, with its words."""
    return min(steps, key=lambda step: step[0].low)


def _interval(found: Finding) -> str:
    return json.dumps([round(found.low, 6), round(found.high, 6)])
