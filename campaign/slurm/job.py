"""The Slurm job that this process runs in."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from campaign.cells.contract import Cluster
from campaign.console import counted
from campaign.slurm import client
from jobs.system.files import write_json

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
    return {key: value for key, value in _shown("job", os.environ.get("SLURM_JOB_ID")) if key in _FACTS}


def node_address() -> str:
    """Return under which address other nodes reach this one: Slurm's own for it, else its name."""
    return dict(_shown("node", os.environ.get("SLURMD_NODENAME"))).get("NodeAddr") or platform.node()


def _shown(kind: str, name: str | None) -> Iterator[tuple[str, str]]:
    text = client.ask("scontrol", "-o", "show", kind, name, patient=True) if name else None
    yield from ((key, value) for key, _, value in (word.partition("=") for word in (text or "").split()))


def requeue() -> bool:
    """Put this job back into the queue; Slurm ends this process soon after. False where it refuses."""
    number = os.environ.get("SLURM_JOB_ID")
    return number is not None and client.ask("scontrol", "requeue", number, patient=True) is not None


def begun_too_often(cluster: Cluster, fault: Path) -> bool:
    """Return whether preemptions or lost nodes have put this job back more often than it may be, and write it down."""
    if restarts() <= cluster["max_requeues"]:
        return False
    message = f"Slurm began the job again {counted(restarts(), 'time')}"
    write_json(fault, {"message": message, "hint": "cluster.max_requeues=… allows more; the same command tries again"})
    return True


def go_back(cluster: Cluster, fault: Path, why: str | None = None) -> None:
    """Go back into the queue when the time is up, or `why` else, a bounded number of times; then write down why not.

    Slurm starts the list again then; what is recorded is not repeated. Where it has done so already, because it lost
    sight of this node, the job is the other worker's and is left alone.
    """
    if int(described().get("Restarts", "0")) > restarts():
        return
    again = restarts() < cluster["max_requeues"]
    if again and requeue():
        return
    times = counted(restarts() + 1, "time")
    message = f"the time limit of {cluster['timeout_min']} min was reached {times}"
    hint = "cluster.timeout_min=… with more minutes, or a smaller cluster.cells_per_job"
    if why:
        message, hint = f"{why}; the job was begun {times}", "the same command continues from here"
    if again:
        message += ", and Slurm did not take the job back into its queue"
        hint = f"the same command continues from here; {hint}"
    write_json(fault, {"message": message, "hint": hint})
