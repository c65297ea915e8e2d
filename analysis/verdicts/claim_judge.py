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
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.records.settings import Facts, models
from analysis.statistics import comparable
from analysis.statistics.ratio import ratio_of_medians
from analysis.text.plain import listed
from analysis.verdicts.all_claims import EACH, SIZES, STORAGES, Claim
from analysis.verdicts.evidence import Cell
from analysis.verdicts.tolerance import Held

SMOKE = "smoke"
HOLDS, DIFFERS, NOT_COMPARABLE, NOT_MEASURED = "holds", "differs", "not comparable", "not measured"
EMULATED, BY_MODEL = "emulated", "emulated (model)"
SHARE, TIMES, MB_PER_S, MB, SECONDS = "share", "times", "MB/s", "MB", "s"
COLUMNS = [
    "claim", "kind", "about", "pair", "source", "published", "ours", "unit", "interval", "tolerance", "tolerance_from",
    "verdict", "emulated", "why", "cells", "measure",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """Ours, the interval that it may lie in, and the cells that it rests on."""

    ours: float
    low: float
    high: float
    unit: str
    cells: tuple[Cell, ...]


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
        interval = json.dumps([round(found.low, 6), round(found.high, 6)]) if found else ""
        played = ", ".join(dict.fromkeys(part for cell in self.cells for part in emulated(cell["series_key"].facts)))
        return {
            "claim": self.claim.text, "kind": self.claim.kind, "about": self.about, "pair": self.pair,
            "source": self.claim.source, "published": self.claim.published, "ours": found.ours if found else None,
            "unit": found.unit if found else "", "interval": interval,
            "tolerance": None if tolerance is None or math.isnan(tolerance) else tolerance,
            "tolerance_from": self.held.source if self.held else "", "verdict": self.verdict,
            "emulated": f"{BY_MODEL}: {played}" if by_model(self.cells) else played, "why": self.why,
            "measure": self.claim.measure,
            "cells": " ".join(dict.fromkeys(cell["cell"] for cell in self.cells)),
        }  # fmt: skip


def judge(claim: Claim, found: Finding, held: Held, words: str, *, why_not: str = "") -> Verdict:
    """Hold a finding against where the paper has it; `why_not`, or what hinders its cells, leaves it not comparable."""
    unstable = [cell["cell"] for cell in found.cells if cell["unstable"] is True]
    verdict, why = _verdict(found, held, why_not or _hindrance(claim, found.cells), unstable)
    words = "; ".join([words, *(by_model(found.cells) if verdict == DIFFERS else [])])
    return Verdict(claim, verdict, f"{why}; {words}" if why else words, found.cells, finding=found, held=held)


def _hindrance(claim: Claim, cells: Sequence[Cell]) -> str:
    """Return what keeps cells from being held against a claim, `""` for nothing."""
    which = {"across": claim.compares == STORAGES, "sizes": claim.compares == SIZES}
    told = "" if claim.compares == EACH else comparable.unlike(cells, **which)
    told = told or comparable.weak(cells)
    scaled = claim.emulable and by_model(cells)
    small = claim.number and any(cell["size"] == SMOKE for cell in cells) and not scaled
    return told or ("size smoke is a small version of the paper's experiment" if small else _elsewhere(claim, cells))


def _elsewhere(claim: Claim, cells: Sequence[Cell]) -> str:
    """Return that a number of the paper's own devices is of no other, unless these are emulated."""
    if not claim.machine:
        return ""
    strange = [
        cell["site"] or "none"
        for cell in cells
        if cell["site"] not in claim.machine.split(" or ")
        and not (claim.emulable and "storage" in emulated(cell["series_key"].facts))
    ]
    return f"a number of the paper's own {claim.machine}, and this is site {listed(strange)}" if strange else ""


def emulated(facts: Facts) -> list[str]:
    """Return the parts of a cell's settings that are emulated: its accelerator, a storage, a checkpoint target."""
    parts = ["accelerator"] if facts.get("accelerator.name") == EMULATED else []
    marks = {name.rpartition(".")[0]: value for name, value in facts.items() if name.endswith(".emulated") and value}
    return parts + list(marks)


def by_model(cells: Iterable[Cell]) -> list[str]:
    """Return the models of all storages of some cells, in words; nothing where one of them is none.

    What a model serves it serves the same in a small experiment as in a large one: it can be held against the paper's
    numbers of a storage at any size; those of a training depend on what was cut of it. A verdict on it is one on the
    model, and shows nothing of hardware.
    """
    told = [models(cell["series_key"].facts) for cell in cells]
    return list(dict.fromkeys(each for one in told for each in one)) if told and all(told) else []


def kind_of(emulated: str) -> str:
    """Return of what kind a verdict is by its column `emulated`: `""` if it is of hardware, `EMULATED`, `BY_MODEL`."""
    return BY_MODEL if emulated.startswith(BY_MODEL) else EMULATED * bool(emulated)


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


def middle(values: Sequence[float], unit: str, cells: Iterable[Cell]) -> Finding:
    """Return the median of values with their range."""
    return Finding(statistics.median(values), min(values), max(values), unit, tuple(cells))


def ratio(values: Mapping[str, Sequence[float]], above: Cell, below: Cell) -> Finding:
    """Return the ratio of two cells' medians with its 95 % interval; `values`: of each cell's runs, above 0."""
    found = ratio_of_medians(values[below["cell"]], values[above["cell"]])
    return Finding(found.value, found.low, found.high, TIMES, (below, above))


def over(above: Finding, below: Finding) -> Finding:
    """Return the ratio of two ratios; its interval takes each at its worst."""
    ends = above.ours / below.ours, above.low / below.high, above.high / below.low
    return Finding(*ends, TIMES, (*above.cells, *below.cells))


def of_all(chosen: Finding, findings: Iterable[Finding]) -> Finding:
    """Return a finding that was chosen among several: it rests on the cells of all."""
    cells = {cell["cell"]: cell for each in findings for cell in each.cells}
    return replace(chosen, cells=tuple(cells.values()))


def weakest(steps: Mapping[str, Finding]) -> tuple[Finding, str]:
    """Return the step of an order that is nearest to not being one, of the cells of all steps, with its name."""
    name = min(steps, key=lambda each: steps[each].low)
    return of_all(steps[name], steps.values()), name
