"""What keeps cells from being held against a claim, and what of them is emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.statistics import comparable
from analysis.text.plain import listed
from analysis.verdicts.claims import EACH, STORAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.records.settings import Facts
    from analysis.verdicts.claims import Claim
    from analysis.verdicts.evidence import Cell

SMOKE = "smoke"


def hindrance(claim: Claim, cells: Sequence[Cell]) -> str:
    """Return what keeps cells from being held against a claim, `""` for nothing."""
    told = "" if claim.compares == EACH else comparable.unlike(cells, across=claim.compares == STORAGES)
    told = told or comparable.weak(cells)
    small = claim.number and any(cell["size"] == SMOKE for cell in cells)
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
    parts = ["accelerator"] if facts.get("accelerator.name") == "emulated" else []
    marked = [name.rpartition(".")[0] for name, value in facts.items() if name.endswith(".emulated") and value is True]
    return parts + marked
