"""Declare the settings of a testbed, and the speed, the model and the size of an emulated storage.

Each key of `python -m campaign testbed up` is declared once: type, range, unit, meaning and default. The rates in MB/s
(10^6 bytes per second) are from Table I of Chien et al. 2018; other numbers have their source beside them.
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
"""The folder in each storage that campaigns use as its root; the folder is missing while nothing is mounted."""
FOLDER_VARIABLE = "CAMPAIGN_TESTBED"
DEFAULT_FOLDER = "/var/lib/tfio-testbed"
NODES, FIRST = "nodes", "node0"
"""The storage name of the nodes' file system in its marker; and the first node, to whose image all other nodes link."""
_SOURCE = "storage_model.c"
_UNBOUNDED = 1e6  # MB/s; no memory is as fast


def is_linked_node(name: str) -> bool:
    """Return whether `name` is an emulated node other than the first, to whose image it links."""
    return name != FIRST and name.startswith("node") and name.removeprefix("node").isdecimal()


def model_source() -> Path:
    """Return the path of the source of the program that serves models."""
    return Path(str(files("campaign.testbed") / _SOURCE))


@cache
def model_version() -> str:
    """Return the version of the program that serves models: eight digits of the digest of its source."""
    return hashlib.sha256(model_source().read_bytes()).hexdigest()[:8]


@dataclass(frozen=True)
class Speed:
    """The limits of a device for reads and for writes, in MB/s and in requests per second; None: no limit."""

    read_mb_per_s: float | None
    write_mb_per_s: float | None
    read_iops: int | None = None
    write_iops: int | None = None

    def limits(self) -> dict[str, int]:
        """Return the limits that are not None, in bytes and requests per second, by the kernel's names."""
        limits = {
            "read_bps": _bytes_per_s(self.read_mb_per_s),
            "write_bps": _bytes_per_s(self.write_mb_per_s),
            "read_iops": self.read_iops,
            "write_iops": self.write_iops,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Model:
    """The behaviour of a storage beyond its MB/s: latency, seeks, queues (`storage_model.c`)."""

    kind: str  # disk, flash or server
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class StorageRequest:
    """A requested storage.

    `size_bytes`: None asks for an equal share of the free space, at most 12 GB.
    """

    speed: Speed
    size_bytes: int | None = None
    model: Model | None = None  # None: the kernel's throttle emulates MB/s alone
    node: bool = False  # whether the storage is an emulated node: a read-only mount of the file system of all nodes

    @classmethod
    def of(cls, facts: Node, size_bytes: int | None) -> StorageRequest:
        """Return the request for a storage of `size_bytes` from its facts, as a marker contains them (see `facts`)."""
        parameters = dict(facts.get("model") or {})
        parameters.pop("version", None)  # the present program will serve the model, whatever its version in the marker
        model = Model(parameters.pop("kind"), parameters) if parameters else None
        return cls(Speed(**{key: facts[key] for key in BOUNDS}), size_bytes, model, node=facts["name"] == NODES)

    def facts(self, name: str) -> Node:
        """Return the facts for the marker in the storage's file system (`jobs.system.layers`)."""
        model = {"kind": self.model.kind, **self.model.parameters, "version": model_version()} if self.model else None
        return {"name": NODES if self.node else name, **asdict(self.speed), "model": model}

    def limits(self) -> dict[str, int]:
        """Return the limits that the model does not enforce, but the kernel must: bytes and requests per second."""
        limits_of_model = ("read_bps", "write_bps") if self.model else ()
        return {name: limit for name, limit in self.speed.limits().items() if name not in limits_of_model}

    def server_arguments(self) -> tuple[str, ...]:
        """Return the KEY=VALUE arguments of the program that serves the model; none without a model."""
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
    Annotated[float, Meta(ge=0.06, le=1e6)] | None,  # below, ext4 has no room for its journal and for files
    Setting("size; null: an equal share of the free space on the disk beneath, at most 12 GB", unit="GB"),
]
ReadRate = Annotated[Rate | None, Setting("speed of reading; null: not bounded", unit="MB/s")]
WriteRate = Annotated[Rate | None, Setting("speed of writing; null: not bounded", unit="MB/s")]


class Device(Keys):
    """One emulated storage."""

    size_gb: Size = None
    read_mb_per_s: ReadRate = MISSING
    write_mb_per_s: WriteRate = MISSING
    read_iops: Annotated[Iops | None, Setting("reads per second; null: not bounded", unit="1/s")] = None
    write_iops: Annotated[Iops | None, Setting("writes per second; null: not bounded", unit="1/s")] = None
    path_us: Annotated[
        Micros,
        Setting("time of a request on this machine; the model answers earlier by this time", unit="microseconds"),
    ] = 30.0


