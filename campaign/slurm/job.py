"""Describe the Slurm job in which this process runs, and put the job back into the queue."""

from __future__ import annotations

import ipaddress
import os
import platform
import socket
from contextlib import suppress
from pathlib import Path
from typing import TypeGuard

from campaign.console import count_noun
from campaign.slurm import client
from jobs.model.conduct import Cluster
from jobs.system.files import write_json

# Keys of `scontrol show job`: what Slurm granted, not what was requested.
_FACTS = (
    "ArrayJobId", "ArrayTaskId", "Dependency", "Features", "JobId", "JobName", "Licenses", "NodeList", "NumCPUs",
    "OverSubscribe", "Partition", "QOS", "Restarts", "TRES", "TimeLimit",
)  # fmt: skip


def number_of_restarts() -> int:
    """Return how often Slurm has put this job back into the queue."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def own_job_id() -> str | None:
    """Return the id of this job for Slurm's programs: ``77``, or ``70_1`` in an array; None outside a job.

    ``SLURM_JOB_ID`` alone is not enough: in the last task of an array it is the id of the whole array.
    """
    array, index = (os.environ.get(f"SLURM_ARRAY_{part}_ID") for part in ("JOB", "TASK"))
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID")


def describe_job() -> dict[str, str]:
    """Return Slurm's facts on this job; empty outside a job, or if the controller does not answer."""
    job_id = os.environ.get("SLURM_JOB_ID")
    return {key: value for key, value in _scontrol_line("job", own_job_id(), "JobId", job_id).items() if key in _FACTS}


def node_address() -> str:
    """Return the address at which the other nodes of the job reach this node.

    It is the address that Slurm uses, else that of the node's name. If the node does not have this address, as in some
    clouds, or if its name leads to loopback, as on Debian, it is the address from which it reaches another node.
    """
    node = os.environ.get("SLURMD_NODENAME")
    name_or_address = _scontrol_line("node", node, "NodeName", node).get("NodeAddr") or platform.node()
    address = _address_of(name_or_address)
    if not _can_listen_on(address) or (ipaddress.ip_address(address).is_loopback and address != name_or_address):
        names = client.ask_slurm(
            "scontrol", "show", "hostnames", os.environ.get("SLURM_JOB_NODELIST", ""), patient=True
        )
        other_nodes = (name for name in (names or "").split() if name != node)
        address = next(filter(None, map(_address_towards, other_nodes)), address)
    return address or name_or_address


def _can_listen_on(address: str | None) -> TypeGuard[str]:
    """Return whether a process of this host can listen on an address."""
    if address is None:
        return False
    with suppress(OSError), socket.create_server((address, 0), family=_family(address)):
        return True
    return False


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _address_of(name: str) -> str | None:
    """Return the first address of a host; None if its name is not known here."""
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


def _address_towards(name: str) -> str | None:
    """Return the address of this host from which it would send packets to another host; no packet is sent."""
    if (address := _address_of(name)) is None:
        return None
    with suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return None


def _scontrol_line(kind: str, name: str | None, key: str, value: str | None) -> dict[str, str]:
    """Return the values of the line of ``scontrol show`` whose `key` has this value; empty if there is none."""
    lines = client.ask_for_lines(key, "scontrol", "-o", "show", kind, name, patient=True) if name else []
    return next((line for line in lines if line[key] == value), {})


def requeue_job() -> bool:
    """Put this job back into the queue; return whether Slurm agreed: then it ends this process soon."""
    job_id = own_job_id()
    return job_id is not None and client.ask_slurm("scontrol", "requeue", job_id, patient=True) is not None


def was_restarted_too_often(cluster: Cluster, fault: Path) -> bool:
    """Return whether Slurm restarted this job more often than `max_requeues` allows; the file `fault` then says so."""
    if number_of_restarts() <= cluster["max_requeues"]:
        return False
    message = f"Slurm began the job again {count_noun(number_of_restarts(), 'time')}"
    write_json(fault, {"message": message, "hint": "cluster.max_requeues=… allows more; the same command tries again"})
    return True


def requeue_or_explain(cluster: Cluster, fault: Path, reason: str | None = None) -> None:
    """Put the job back into the queue if it may be requeued again; else write the reason into the file `fault`.

    A requeued job starts its work list again, and does not repeat recorded runs. Nothing is done if Slurm has restarted
    the job already, because it lost contact with this node: the job belongs to another worker then.
    """
    if int(describe_job().get("Restarts", "0")) > number_of_restarts():
        return
    may_requeue = number_of_restarts() < cluster["max_requeues"]
    if may_requeue and requeue_job():
        return
    times = count_noun(number_of_restarts() + 1, "time")
    message = f"the time limit of {cluster['timeout_min']} min was reached {times}"
    hint = "cluster.timeout_min=… with more minutes, or a smaller cluster.cells_per_job"
    if reason:
        message, hint = f"{reason}; the job was begun {times}", "the same command continues from here"
    if may_requeue:
        message += ", and Slurm did not take the job back into its queue"
        hint = f"the same command continues from here; {hint}"
    write_json(fault, {"message": message, "hint": hint})
