"""The words of `python -m campaign testbed up`, read by Hydra as a campaign's words are."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from campaign.cells.cell import flat
from campaign.config.closed import check_node, keys_with
from campaign.config.command_line import refuse_for_hydra
from campaign.config.explain import explained
from campaign.config.limits import check_numbers, ranges_of
from campaign.errors import UsageError, nearest
from campaign.testbed.s3 import Store
from campaign.testbed.spec import GB, Model, Speed, Wanted
from jobs.model.settings import key


class Behaviour(Enum):
    """What a storage is like beyond its size."""

    auto = "auto"
    physical = "physical"
    rates = "rates"


_SIZE = (0.06, 1e6)  # below, ext4 has no room for its journal and for files
_RATE = (0.1, 1e6)


@dataclass
class Device:
    """One emulated storage."""

    size_gb: float | None = key(MISSING, *_SIZE)
    read_mb_per_s: float | None = key(MISSING, *_RATE)
    write_mb_per_s: float | None = key(MISSING, *_RATE)
    read_iops: int | None = key(MISSING, 1, 1e8)
    write_iops: int | None = key(MISSING, 1, 1e8)
    path_us: float = key(MISSING, 0, 1e6)


@dataclass
class Disk(Device):
    """A hard disk: one arm over turning platters."""

    seek_track_ms: float = key(MISSING, 0, 1e4)
    seek_average_ms: float = key(MISSING, 0, 1e4)
    rpm: float = key(MISSING, 1, 1e6)
    capacity_gb: float = key(MISSING, 0.1, 1e6)
    queue: int = key(MISSING, 1, 1024)
    cache_mb: float = key(MISSING, 1, 1e4)
    interface_mb_per_s: float = key(MISSING, 1, 1e6)


@dataclass
class Flash(Device):
    """A solid-state drive: channels that work at once, one bus."""

    read_us: float = key(MISSING, 0, 1e6)
    write_us: float = key(MISSING, 0, 1e6)
    channels: int = key(MISSING, 1, 256)


@dataclass
class Server(Device):
    """A parallel file system: a metadata server, and storage targets that have disks."""

    round_trip_us: float = key(MISSING, 0, 1e6)
    metadata_us: float = key(MISSING, 0, 1e6)
    seek_average_ms: float = key(MISSING, 0, 1e4)
    rpm: float = key(MISSING, 1, 1e6)
    disk_mb_per_s: float = key(MISSING, 0.1, 1e6)
    disks: int = key(MISSING, 1, 64)
    osts: int = key(MISSING, 1, 64)
    stripe_mib: float = key(MISSING, 0.0625, 1024)
    read_ahead_mb: float = key(MISSING, 0, 1e4)


@dataclass
class Node:
    """What all emulated nodes read, and what bounds each of them."""

    size_gb: float | None = key(MISSING, *_SIZE)
    read_mb_per_s: float | None = key(MISSING, *_RATE)


@dataclass
class Testbed:
    """The whole of ``conf/testbed.yaml``."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    storages: list[str] | None = MISSING
    model: Behaviour = MISSING
    nodes: int = key(MISSING, 0, 64)
    node: Node = field(default_factory=Node)
    s3: bool = MISSING
    s3_on: str | None = MISSING
    s3_size_gb: float = key(MISSING, 1, 1e6)
    s3_cached: bool = MISSING
    hdd: Disk = field(default_factory=Disk)
    ssd: Flash = field(default_factory=Flash)
    optane: Flash = field(default_factory=Flash)
    lustre: Server = field(default_factory=Server)


KINDS: dict[str, type[Device]] = {"hdd": Disk, "ssd": Flash, "optane": Flash, "lustre": Server}
_FUSE = Path("/dev/fuse")


def requested(words: Sequence[str]) -> dict[str, Wanted]:
    """Return the storages that the words ask for, by name."""
    values = _composed(words)
    behaves = values["model"] is Behaviour.physical or (values["model"] is Behaviour.auto and lacking() is None)
    if values["model"] is Behaviour.physical and (what := lacking()):
        raise UsageError(f"model=physical needs {what}", "install it, or take model=rates")
    others = values["nodes"] or values["s3"]
    names = list(KINDS) * (not others) if values["storages"] is None else _chosen(values["storages"])
    storages = {name: _wanted(name, values[name], behaves=behaves) for name in names}
    node = Wanted(Speed(values["node"]["read_mb_per_s"], None), _bytes(values["node"]["size_gb"]), node=True)
    return storages | {f"node{rank}": node for rank in range(values["nodes"])}


def requested_store(words: Sequence[str]) -> Store | None:
    """Return the object store that the words ask for; None for none."""
    values = _composed(words)
    if (on := values["s3_on"]) is not None and on not in KINDS:
        raise UsageError(f"s3_on: there is no '{on}'", nearest(on, KINDS))
    return Store(on, round(values["s3_size_gb"] * GB), values["s3_cached"]) if values["s3"] else None


def _composed(words: Sequence[str]) -> dict[str, Any]:
    ConfigStore.instance().store(group="schema", name="testbed", node=Testbed, package="_global_")
    refuse_for_hydra(words)
    with explained(), initialize_config_module("conf", version_base="1.3"):
        composed = compose("testbed", overrides=list(words))
        values: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment] # a mapping
    check_node("", values, Testbed)
    check_numbers(dict(flat(values)), ranges_of(Testbed, values), {*keys_with(NoneType, Testbed)})
    return values


def lacking() -> str | None:
    """Return what a model needs and this machine lacks."""
    if not _FUSE.exists():
        return "FUSE, which this kernel lacks (/dev/fuse)"
    return None if shutil.which("cc") else "a C compiler (cc)"


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in KINDS:
            raise UsageError(f"storages: there is no '{name}'", nearest(name, KINDS))
    if not names:
        raise UsageError("storages=[] asks for nothing", f"legal here: {', '.join(KINDS)}")
    return list(dict.fromkeys(names))


def _wanted(name: str, values: dict[str, Any], *, behaves: bool) -> Wanted:
    kind = KINDS[name]
    size_bytes = _bytes(values.pop("size_gb"))
    speed = Speed(**{each.name: values.pop(each.name) for each in dataclasses.fields(Speed)})
    model = Model(kind.__name__.lower(), values) if behaves else None
    return Wanted(speed, size_bytes, model)


def _bytes(size_gb: float | None) -> int | None:
    return None if size_gb is None else round(size_gb * GB)
