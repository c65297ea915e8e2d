"""The partitions of the cluster: the limits that Slurm keeps for them, and their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from campaign.slurm import client

_TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
# States of nodes that run nothing now and may later (sinfo(1), NODE STATE CODES).
_AWAY = ("down", "drain", "fail", "maint", "reserved", "unk", "inval")
_NOT_RESPONDING = "*"


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
        return min(self.node_cpus, self.number("MaxCPUsPerNode") or self.node_cpus)

    @property
    def minutes_at_most(self) -> int | None:
        """Minutes that a job may ask for (``MaxTime``); None where there is no limit."""
        if not (time := _TIME.fullmatch(self.values.get("MaxTime", ""))):
            return None
        days, hours, minutes, _ = (int(part or 0) for part in time.groups())
        return (days * 24 + hours) * 60 + minutes

    def number(self, key: str) -> int | None:
        """Return a limit; None where there is none (``UNLIMITED``)."""
        text = self.values.get(key, "")
        return int(text) if text.isdecimal() else None


def named(names: str | None) -> list[Partition]:
    """List the partitions of these names (separated by commas), or the default one; none where Slurm does not say."""
    every = [_values(line) for line in (client.ask("scontrol", "-a", "-o", "show", "partition") or "").splitlines()]
    key, wanted = ("PartitionName", names.split(",")) if names else ("Default", ["YES"])
    taken = [each for each in every if "PartitionName" in each and each.get(key) in wanted]
    nodes = [*_nodes(",".join(each["PartitionName"] for each in taken))] if taken else []
    found = []
    for values in taken:
        own = [(cpus, state) for partition, cpus, state in nodes if partition == values["PartitionName"]]
        if own:
            away = sum(state.startswith(_AWAY) or state.endswith(_NOT_RESPONDING) for _, state in own)
            found.append(Partition(values, max(cpus for cpus, _ in own), away))
    return found


def _values(line: str) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in line.split())}


def _nodes(names: str) -> Iterator[tuple[str, int, str]]:
    """Yield the partition, the CPUs and the state of each node of these partitions."""
    for line in (client.ask("sinfo", "-h", "-N", "-p", names, "-o", "%R|%c|%T") or "").splitlines():
        partition, _, rest = line.partition("|")
        cpus, _, state = rest.partition("|")
        if cpus.isdecimal():
            yield partition, int(cpus), state
