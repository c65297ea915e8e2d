"""Find the mount and the block devices behind a path, and read the counters of block devices."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

UNKNOWN = "unknown"
_MOUNTINFO = Path("/proc/self/mountinfo")
_PAGE_BYTES = 4096
_SECTOR_BYTES = 512  # the unit of /sys/block/*/stat for every device
_BEGINNING = 1 << 14  # bytes; only /proc/stat may be longer, and only the first line of /proc/stat is needed


@dataclass(frozen=True)
class Mount:
    """A line of ``/proc/self/mountinfo``: mount point, source, type and options."""

    point: str
    source: str
    fstype: str
    options: str
    superblock: str = field(default="", compare=False)  # options of the file system, equal for all of its mounts


class DeviceRequests(NamedTuple):
    """The requests of all processes to a device since boot, and the times of the requests."""

    reads: int  # number of read requests, after the kernel has merged neighbouring requests
    read_bytes: int
    writes: int  # number of write requests, including discards
    written_bytes: int
    flushes: int
    # Time with at least one request in flight. The time is too long for a device with few short requests, because the
    # kernel counts in ticks.
    busy_s: float
    waited_s: float  # sum of the durations of all requests
    flush_s: float  # time with a flush in flight; not part of `busy_s`


@dataclass(frozen=True)
class Device:
    """A whole block device (never a partition), found under ``/sys/block``."""

    name: str

    def read_counters(self) -> DeviceRequests:
        """Return the requests of all processes to the device since boot (Documentation/block/stat.rst)."""
        fields = [int(field) for field in read_kernel(self._statistics).split()]
        reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, busy_ms, _ = fields[:11]
        discards, _, _, discard_ms, flushes, flush_ms = [*fields[11:17], *[0] * 6][:6]  # since Linux 4.18 and 5.5
        return DeviceRequests(
            reads, read_sectors * _SECTOR_BYTES, writes + discards, write_sectors * _SECTOR_BYTES, flushes,
            busy_ms / 1e3, (read_ms + write_ms + discard_ms) / 1e3, flush_ms / 1e3,
        )  # fmt: skip

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that all processes have read from and written to the device since boot."""
        use = self.read_counters()
        return use.read_bytes, use.written_bytes

    @property
    def members(self) -> tuple[Device, ...]:
        """Return the devices of a group, or this device alone."""
        return (self,)

    @property
    def number(self) -> str:
        """Return the major and minor number, as ``8:16``."""
        return _first_line(Path("/sys/block", self.name, "dev"))

    @cached_property
    def _statistics(self) -> str:
        """Return the path of the statistics; cached, because `Path` takes longer than the read of the file."""
        return str(Path("/sys/block", self.name, "stat"))

    @property
    def logical_block_bytes(self) -> int:
        """Return the smallest size of a read or write in bytes, or the size of a page if sysfs does not have it."""
        return int(_first_line(Path("/sys/block", self.name, "queue/logical_block_size")) or _PAGE_BYTES)

    @property
    def request_bytes(self) -> int:
        """Return the largest size of a request in bytes, or 2^60 if sysfs does not have it."""
        return int(_first_line(Path("/sys/block", self.name, "queue/max_sectors_kb")) or 1 << 50) << 10

    def facts(self) -> dict[str, str | bool]:
        """Return the model and the kind of the device from sysfs; ``unknown`` for missing facts."""
        queue = Path("/sys/block", self.name, "queue")
        rotational = _first_line(queue / "rotational")
        return {
            "name": self.name,
            "model": _first_line(Path("/sys/block", self.name, "device/model")) or UNKNOWN,
            "rotational": rotational == "1" if rotational else UNKNOWN,
        }


@dataclass(frozen=True)
class _Group(Device):
    """Several devices that are treated as one device."""

    devices: tuple[Device, ...] = ()

    @property
    def members(self) -> tuple[Device, ...]:
        """Return the devices of the group."""
        return self.devices

    def read_counters(self) -> DeviceRequests:
        """Return the sum of the requests to all devices of the group."""
        return DeviceRequests(*map(sum, zip(*(device.read_counters() for device in self.devices), strict=True)))

    @property
    def logical_block_bytes(self) -> int:
        """Return the smallest logical block of all devices, in bytes."""
        return min(device.logical_block_bytes for device in self.devices)

    @property
    def request_bytes(self) -> int:
        """Return the largest request size of all devices, in bytes."""
        return max(device.request_bytes for device in self.devices)


def combine_devices(devices: Sequence[Device | None]) -> Device | None:
    """Combine devices into one device with the sum of their traffic; each distinct device counts once.

    Returns None if a device is None, or if there is no device.
    """
    distinct = dict.fromkeys(member for device in devices if device for member in device.members)
    if None in devices or len(distinct) < 2:  # noqa: PLR2004
        return None if None in devices else next(iter(distinct), None)
    return _Group("+".join(device.name for device in distinct), tuple(distinct))


def mounts() -> list[Mount]:
    """Return all mounts in the order of the kernel, or an empty list if the kernel does not show them."""
    try:
        text = _MOUNTINFO.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        text = ""
    # Not `splitlines`, because the name of a mount point may contain other line ends.
    return [_parse_mount(line) for line in text.split("\n") if line]


