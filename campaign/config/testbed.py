"""The words of `python -m campaign testbed up`, read by Hydra as a campaign's words are."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from hydra import compose, initialize_config_module
from msgspec import Meta
from omegaconf import OmegaConf

from campaign.config.command_line import refuse_for_hydra
from campaign.config.explain import explained
from campaign.config.tree import typed_node
from campaign.errors import UsageError, nearest
from campaign.testbed.s3 import Store
from campaign.testbed.spec import GB, Model, Speed, Wanted
from jobs.model.declared import Keys, declared

Size = Annotated[float, Meta(ge=0.06, le=1e6)]  # below, ext4 has no room for its journal and for files
Rate = Annotated[float, Meta(ge=0.1, le=1e6)]
Iops = Annotated[int, Meta(ge=1, le=10**8)]
Micros = Annotated[float, Meta(ge=0, le=1e6)]
Millis = Annotated[float, Meta(ge=0, le=1e4)]
Turns = Annotated[float, Meta(ge=1, le=1e6)]


class Device(Keys):
    """One emulated storage; what each key means and is stands in conf/testbed.yaml."""

    size_gb: Size | None
    read_mb_per_s: Rate | None
    write_mb_per_s: Rate | None
    read_iops: Iops | None
    write_iops: Iops | None
    path_us: Micros


class Disk(Device):
    """A hard disk: one arm over turning platters."""

    seek_track_ms: Millis
    seek_average_ms: Millis
    rpm: Turns
    capacity_gb: Rate
    queue: Annotated[int, Meta(ge=1, le=1024)]
    cache_mb: Annotated[float, Meta(ge=1, le=1e4)]
    interface_mb_per_s: Turns


class Flash(Device):
    """A solid-state drive: channels that work at once, one bus."""

    read_us: Micros
    write_us: Micros
    channels: Annotated[int, Meta(ge=1, le=256)]


class Server(Device):
    """A parallel file system: a metadata server, and storage targets that have disks."""

    round_trip_us: Micros
    metadata_us: Micros
    seek_average_ms: Millis
    rpm: Turns
    disk_mb_per_s: Rate
    disks: Annotated[int, Meta(ge=1, le=64)]
    osts: Annotated[int, Meta(ge=1, le=64)]
    stripe_mib: Annotated[float, Meta(ge=0.0625, le=1024)]
    read_ahead_mb: Millis


class Node(Keys):
    """What all emulated nodes read, and what bounds each of them."""

    size_gb: Size | None
    read_mb_per_s: Rate | None


class Testbed(Keys):
    """The whole of ``conf/testbed.yaml``."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    storages: list[str] | None
    model: Literal["auto", "physical", "rates"]  # what a storage is like beyond its size
    nodes: Annotated[int, Meta(ge=0, le=64)]
    node: Node
    s3: bool
    s3_on: str | None
    s3_size_gb: Annotated[float, Meta(ge=1, le=1e6)]
    s3_cached: bool
    hdd: Disk
    ssd: Flash
    optane: Flash
    lustre: Server


KINDS: dict[str, type[Device]] = {"hdd": Disk, "ssd": Flash, "optane": Flash, "lustre": Server}
_FUSE = Path("/dev/fuse")


def requested(words: Sequence[str]) -> dict[str, Wanted]:
    """Return the storages that the words ask for, by name."""
    values = _composed(words)
    behaves = values["model"] == "physical" or (values["model"] == "auto" and lacking() is None)
    if values["model"] == "physical" and (what := lacking()):
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
    refuse_for_hydra(words)
    with explained(), initialize_config_module("conf", version_base="1.3"):
        composed = compose("testbed", overrides=list(words))
        values: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment] # a mapping
    return typed_node(values, declared(Testbed))


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
