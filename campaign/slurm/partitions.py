"""The partitions of the cluster: the limits that Slurm keeps for them, and their nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from campaign.slurm import client

_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):\d+")
# States of nodes that run nothing now and may later (sinfo(1), NODE STATE CODES).
_AWAY = ("down", "drain", "fail", "maint", "reserved", "unk", "inval")
_NOT_RESPONDING = "*"
_NODE_FORMAT = "PARTITION=%R CPUS=%c STATE=%T"


@dataclass(frozen=True)
class Partition:
    """One partition, in the words of ``scontrol show partition``."""

    values: Mapping[str, str]
    node_cpus: int  # CPUs of its largest node
    nodes_away: int  # nodes that are down, drained, reserved or do not respond

    @property
    def name(self) -> str:
        """Its name."""
        return self.values["PartitionName"]

    @property
    def cpus_at_most(self) -> int:
        """CPUs that a job may have on one node."""
        return min(self.node_cpus, self.limit("MaxCPUsPerNode") or self.node_cpus)

    def limit(self, key: str) -> int | None:
        """Return a limit, of times (``MaxTime``) in minutes; None where there is none (``UNLIMITED``)."""
        text = self.values.get(key, "")
        if time := _TIME.fullmatch(text):
            days, hours, minutes = (int(part or 0) for part in time.groups())
            return (days * 24 + hours) * 60 + minutes
        return int(text) if text.isdecimal() else None


def named(names: str | None) -> list[Partition]:
    """List the partitions of these names (separated by commas), or the default one; none where Slurm does not say."""
    key, wanted = ("PartitionName", names.split(",")) if names else ("Default", ["YES"])
    every = client.lines("PartitionName", "scontrol", "-a", "-o", "show", "partition")
    chosen = {each["PartitionName"]: each for each in every if each.get(key) in wanted}
    nodes = client.lines("STATE", "sinfo", "-h", "-N", "-p", ",".join(chosen), "-o", _NODE_FORMAT) if chosen else []
    partitions = []
    for name, values in chosen.items():
        own = [(int(node["CPUS"]), node["STATE"]) for node in nodes if node.get("PARTITION") == name]
        if own:
            away = sum(state.startswith(_AWAY) or state.endswith(_NOT_RESPONDING) for _, state in own)
            partitions.append(Partition(values, max(cpus for cpus, _ in own), away))
    return partitions
