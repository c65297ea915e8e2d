"""The speed, the behaviour and the size of an emulated storage, or of what emulated nodes read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.system.emulated import BOUNDS

if TYPE_CHECKING:
    from jobs.model.settings import Node

GB = 10**9
DATA = "data"
"""Folder at the top of each storage that is a campaign's root: where nothing is mounted, there is none."""
FOLDER_VARIABLE = "CAMPAIGN_TESTBED"
DEFAULT_FOLDER = "/var/lib/tfio-testbed"
NODES, FIRST = "nodes", "node0"
"""What emulated nodes read says of itself; and the node whose image it is, which those of `node1` … are links of."""
_SOURCE = "storage_model.c"
_UNBOUNDED = 1e6  # MB/s, beyond what any memory moves


def is_link(name: str) -> bool:
    """Return whether a storage is an emulated node that uses the image of the first node."""
    return name != FIRST and name.startswith("node") and name.removeprefix("node").isdecimal()


def source() -> Path:
    """Return where the source of the program is that serves models."""
    return Path(str(files("campaign.testbed") / _SOURCE))


@cache
def version() -> str:
    """Return the version of that program: a part of the digest of its source."""
    return hashlib.sha256(source().read_bytes()).hexdigest()[:8]


@dataclass(frozen=True)
class Speed:
    """What a device does at most: MB/s and requests a second, read and written; None: what lies beneath does it."""

    read_mb_per_s: float | None
    write_mb_per_s: float | None
    read_iops: int | None = None
    write_iops: int | None = None

    def limits(self) -> dict[str, int]:
        """Return the bounds in bytes and requests a second, by the kernel's names for them; only those there are."""
        limits = {
            "read_bps": _bytes(self.read_mb_per_s),
            "write_bps": _bytes(self.write_mb_per_s),
            "read_iops": self.read_iops,
            "write_iops": self.write_iops,
        }
        return {kind: limit for kind, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Model:
    """What a storage does beyond its MB/s: latency, seeks, queues (`storage_model.c`)."""

    kind: str  # disk, flash or server
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class Wanted:
    """An emulated storage: its speed, and its size; None: an equal share of what is free beneath, at most 12 GB."""

    speed: Speed
    size_bytes: int | None = None
    model: Model | None = None  # None: MB/s alone, by the kernel's throttle
    node: bool = False  # a read-only mount of what all emulated nodes read, past the page cache of its file

    @classmethod
    def of(cls, facts: Node, size_bytes: int | None) -> Wanted:
        """Return what was asked for when `facts` were made of it."""
        said = dict(facts.get("model") or {})
        said.pop("version", None)  # it is that of the program which is to serve, whichever served before
        model = Model(said.pop("kind"), said) if said else None
        return cls(Speed(**{key: facts[key] for key in BOUNDS}), size_bytes, model, node=facts["name"] == NODES)

    def facts(self, name: str) -> Node:
        """Return what its file system says of itself (`jobs.system.emulated`)."""
        model = {"kind": self.model.kind, **self.model.parameters, "version": version()} if self.model else None
        return {"name": NODES if self.node else name, **asdict(self.speed), "model": model}

    def limits(self) -> dict[str, int]:
        """Return what the kernel is to bound: all, or what the model does not; in bytes and requests a second."""
        served = ("read_bps", "write_bps") if self.model else ()
        return {kind: limit for kind, limit in self.speed.limits().items() if kind not in served}

    def words(self) -> tuple[str, ...]:
        """Return what the model's server is told."""
        if self.model is None:
            return ()
        rates = {key: asdict(self.speed)[key] or _UNBOUNDED for key in ("read_mb_per_s", "write_mb_per_s")}
        figures = {**rates, **self.model.parameters}
        return (f"kind={self.model.kind}", *(f"{key}={value:.10g}" for key, value in figures.items()))


def _bytes(mb_per_s: float | None) -> int | None:
    return None if mb_per_s is None else round(mb_per_s * 1e6)
