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

# Keys of `scontrol show job` that describe the granted resources, not the requested resources.
_FACTS = (
    "ArrayJobId", "ArrayTaskId", "Dependency", "Features", "JobId", "JobName", "Licenses", "NodeList", "NumCPUs",
    "OverSubscribe", "Partition", "QOS", "Restarts", "TRES", "TimeLimit",
)  # fmt: skip


def number_of_restarts() -> int:
    """Return how often Slurm has put this job back into the queue."""
    return int(os.environ.get("SLURM_RESTART_COUNT", "0"))


def own_job_id() -> str | None:
    """Return the id of this job for Slurm's commands, for example ``77`` or in an array ``70_1``; None outside a job.

    ``SLURM_JOB_ID`` alone is not enough, because in the last task of an array it is the id of the whole array.
    """
    array, index = (os.environ.get(f"SLURM_ARRAY_{part}_ID") for part in ("JOB", "TASK"))
    return f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID")


def describe_job() -> dict[str, str]:
    """Return Slurm's description of this job: node list, partition, time limit and other granted resources.

    Return an empty dictionary outside a job, or if the controller does not answer.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    return {key: value for key, value in _scontrol_line("job", own_job_id(), "JobId", job_id).items() if key in _FACTS}


def node_address() -> str:
    """Return the address at which the other nodes of the job reach this node.

    Normally this is the address that Slurm uses for the node, or else the address of the node's host name. That address
    may be useless: in some clouds the node does not have it, and on Debian the host name means loopback. Then return
    the address from which this node sends packets to another node of the job.
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
    """Return the first address of a host, or None if this machine cannot resolve the host name."""
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


def _address_towards(name: str) -> str | None:
    """Return the source address that this host would use for packets to another host; send no packet."""
    if (address := _address_of(name)) is None:
        return None
    with suppress(OSError), socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])
    return None


def _scontrol_line(kind: str, name: str | None, key: str, value: str | None) -> dict[str, str]:
    """Return the values in the line of ``scontrol show`` that has ``key=value``, or an empty dictionary."""
    lines = client.ask_for_lines(key, "scontrol", "-o", "show", kind, name, patient=True) if name else []
    return next((line for line in lines if line[key] == value), {})


def requeue_job() -> bool:
    """Ask Slurm to put this job back into the queue, and return whether Slurm agreed.

    If Slurm agreed, Slurm ends this process soon.
    """
    job_id = own_job_id()
    return job_id is not None and client.ask_slurm("scontrol", "requeue", job_id, patient=True) is not None


def was_restarted_too_often(cluster: Cluster, fault: Path) -> bool:
    """Return whether Slurm restarted this job more often than `max_requeues` allows.

    In this case, write an error message into the file `fault`.
    """
    if number_of_restarts() <= cluster["max_requeues"]:
        return False
    message = f"Slurm restarted the job {count_noun(number_of_restarts(), 'time')}"
    hint = "repeat the command to start the job again; cluster.max_requeues=… allows more restarts"
    write_json(fault, {"message": message, "hint": hint})
    return True


def requeue_or_explain(cluster: Cluster, fault: Path, reason: str | None = None) -> None:
    """Put the job back into the queue, or write an error message into the file `fault`.

    The job is requeued at most `max_requeues` times. A requeued job starts its work list again, and does not repeat
    recorded runs. If Slurm lost contact with this node and has already restarted the job, do nothing, because the job
    now belongs to another worker.
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
        message, hint = f"{reason}; the job was started {times}", "repeat the command to run the missing runs"
    if may_requeue:
        message += ", and Slurm did not take the job back into its queue"
        hint = hint if reason else f"repeat the command to run the missing runs; {hint}"
    write_json(fault, {"message": message, "hint": hint})
