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
_SECTOR_BYTES = 512  # the unit of /sys/block/*/stat, whatever the device's own sector size
_BEGINNING = 1 << 14  # bytes; of what is read so only /proc/stat may be longer, and its first line is what counts


@dataclass(frozen=True)
class Mount:
    """A line of ``/proc/self/mountinfo``: mount point, source, type and options."""

    point: str
    source: str
    fstype: str
    options: str
    superblock: str = field(default="", compare=False)  # options of the file system itself, at every place it is at


class Use(NamedTuple):
    """The requests of everybody to a device since boot, and their time."""

    reads: int  # requests, after the kernel has merged neighbouring ones
    read_bytes: int
    writes: int  # discards included
    written_bytes: int
    flushes: int
    busy_s: float  # with a request in flight, in ticks of the kernel: short ones of a seldom used device count too long
    waited_s: float  # the time of each request, added up
    flush_s: float  # in which a flush was in flight, which `busy_s` has not


@dataclass(frozen=True)
class Device:
    """A whole block device (never a partition), found under ``/sys/block``."""

    name: str

    def use(self) -> Use:
        """Return the requests of everybody to the device since boot (Documentation/block/stat.rst)."""
        fields = [int(field) for field in read_kernel(self._statistics).split()]
        reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, busy_ms, _ = fields[:11]
        discards, _, _, discard_ms, flushes, flush_ms = [*fields[11:17], *[0] * 6][:6]  # since Linux 4.18 and 5.5
        return Use(
            reads, read_sectors * _SECTOR_BYTES, writes + discards, write_sectors * _SECTOR_BYTES, flushes,
            busy_ms / 1e3, (read_ms + write_ms + discard_ms) / 1e3, flush_ms / 1e3,
        )  # fmt: skip

    def traffic(self) -> tuple[int, int]:
        """Return the bytes read from and written to the device since boot, by everybody."""
        use = self.use()
        return use.read_bytes, use.written_bytes

    @property
    def number(self) -> str:
        """Return major and minor number, as ``8:16``."""
        return _first_line(Path("/sys/block", self.name, "dev"))

    @cached_property
    def _statistics(self) -> str:
        """Return the file's path; to put it together costs more than to read it."""
        return str(Path("/sys/block", self.name, "stat"))

    @property
    def logical_block_bytes(self) -> int:
        """Return the least bytes of a read or write; a page if sysfs does not tell."""
        return int(_first_line(Path("/sys/block", self.name, "queue/logical_block_size")) or _PAGE_BYTES)

    @property
    def request_bytes(self) -> int:
        """Return the most bytes of one request; infinite if sysfs does not tell."""
        return int(_first_line(Path("/sys/block", self.name, "queue/max_sectors_kb")) or 1 << 50) << 10

    def facts(self) -> dict[str, str | bool]:
        """Return model and kind of the device, as sysfs has them; else ``unknown``."""
        queue = Path("/sys/block", self.name, "queue")
        rotational = _first_line(queue / "rotational")
        return {
            "name": self.name,
            "model": _first_line(Path("/sys/block", self.name, "device/model")) or UNKNOWN,
            "rotational": rotational == "1" if rotational else UNKNOWN,
        }


@dataclass(frozen=True)
class _Several(Device):
    """Devices that are counted as one."""

    devices: tuple[Device, ...] = ()

    def use(self) -> Use:
        """Return the requests to all of them."""
        return Use(*map(sum, zip(*(each.use() for each in self.devices), strict=True)))

    @property
    def logical_block_bytes(self) -> int:
        """Return the least of all."""
        return min(each.logical_block_bytes for each in self.devices)

    @property
    def request_bytes(self) -> int:
        """Return the most of all."""
        return max(each.request_bytes for each in self.devices)


def combine_devices(devices: Sequence[Device | None]) -> Device | None:
    """Return the devices as one whose traffic is the sum, each counted once; None if one is missing."""
    distinct = dict.fromkeys(each for each in devices if each)
    if None in devices or len(distinct) < 2:  # noqa: PLR2004
        return None if None in devices else next(iter(distinct), None)
    return _Several("+".join(each.name for each in distinct), tuple(distinct))


