"""Declare the settings of a testbed, and the speed, the model and the size of an emulated storage.

This module declares the type, range, unit, meaning and default of each key of `python -m campaign testbed up`. The
rates in MB/s (10^6 bytes per second) are from Table I of Chien et al. 2018. For other numbers, the source is in a
comment or docstring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting
from jobs.system.layers import BOUNDS

if TYPE_CHECKING:
    from jobs.model.settings import Node


GB = 10**9
DATA = "data"
"""The name of the folder in each emulated storage that campaigns use as the root of the storage.

The folder exists only while the storage is mounted.
"""
FOLDER_VARIABLE = "CAMPAIGN_TESTBED"
DEFAULT_FOLDER = "/var/lib/tfio-testbed"
NODES, FIRST = "nodes", "node0"
"""`NODES`: the storage name in the marker of the file system that all emulated nodes read.

`FIRST`: the name of the first node; the image files of all other nodes are hard links to its image file.
"""
_SOURCE = "storage_model.c"
_UNBOUNDED = 1e6  # MB/s; faster than any memory


def is_linked_node(name: str) -> bool:
    """Return whether `name` is an emulated node other than the first node; its image file is a hard link."""
    return name != FIRST and name.startswith("node") and name.removeprefix("node").isdecimal()


def model_source() -> Path:
    """Return the path of the C source of the program that serves storage models."""
    return Path(str(files("campaign.testbed") / _SOURCE))


@cache
def model_version() -> str:
    """Return the version of the program that serves models: eight hexadecimal digits of its source's SHA-256 digest."""
    return hashlib.sha256(model_source().read_bytes()).hexdigest()[:8]


