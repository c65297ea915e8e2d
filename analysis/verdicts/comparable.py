"""What keeps cells from being held against a claim, and what of them is emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.records.devices import one_device
from analysis.statistics.training import AND
from analysis.statistics.values import FEWEST_RUNS
from analysis.text.plain import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.records.settings import Facts
    from analysis.verdicts.claims import Claim
    from analysis.verdicts.evidence import Cell

SMOKE = "smoke"
MIXED = {"accelerator": "accelerators", "host": "hosts", "tensorflow": "versions of TensorFlow"}


def hindrance(claim: Claim, cells: Sequence[Cell], *, across: bool = False) -> str:
    """Return what keeps cells from being held against a claim, `""` for nothing.

    Parameters
    ----------
    across
        The paper itself compares two machines here.
    """
    told = "" if across else mixed(cells) or listed(one_device(cells))
    few = [cell["cell"] for cell in cells if cell["n_valid"] < FEWEST_RUNS]
    told = told or (f"fewer than {FEWEST_RUNS} valid runs of {listed(few)}" if few else "")
    small = claim.number and any(cell["size"] == SMOKE for cell in cells)
    told = told or ("size smoke is a small version of the paper's experiment" if small else "")
    return told or elsewhere(claim, cells)


def elsewhere(claim: Claim, cells: Sequence[Cell]) -> str:
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


def mixed(cells: Sequence[Cell]) -> str:
    """Return what is not the same in all cells, `""` where all are of one kind."""
    kinds = {word: sorted({each for cell in cells for each in _kind(cell, name)}) for name, word in MIXED.items()}
    told = [f"{word} {listed(values)}" for word, values in kinds.items() if len(values) > 1]
    return f"mixed: {'; '.join(told)}" if told else ""


def _kind(cell: Cell, name: str) -> list[str]:
    return str(cell[name]).split(AND)
