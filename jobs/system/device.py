"""Find the mount and the block devices behind a path, and read their counters."""

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
_BEGINNING = 1 << 14  # bytes; only /proc/stat may be longer, and only its first line is needed


@dataclass(frozen=True)
class Mount:
    """A line of ``/proc/self/mountinfo``: mount point, source, type and options."""

    point: str
    source: str
    fstype: str
    options: str
    superblock: str = field(default="", compare=False)  # options of the file system, the same for all of its mounts


class DeviceRequests(NamedTuple):
    """The requests of all processes to a device since boot, and their times."""

    reads: int  # number of requests, after the kernel has merged neighbours
    read_bytes: int
    writes: int  # includes discards
    written_bytes: int
    flushes: int
    busy_s: (
        float  # time with a request in flight; too long for a device with few short requests (the kernel counts ticks)
    )
    waited_s: float  # sum of the times of all requests
    flush_s: float  # time with a flush in flight; not part of `busy_s`


@dataclass(frozen=True)
class Device:
    """A whole block device (never a partition), found under ``/sys/block``."""

    name: str

    def use(self) -> DeviceRequests:
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
        use = self.use()
        return use.read_bytes, use.written_bytes

    @property
    def number(self) -> str:
        """Return the major and minor number, as ``8:16``."""
        return _first_line(Path("/sys/block", self.name, "dev"))

    @cached_property
    def _statistics(self) -> str:
        """Return the path of the statistics; it is cached, because making it takes longer than reading the file."""
        return str(Path("/sys/block", self.name, "stat"))

    @property
    def logical_block_bytes(self) -> int:
        """Return the smallest number of bytes of a read or write; one page if sysfs does not have it."""
        return int(_first_line(Path("/sys/block", self.name, "queue/logical_block_size")) or _PAGE_BYTES)

    @property
    def request_bytes(self) -> int:
        """Return the largest number of bytes of one request; 2^60 if sysfs does not have it."""
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
    """Devices that are counted as one."""

    devices: tuple[Device, ...] = ()

    def use(self) -> DeviceRequests:
        """Return the requests to all devices."""
        return DeviceRequests(*map(sum, zip(*(device.use() for device in self.devices), strict=True)))

    @property
    def logical_block_bytes(self) -> int:
        """Return the smallest value of all devices."""
        return min(device.logical_block_bytes for device in self.devices)

    @property
    def request_bytes(self) -> int:
        """Return the largest value of all devices."""
        return max(device.request_bytes for device in self.devices)


def combine_devices(devices: Sequence[Device | None]) -> Device | None:
    """Return distinct devices as one, with the sum of their traffic; None if one is missing."""
    distinct = dict.fromkeys(device for device in devices if device)
    if None in devices or len(distinct) < 2:  # noqa: PLR2004
        return None if None in devices else next(iter(distinct), None)
    return _Group("+".join(device.name for device in distinct), tuple(distinct))


def mounts() -> list[Mount]:
    """Return the mounts, in the order of the kernel; empty if they are unknown."""
    try:
        text = _MOUNTINFO.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        text = ""
    return [_parse_mount(line) for line in text.split("\n") if line]  # a name may have other line ends


def mount_of(path: Path) -> Mount:
    """Return the mount that holds `path`; all fields are ``unknown`` if the kernel does not show it.

    A mount point may be mounted over: the last matching line is valid (proc(5)).
    """
    target = os.path.realpath(path)
    matches = [m for m in mounts() if os.path.commonpath([m.point, target]) == m.point]
    return max(reversed(matches), key=lambda m: len(m.point), default=Mount(*[UNKNOWN] * 5))


def filesystem_of(path: Path) -> dict[str, str]:
    """Return the identity of the file system that holds `path`, which is the same in every run.

    It has ``source``, ``fstype`` and ``options`` of the mount; ``fsid`` (statvfs(3): from the UUID for ext4, btrfs and
    others; 0 if there is none); and ``device``, the major and minor number. The number is empty for a file system
    without a device of its own, where it depends on the order of mounts.
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
    """Return the whole block device at or below `path`; None for network, memory and layered file systems."""
    status = path.stat()
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    if os.major(number) == 0:  # no own number (btrfs, overlay, NFS, tmpfs): its source may be a device
        source = Path(mount_of(path).source)
        if not source.is_block_device():
            return None
        number = source.stat().st_rdev
    return _device_by_number(number)


def devices_behind(path: Path) -> list[Device]:
    """Return the distinct whole devices that hold `path`: that of `device_of`, then the devices that it consists of.

    A loop device lies on the device of its file; device-mapper and RAID lie on their members (sysfs ``slaves``). The
    list is empty without a device, and ends where the next one is unknown (a file in another mount namespace).
    """
    top = device_of(path)
    devices: list[Device] = []
    queue = [top] if top else []
    while queue:
        device = queue.pop(0)
        if (
            device not in devices
        ):  # else two members share a disk, or the path names another file in this mount namespace
            devices.append(device)
            queue += _devices_below(device)
    return devices


def lowest_behind(path: Path) -> Device | None:
    """Return the lowest devices below that of `path`, as one; None if there is none."""
    return combine_devices([device for device in devices_behind(path)[1:] if not _devices_below(device)])


def devices_of_every_byte(path: Path) -> list[Device]:
    """Return those `devices_behind` that get every byte written to `path`: down to a device with several members."""
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
    """Return the file or device that a loop device shows; None for another device.

    The name of a file that was deleted ends in `` (deleted)``.
    """
    file = _first_line(Path("/sys/block", device.name, "loop/backing_file"))
    return Path(file) if file else None


def reads_past_cache(device: Device) -> bool:
    """Return whether a loop device reads its file by direct I/O."""
    return _first_line(Path("/sys/block", device.name, "loop/dio")) == "1"


def _device_by_number(number: int) -> Device | None:
    """Return a device by its number; None if the kernel has no such block device."""
    node = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return _whole_device(node) if node.exists() else None


def _whole_device(node: Path) -> Device | None:
    """Return the whole device of a folder `node` in sysfs; for a partition its disk."""
    folder = node.resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    return Device(whole.name) if (Path("/sys/block") / whole.name / "stat").exists() else None


def _parse_mount(line: str) -> Mount:
    mount_fields, _, filesystem_fields = line.partition(" - ")
    point, options = mount_fields.split(" ")[4:6]
    fstype, source, superblock, *_ = *filesystem_fields.split(" "), ""
    return Mount(unescape(point), unescape(source), fstype, options, superblock)


def read_kernel(path: str) -> str:
    """Return the first 16 KiB of a file of ``/proc`` or ``/sys``; this is three times faster than `pathlib`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _BEGINNING).decode("ascii")
    finally:
        os.close(fd)


def unescape(text: str) -> str:
    """Return a text of mountinfo or mountstats without octal escapes (space, tab, newline, backslash)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0].strip()
    except OSError:
        return ""