class Disk(Device):
    """A hard disk: one arm over turning platters.

    The disk of the paper (section IV) has 4 TB. The seek times are from Western Digital's OEM specification of the
    Ultrastar DC HC310 with 4 TB, 4.5.1 (2017).
    """

    read_mb_per_s: ReadRate = 163.00
    write_mb_per_s: WriteRate = 133.14
    seek_track_ms: Annotated[
        Millis, Setting("seek to the next track; to another it grows with the square root of the distance", unit="ms")
    ] = 0.23
    seek_average_ms: Annotated[Millis, Setting("seek between all pairs of tracks of the whole disk", unit="ms")] = 7.4
    rpm: Annotated[Turns, Setting("turns per minute; 7,200: 8.33 ms per turn, 1.36 MB per track", unit="1/min")] = (
        7200.0
    )
    capacity_gb: Annotated[Rate, Setting("size of the whole disk; its first size_gb are used", unit="GB")] = 4000.0
    queue: Annotated[
        int,
        Meta(ge=1, le=1024),
        Setting("waiting commands, of which the arm serves the one that it reaches first (NCQ)", unit="commands"),
    ] = 32
    cache_mb: Annotated[
        float,
        Meta(ge=1, le=1e4),
        Setting("part of the 64 MB of cache for writes, and for reads ahead of a sequential reader", unit="MB"),
    ] = 16.0  # an estimate of ours
    interface_mb_per_s: Annotated[Turns, Setting("speed of the bus; SATA has 6 Gbit/s", unit="MB/s")] = 550.0


class Flash(Device):
    """A solid-state drive: several channels that work at once, and one bus."""

    read_us: Annotated[
        Micros, Setting("time to read a page of flash, with that of the controller", unit="microseconds")
    ] = MISSING
    write_us: Annotated[Micros, Setting("time to write into the drive's cache", unit="microseconds")] = MISSING
    channels: Annotated[int, Meta(ge=1, le=256), Setting("requests that are worked on at once")] = MISSING


class Server(Device):
    """A parallel file system: a metadata server, and storage targets that have disks.

    A client reads and writes at `read_mb_per_s` and `write_mb_per_s`.
    """

    read_mb_per_s: ReadRate = 1968.618
    write_mb_per_s: WriteRate = 991.914
    round_trip_us: Annotated[
        Micros, Setting("time of a call over InfiniBand, with the servers' software", unit="microseconds")
    ] = 100.0  # an estimate of ours
    metadata_us: Annotated[
        Micros, Setting("time of the call that opens a file, before its first read", unit="microseconds")
    ] = 1000.0  # mdtest opens 1,000 a second from a client
    seek_average_ms: Annotated[
        Millis, Setting("seek of a target's disks, which serve others, too: no read follows the last one", unit="ms")
    ] = 7.4
    rpm: Annotated[Turns, Setting("turns per minute of these disks", unit="1/min")] = 7200.0
    disk_mb_per_s: Annotated[Rate, Setting("speed of one of these disks", unit="MB/s")] = 163.00
    disks: Annotated[int, Meta(ge=1, le=64), Setting("disks of a target that hold data (RAID 6: 8 + 2)")] = 8
    osts: Annotated[int, Meta(ge=1, le=64), Setting("storage targets")] = 24  # an estimate of ours
    stripe_mib: Annotated[float, Meta(ge=0.0625, le=1024), Setting("size of a stripe", unit="MiB")] = 1.0  # Lustre's
    read_ahead_mb: Annotated[Millis, Setting("data read ahead in sequential reads", unit="MB")] = 64.0  # the same


class EmulatedNode(Keys):
    """The file system that all emulated nodes read, and the link of each node."""

    size_gb: Size = None
    read_mb_per_s: Annotated[
        Rate | None,
        Setting("speed of a node's link; NERSC's nodes read files that were not in memory so fast (2018)", unit="MB/s"),
    ] = 185.0


class Testbed(Keys):
    """Emulated storages on one disk."""

    __test__ = False  # by its name alone pytest would take this class for tests

    storages: Annotated[
        list[str] | None,
        Setting(
            "storages to make; other storages do not change; null: all four, or none with nodes or s3",
        ),
    ] = None
    model: Annotated[
        Literal["auto", "physical", "rates"],
        Setting(
            "kind of emulation; rates: MB/s alone, by the kernel's throttle; physical: latency, seeks and queues, too;"
            " auto: physical if FUSE and a C compiler are installed, else rates"
        ),
    ] = "auto"
    nodes: Annotated[
        int,
        Meta(ge=0, le=64),
        Setting(
            "emulated nodes, each with a page cache of its own; they read one file system (storage=nodes), on which"
            " `testbed fill WORDS` makes the datasets of a campaign",
            unit="nodes",
        ),
    ] = 0
    node: EmulatedNode = field(default_factory=EmulatedNode)
    s3: Annotated[bool, Setting("whether an object store is made, too: a real Ceph gateway (docs/how-to/s3.md)")] = (
        False
    )
    s3_on: Annotated[
        str | None,
        Setting("storage that has its objects, such as ssd; null: the disk beneath, by a loop device of its own"),
    ] = None
    s3_size_gb: Annotated[float, Meta(ge=1, le=1e6), Setting("most that its objects may take", unit="GB")] = 6.0
    s3_cached: Annotated[
        bool, Setting("whether it may answer a read from its memory; false: each read comes from the disk")
    ] = False
    hdd: Disk = field(default_factory=Disk)
    ssd: Flash = field(  # 80,000 reads a second, as data sheets have it
        default_factory=lambda: Flash(
            read_mb_per_s=280.55, write_mb_per_s=195.05, read_us=100.0, write_us=50.0, channels=8
        )
    )
    optane: Flash = field(  # 900P, 480 GB (paper, IV); times and 550,000 reads a second by its data sheet
        default_factory=lambda: Flash(
            read_mb_per_s=1603.06, write_mb_per_s=511.78, read_us=10.0, write_us=10.0, channels=6
        )
    )
    lustre: Server = field(default_factory=Server)


KINDS: dict[str, type[Device]] = {"hdd": Disk, "ssd": Flash, "optane": Flash, "lustre": Server}
"""The storages by name, with their kinds."""
