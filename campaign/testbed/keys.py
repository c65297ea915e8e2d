"""The keys of `python -m campaign testbed up`, each declared once: type, range, unit, meaning and default.

MB/s are those of Table I (Chien et al. 2018), MB = 10^6 bytes. What is not in the paper has its source beside it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from jobs.model.declared import MISSING, Keys, Setting

Size = Annotated[float, Meta(ge=0.06, le=1e6)]  # below, ext4 has no room for its journal and for files
Rate = Annotated[float, Meta(ge=0.1, le=1e6)]
Iops = Annotated[int, Meta(ge=1, le=10**8)]
Micros = Annotated[float, Meta(ge=0, le=1e6)]
Millis = Annotated[float, Meta(ge=0, le=1e4)]
Turns = Annotated[float, Meta(ge=1, le=1e6)]


class Device(Keys):
    """One emulated storage."""

    size_gb: Annotated[
        Size | None, Setting("size; null: an equal share of what is free beneath, at most 12 GB", unit="GB")
    ] = None
    read_mb_per_s: Annotated[Rate | None, Setting("speed of reading; null: not bounded", unit="MB/s")] = MISSING
    write_mb_per_s: Annotated[Rate | None, Setting("speed of writing; null: not bounded", unit="MB/s")] = MISSING
    read_iops: Annotated[Iops | None, Setting("reads per second; null: not bounded", unit="1/s")] = None
    write_iops: Annotated[Iops | None, Setting("writes per second; null: not bounded", unit="1/s")] = None
    path_us: Annotated[
        Micros,
        Setting("time of a request here without any model; its answer is sent so much earlier", unit="microseconds"),
    ] = 30.0


class Disk(Device):
    """A hard disk: one arm over turning platters.

    That of the paper's section IV has 4 TB; seeks are those of Western Digital's OEM specification of the Ultrastar DC
    HC310 of that size, 4.5.1 (2017).
    """

    read_mb_per_s: Annotated[Rate | None, Setting("speed of reading; null: not bounded", unit="MB/s")] = 163.00
    write_mb_per_s: Annotated[Rate | None, Setting("speed of writing; null: not bounded", unit="MB/s")] = 133.14
    seek_track_ms: Annotated[
        Millis, Setting("seek to the next track; to another it grows with the square root of the distance", unit="ms")
    ] = 0.23
    seek_average_ms: Annotated[Millis, Setting("seek between all pairs of tracks of the whole disk", unit="ms")] = 7.4
    rpm: Annotated[Turns, Setting("turns per minute; 7,200: 8.33 ms per turn, 1.36 MB per track", unit="1/min")] = (
        7200.0
    )
    capacity_gb: Annotated[Rate, Setting("size of the whole disk, at whose beginning size_gb lie", unit="GB")] = 4000.0
    queue: Annotated[
        int,
        Meta(ge=1, le=1024),
        Setting("commands of which the arm takes the one that it reaches first (NCQ)", unit="commands"),
    ] = 32
    cache_mb: Annotated[
        float,
        Meta(ge=1, le=1e4),
        Setting("part of the 64 MB of cache for writes, and for reads ahead of a sequential reader", unit="MB"),
    ] = 16.0  # an estimate of ours
    interface_mb_per_s: Annotated[Turns, Setting("speed of the bus; SATA has 6 Gbit/s", unit="MB/s")] = 550.0


class Flash(Device):
    """A solid-state drive: channels that work at once, one bus."""

    read_us: Annotated[
        Micros, Setting("time to read a page of flash, with that of the controller", unit="microseconds")
    ] = MISSING
    write_us: Annotated[Micros, Setting("time to write into the drive's cache", unit="microseconds")] = MISSING
    channels: Annotated[int, Meta(ge=1, le=256), Setting("requests that are worked on at once")] = MISSING


class Server(Device):
    """A parallel file system: a metadata server, and storage targets that have disks.

    MB/s are those of the client.
    """

    read_mb_per_s: Annotated[Rate | None, Setting("speed of reading; null: not bounded", unit="MB/s")] = 1968.618
    write_mb_per_s: Annotated[Rate | None, Setting("speed of writing; null: not bounded", unit="MB/s")] = 991.914
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
    read_ahead_mb: Annotated[Millis, Setting("data read ahead of a file that is read on", unit="MB")] = 64.0  # the same


class Node(Keys):
    """The file system that all emulated nodes read, and the link of each of them."""

    size_gb: Annotated[
        Size | None, Setting("size; null: an equal share of what is free beneath, at most 12 GB", unit="GB")
    ] = None
    read_mb_per_s: Annotated[
        Rate | None,
        Setting("speed of a node's link; NERSC's nodes read a file so fast that was not in memory (2018)", unit="MB/s"),
    ] = 185.0


class Testbed(Keys):
    """Emulated storages on one disk."""

    __test__ = False  # no class of tests, whatever pytest makes of its name

    storages: Annotated[
        list[str] | None,
        Setting(
            "storages to make; others that are up stay as they are; null: all four, and with nodes or s3 none",
        ),
    ] = None
    model: Annotated[
        Literal["auto", "physical", "rates"],
        Setting(
            "what a storage is like; rates: MB/s alone, by the kernel's throttle; physical: latency, seeks and queues,"
            " too; auto: physical if FUSE and a C compiler are there, else rates"
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
    node: Node = field(default_factory=Node)
    s3: Annotated[bool, Setting("whether an object store is made, too: a real Ceph gateway (docs/s3.md)")] = False
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