@dataclass(frozen=True)
class Speed:
    """The speed limits of a device for reads and for writes, in MB/s and in requests per second; None: no limit."""

    read_mb_per_s: float | None
    write_mb_per_s: float | None
    read_iops: int | None = None
    write_iops: int | None = None

    def limits(self) -> dict[str, int]:
        """Return the limits that are not None, in bytes or requests per second; the keys are the kernel's names."""
        limits = {
            "read_bps": _bytes_per_s(self.read_mb_per_s),
            "write_bps": _bytes_per_s(self.write_mb_per_s),
            "read_iops": self.read_iops,
            "write_iops": self.write_iops,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Model:
    """A model of a storage's latency, seeks and queues, in addition to its MB/s (`storage_model.c`)."""

    kind: str  # disk, flash or server
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class StorageRequest:
    """A request for an emulated storage: its speed, size and model."""

    speed: Speed
    size_bytes: int | None = None  # None: an equal share of the free space, at most 12 GB
    model: Model | None = None  # None: the kernel's throttle emulates only the MB/s
    node: bool = False  # whether the storage is an emulated node, that is a read-only mount of the nodes' file system

    @classmethod
    def from_facts(cls, facts: Node, size_bytes: int | None) -> StorageRequest:
        """Return the request that corresponds to the content `facts` of a storage's marker (see the method `facts`)."""
        parameters = dict(facts.get("model") or {})
        parameters.pop("version", None)  # the version in the marker may be old; the present program serves the model
        model = Model(parameters.pop("kind"), parameters) if parameters else None
        return cls(Speed(**{key: facts[key] for key in BOUNDS}), size_bytes, model, node=facts["name"] == NODES)

    def facts(self, name: str) -> Node:
        """Return the content of the marker file in the storage's file system (`jobs.system.layers`)."""
        model = {"kind": self.model.kind, **self.model.parameters, "version": model_version()} if self.model else None
        return {"name": NODES if self.node else name, **asdict(self.speed), "model": model}

    def limits(self) -> dict[str, int]:
        """Return the limits that the kernel must enforce, because the model does not: bytes and requests per second."""
        limits_of_model = ("read_bps", "write_bps") if self.model else ()
        return {name: limit for name, limit in self.speed.limits().items() if name not in limits_of_model}

    def server_arguments(self) -> tuple[str, ...]:
        """Return the KEY=VALUE arguments for the program that serves the model; empty without a model."""
        if self.model is None:
            return ()
        rates = {key: asdict(self.speed)[key] or _UNBOUNDED for key in ("read_mb_per_s", "write_mb_per_s")}
        values = {**rates, **self.model.parameters}
        return (f"kind={self.model.kind}", *(f"{key}={value:.10g}" for key, value in values.items()))


def _bytes_per_s(mb_per_s: float | None) -> int | None:
    return None if mb_per_s is None else round(mb_per_s * 1e6)


Rate = Annotated[float, Meta(ge=0.1, le=1e6)]
Iops = Annotated[int, Meta(ge=1, le=10**8)]
Micros = Annotated[float, Meta(ge=0, le=1e6)]
Millis = Annotated[float, Meta(ge=0, le=1e4)]
Turns = Annotated[float, Meta(ge=1, le=1e6)]
Size = Annotated[
    Annotated[float, Meta(ge=0.06, le=1e6)] | None,  # with less, ext4 has no space for its journal and for files
    Setting("size; null: an equal share of the free space on the underlying disk, at most 12 GB", unit="GB"),
]
ReadRate = Annotated[Rate | None, Setting("read speed; null: no limit", unit="MB/s")]
WriteRate = Annotated[Rate | None, Setting("write speed; null: no limit", unit="MB/s")]


class Device(Keys):
    """One emulated storage."""

    size_gb: Size = None
    read_mb_per_s: ReadRate = MISSING
    write_mb_per_s: WriteRate = MISSING
    read_iops: Annotated[Iops | None, Setting("reads per second; null: no limit", unit="1/s")] = None
    write_iops: Annotated[Iops | None, Setting("writes per second; null: no limit", unit="1/s")] = None
    path_us: Annotated[
        Micros,
        Setting(
            "time of a request on the path from the program to the model and back; the model answers so much earlier",
            unit="microseconds",
        ),
    ] = 30.0


class Disk(Device):
    """A hard disk: one arm over turning platters.

    The disk of the paper (section IV) has 4 TB. The seek times are from Western Digital's OEM specification of the
    Ultrastar DC HC310 with 4 TB, 4.5.1 (2017).
    """

    read_mb_per_s: ReadRate = 163.00
    write_mb_per_s: WriteRate = 133.14
    seek_track_ms: Annotated[
        Millis,
        Setting(
            "time of a seek to the next track; the time grows with the square root of the distance of the tracks",
            unit="ms",
        ),
    ] = 0.23
    seek_average_ms: Annotated[
        Millis, Setting("average time of a seek between two tracks of the whole disk", unit="ms")
    ] = 7.4
    rpm: Annotated[Turns, Setting("turns per minute; 7,200: 8.33 ms per turn, 1.36 MB per track", unit="1/min")] = (
        7200.0
    )
    capacity_gb: Annotated[Rate, Setting("size of the whole disk; the first size_gb are used", unit="GB")] = 4000.0
    queue: Annotated[
        int,
        Meta(ge=1, le=1024),
        Setting(
            "number of waiting commands from which the arm chooses the command that it reaches first (NCQ)",
            unit="commands",
        ),
    ] = 32
    cache_mb: Annotated[
        float,
        Meta(ge=1, le=1e4),
        Setting("part of the disk's cache of 64 MB that is used for writes and for read-ahead", unit="MB"),
    ] = 16.0  # our estimate
    interface_mb_per_s: Annotated[Turns, Setting("speed of the bus; SATA has 6 Gbit/s", unit="MB/s")] = 550.0


class Flash(Device):
    """A solid-state drive: several channels that work in parallel, and one bus."""

    read_us: Annotated[
        Micros, Setting("time to read a flash page, including the time of the controller", unit="microseconds")
    ] = MISSING
    write_us: Annotated[Micros, Setting("time to write into the drive's cache", unit="microseconds")] = MISSING
    channels: Annotated[int, Meta(ge=1, le=256), Setting("requests that the drive serves in parallel")] = MISSING


class Server(Device):
    """A parallel file system: a metadata server, and storage targets with several disks.

    `read_mb_per_s` and `write_mb_per_s` are the speeds of a single client.
    """

    read_mb_per_s: ReadRate = 1968.618
    write_mb_per_s: WriteRate = 991.914
    round_trip_us: Annotated[
        Micros,
        Setting("time of a call over InfiniBand, including the time of the server's software", unit="microseconds"),
    ] = 100.0  # our estimate
    metadata_us: Annotated[
        Micros, Setting("time of the call that opens a file, before its first read", unit="microseconds")
    ] = 1000.0  # from a single client, mdtest opens 1,000 files per second
    seek_average_ms: Annotated[
        Millis,
        Setting(
            "average time of a seek on a disk of a server; each read needs a seek, because other clients use the disk",
            unit="ms",
        ),
    ] = 7.4
    rpm: Annotated[Turns, Setting("turns per minute of a server's disks", unit="1/min")] = 7200.0
    disk_mb_per_s: Annotated[Rate, Setting("speed of one disk of a server", unit="MB/s")] = 163.00
    disks: Annotated[int, Meta(ge=1, le=64), Setting("data disks per storage target (RAID 6: 8 + 2)")] = 8
    osts: Annotated[int, Meta(ge=1, le=64), Setting("number of storage targets")] = 24  # our estimate
    # The defaults of the stripe size and of the read-ahead are Lustre's defaults.
    stripe_mib: Annotated[float, Meta(ge=0.0625, le=1024), Setting("size of a stripe", unit="MiB")] = 1.0
    read_ahead_mb: Annotated[Millis, Setting("amount of data read ahead in sequential reads", unit="MB")] = 64.0


class EmulatedNode(Keys):
    """The file system that all emulated nodes read, and the network link of each node."""

    size_gb: Size = None
    read_mb_per_s: Annotated[
        Rate | None,
        Setting("speed of a node's link; NERSC's nodes read uncached files at this speed (2018)", unit="MB/s"),
    ] = 185.0


class Testbed(Keys):
    """The settings of a testbed: emulated storages, emulated nodes and an object store on one disk."""

    __test__ = False  # pytest would collect this class as tests, because its name starts with "Test"

    storages: Annotated[
        list[str] | None,
        Setting(
            "storages to make; other storages do not change; null: all four storages, or no storage with nodes or s3",
        ),
    ] = None
    model: Annotated[
        Literal["auto", "physical", "rates"],
        Setting(
            "kind of emulation; rates: only MB/s, with the kernel's throttle; physical: also latency, seeks and queues;"
            " auto: physical if FUSE and a C compiler are installed, else rates"
        ),
    ] = "auto"
    nodes: Annotated[
        int,
        Meta(ge=0, le=64),
        Setting(
            "number of emulated nodes; each node has its own page cache, and all nodes read one file system"
            " (storage=nodes); `testbed fill WORDS` makes the datasets of a campaign on this file system",
            unit="nodes",
        ),
    ] = 0
    node: EmulatedNode = field(default_factory=EmulatedNode)
    s3: Annotated[bool, Setting("whether to make an object store, too: a real Ceph gateway (docs/how-to/s3.md)")] = (
        False
    )
    s3_on: Annotated[
        str | None,
        Setting("emulated storage for the objects, for example ssd; null: a loop device on the underlying disk"),
    ] = None
    s3_size_gb: Annotated[float, Meta(ge=1, le=1e6), Setting("largest total size of the objects", unit="GB")] = 6.0
    s3_cached: Annotated[
        bool, Setting("whether the store may answer a read from its memory; false: each read comes from the disk")
    ] = False
    hdd: Disk = field(default_factory=Disk)
    ssd: Flash = field(  # these times give 80,000 reads per second, a typical value in data sheets
        default_factory=lambda: Flash(
            read_mb_per_s=280.55, write_mb_per_s=195.05, read_us=100.0, write_us=50.0, channels=8
        )
    )
    optane: Flash = field(  # 900P, 480 GB (paper, IV); the times and 550,000 reads per second are from its data sheet
        default_factory=lambda: Flash(
            read_mb_per_s=1603.06, write_mb_per_s=511.78, read_us=10.0, write_us=10.0, channels=6
        )
    )
    lustre: Server = field(default_factory=Server)


KINDS: dict[str, type[Device]] = {"hdd": Disk, "ssd": Flash, "optane": Flash, "lustre": Server}
"""The class of settings of each emulated storage, by the storage's name."""
