"""The Slurm job that this process runs in."""

from __future__ import annotations

import os

from campaign.slurm import client

# Of `scontrol show job`: what was granted, not what was asked for.
_FACTS = (
    "ArrayJobId", "ArrayTaskId", "Dependency", "Features", "JobId", "JobName", "Licenses", "NodeList", "NumCPUs",
    "OverSubscribe", "Partition", "QOS", "Restarts", "TRES", "TimeLimit",
)  # fmt: skip


def restarts() -> int:
    """Count how often Slurm has put this job back into the queue."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def described() -> dict[str, str]:
    """Return what Slurm says of this job; empty outside one, or where it does not answer."""
    number = os.environ.get("SLURM_JOB_ID")
    text = client.ask("scontrol", "-o", "show", "job", number) if number else None
    pairs = (word.partition("=") for word in (text or "").split())
    return {key: value for key, _, value in pairs if key in _FACTS}


def requeue() -> bool:
    """Put this job back into the queue; Slurm ends this process soon after. False where it refuses."""
    number = os.environ.get("SLURM_JOB_ID")
    return number is not None and client.ask("scontrol", "requeue", number) is not None
