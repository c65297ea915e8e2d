"""Which cluster ``cluster=…`` means here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from campaign import console
from campaign.cells.cell import Cell
from campaign.errors import UsageError
from campaign.slurm import client
from jobs.model.conduct import Conduct


def chosen(cells: Iterable[Cell], conduct: Conduct) -> str:
    """Return ``slurm``, ``local`` or ``debug``; ``auto`` is Slurm where this machine submits to one."""
    name = str(conduct["cluster"]["name"])
    if name == "auto":
        name = "slurm" if client.found() else "local"
        console.say(f"cluster=auto: {'Slurm' if name == 'slurm' else 'this machine (there is no Slurm cluster)'}")
    if conduct["detach"] and name != "slurm":
        raise UsageError("detach=true: there is no Slurm here to leave the work to", "nohup python -m campaign … &")
    if name == "slurm":
        _check_roots(cells)
    return name


def _check_roots(cells: Iterable[Cell]) -> None:
    """Refuse a relative root that each node has for itself: a job starts in a folder of the campaign."""
    for cell in cells:
        storage = cell.settings["storage"]
        if not cell.access["shared"] and not Path(storage["root"]).expanduser().is_absolute():
            raise UsageError(
                f"storage.shared=false needs an absolute storage.root, and storage={storage['name']} has "
                f"{storage['root']}",
                "storage.root=/… with a folder that every node has for itself",
            )