def mounts() -> list[Mount]:
    """Return the mounts, in the order of the kernel; empty if it does not tell them."""
    try:
        text = _MOUNTINFO.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        text = ""
    return [_parse_mount(line) for line in text.split("\n") if line]  # other line ends may be part of a name


def mount_of(path: Path) -> Mount:
    """Return the mount that holds `path`; every field is ``unknown`` if the kernel does not tell.

    A mount point may be mounted over: the last line that matches is the one in force (proc(5)).
    """
    target = os.path.realpath(path)
    holding = [m for m in mounts() if os.path.commonpath([m.point, target]) == m.point]
    return max(reversed(holding), key=lambda m: len(m.point), default=Mount(*[UNKNOWN] * 5))


def filesystem_of(path: Path) -> dict[str, str]:
    """Return what identifies the file system that holds `path`: the same from run to run, another for another one.

    Returns ``source``, ``fstype`` and ``options`` of its mount, ``fsid`` (statvfs(3), made of the UUID by ext4, btrfs
    and others; 0 where there is none) and ``device``, major and minor number, empty for a file system without a device
    of its own: there the number follows from the order of mounting.
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
    """Return the whole block device that is `path` or behind it; None for network, memory and layered file systems."""
    status = path.stat()
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    if os.major(number) == 0:  # no device of its own (btrfs, overlay, NFS, tmpfs): a local source may still be one
        source = Path(mount_of(path).source)
        if not source.is_block_device():
            return None
        number = source.stat().st_rdev
    return _device_by_number(number)


def devices_behind(path: Path) -> list[Device]:
    """Return the whole devices that hold `path`, each once: that of `device_of`, then those that it is made of.

    A loop device lies on the device of its file, device-mapper and RAID on their members (sysfs ``slaves``). Empty
    where there is no device. What cannot be followed further (the file is in another mount namespace) ends there.
    """
    top = device_of(path)
    devices: list[Device] = []
    waiting = [top] if top else []
    while waiting:
        device = waiting.pop(0)
        if device not in devices:  # two members on one disk; or the file's path means something else here than there
            devices.append(device)
            waiting += _devices_below(device)
    return devices


def lowest_behind(path: Path) -> Device | None:
    """Return the devices below that of `path` that lie on no other, as one; None if none is below."""
    return combine_devices([device for device in devices_behind(path)[1:] if not _devices_below(device)])


def devices_of_every_byte(path: Path) -> list[Device]:
    """Return the `devices_behind` that every byte written to `path` goes through, down to a device of several."""
    devices: list[Device] = []
    below = [device] if (device := device_of(path)) else []
    while len(below) == 1 and below[0] not in devices:
        devices += below
        below = _devices_below(devices[-1])
    return devices


def _devices_below(device: Device) -> list[Device]:
    """Return the whole devices that `device` is made of, in the order of their names."""
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
    """Return the file, or device, that a loop device serves; None for another device.

    Where the file has been deleted since, the name ends in `` (deleted)``.
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
    """Return the device, or of a partition the disk it is on, whose folder in sysfs `node` leads to."""
    folder = node.resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    return Device(whole.name) if (Path("/sys/block") / whole.name / "stat").exists() else None


def _parse_mount(line: str) -> Mount:
    left, _, right = line.partition(" - ")
    point, options = left.split(" ")[4:6]
    fstype, source, superblock, *_ = *right.split(" "), ""
    return Mount(unescape(point), unescape(source), fstype, options, superblock)


def read_kernel(path: str) -> str:
    """Return the first 16 KiB of a file of ``/proc`` or ``/sys``, three times faster than `pathlib` does."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _BEGINNING).decode("ascii")
    finally:
        os.close(fd)


def unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo and mountstats (space, tab, newline, backslash)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0].strip()
    except OSError:
        return ""