IN_MEMORY = ("tmpfs", "ramfs")
"""The types of file systems whose files are always in memory."""


def mount_of(path: Path) -> Mount:
    """Return the mount that contains `path`; all fields are ``unknown`` if the kernel does not show the mount.

    If several mounts have one mount point, the last mount hides the earlier mounts (proc(5)).
    """
    target = os.path.realpath(path)
    matches = [m for m in mounts() if os.path.commonpath([m.point, target]) == m.point]
    return max(reversed(matches), key=lambda m: len(m.point), default=Mount(*[UNKNOWN] * 5))


def filesystem_of(path: Path) -> dict[str, str]:
    """Return facts that identify the file system that contains `path`, and that are equal in every run.

    The facts are ``source``, ``fstype`` and ``options`` of the mount; ``fsid`` of statvfs(3), which comes from the UUID
    for ext4, btrfs and others, or is 0; and ``device``, the major and minor number. ``device`` is empty for a file
    system without a block device, because such a number depends on the order of mounts.
    """
    mount, number = mount_of(path), path.stat().st_dev
    return {
        "source": mount.source,
        "fstype": mount.fstype,
        "options": mount.options,
        "fsid": f"{os.statvfs(path).f_fsid:x}",
        "device": f"{os.major(number)}:{os.minor(number)}" if os.major(number) else "",
    }


def device_of(path: Path) -> Device | None:
    """Return the whole block device that `path` is, or that contains the file system of `path`.

    Returns None for network file systems, file systems in memory, and layered file systems.
    """
    status = path.stat()
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    if os.major(number) == 0:  # not the number of a device (btrfs, overlay, NFS, tmpfs), but the source may be a device
        source = Path(mount_of(path).source)
        if not source.is_block_device():
            return None
        number = source.stat().st_rdev
    return _device_by_number(number)


def devices_behind(path: Path) -> list[Device]:
    """Return the distinct whole devices that store `path`: first the device of `device_of`, then the devices below it.

    Below a loop device is the device of its file. Below a device-mapper or RAID device are its members (sysfs
    ``slaves``). The list is empty if `path` has no device. The list ends early if a lower device is unknown, because a
    file is in another mount namespace.
    """
    top = device_of(path)
    devices: list[Device] = []
    queue = [top] if top else []
    while queue:
        device = queue.pop(0)
        # A device comes twice if two members share a disk. In another mount namespace, the path of a loop device's file
        # may name another file here, which may even be on the loop device.
        if device not in devices:
            devices.append(device)
            queue += _devices_below(device)
    return devices


def lowest_behind(path: Path) -> Device | None:
    """Return the lowest devices below the device of `path`, combined into one device, or None if there are none."""
    return combine_devices([device for device in devices_behind(path)[1:] if not _devices_below(device)])


def devices_of_every_byte(path: Path) -> list[Device]:
    """Return the devices behind `path` that get every byte written to `path`.

    The list ends with the first device that has several members, because a member gets only a part of the bytes.
    """
    devices: list[Device] = []
    members = [device] if (device := device_of(path)) else []
    while len(members) == 1 and members[0] not in devices:
        devices += members
        members = _devices_below(devices[-1])
    return devices


def _devices_below(device: Device) -> list[Device]:
    """Return the whole devices that `device` consists of, sorted by name."""
    folder, backing = Path("/sys/block", device.name), backing_file(device)
    if backing:
        try:
            members = [_device_by_number(backing.stat().st_rdev) if backing.is_block_device() else device_of(backing)]
        except OSError:
            return []
    else:
        members = [_whole_device(member) for member in sorted((folder / "slaves").glob("*"))]
    return [member for member in members if member]


def backing_file(device: Device) -> Path | None:
    """Return the file or device that stores the bytes of a loop device, or None for a device that is no loop device.

    The kernel appends `` (deleted)`` to the name of a deleted file.
    """
    file = _first_line(Path("/sys/block", device.name, "loop/backing_file"))
    return Path(file) if file else None


def reads_past_cache(device: Device) -> bool:
    """Return whether a loop device reads its file with direct I/O, which bypasses the page cache of the file."""
    return _first_line(Path("/sys/block", device.name, "loop/dio")) == "1"


def _device_by_number(number: int) -> Device | None:
    """Return the whole device with a device number, or None if the kernel has no such block device."""
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return _whole_device(node) if node.exists() else None


def _whole_device(node: Path) -> Device | None:
    """Return the whole device that the sysfs folder `node` describes; for a partition, this is the partition's disk."""
    folder = node.resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    return Device(whole.name) if (Path("/sys/block") / whole.name / "stat").exists() else None


def _parse_mount(line: str) -> Mount:
    mount_fields, _, filesystem_fields = line.partition(" - ")
    point, options = mount_fields.split(" ")[4:6]
    fstype, source, superblock, *_ = *filesystem_fields.split(" "), ""
    return Mount(unescape(point), unescape(source), fstype, options, superblock)


def read_kernel(path: str) -> str:
    """Return the first 16 KiB of a file in ``/proc`` or ``/sys``, three times faster than `pathlib`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _BEGINNING).decode("ascii")
    finally:
        os.close(fd)


def unescape(text: str) -> str:
    """Replace the octal escapes of space, tab, newline and backslash in a text from mountinfo or mountstats."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0].strip()
    except OSError:
        return ""
