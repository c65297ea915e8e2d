"""Which cluster ``cluster=…`` means here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from campaign import talk
from campaign.errors import UsageError
from campaign.slurm import client

if TYPE_CHECKING:
    from collections.abc import Mapping


def chosen(conduct: Mapping[str, Any]) -> str:
    """Return ``slurm``, ``local`` or ``debug``; ``auto`` is Slurm where this machine submits to one.

    Raises
    ------
    UsageError
        ``detach=true`` and this is no cluster.
    """
    name = str(conduct["cluster"]["name"])
    if name == "auto":
        name = "slurm" if client.found() else "local"
        talk.say(f"cluster=auto: {'Slurm' if name == 'slurm' else 'this machine (there is no Slurm cluster)'}")
    if conduct["detach"] and name != "slurm":
        raise UsageError("detach=true: there is no Slurm here to leave the work to", "nohup python -m campaign … &")
    return name
