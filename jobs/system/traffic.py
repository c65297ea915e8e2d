"""Bytes that went to and from what holds a path: counted by disks, and by the clients of Lustre (``llite``) and NFS."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.system import lustre
from jobs.system.device import Mount, carriers, devices_behind, mount_of, unescape

Traffic = Callable[[], tuple[int, int]]  # bytes read and written, from and to

_NFS = ("nfs", "nfs4")
# Older versions have them in the first folder, newer ones in the second, where debugfs lets root alone in.
_LLITE = (Path("/proc/fs/lustre/llite"), Path("/sys/kernel/debug/lustre/llite"))
_MOUNTSTATS = Path("/proc/self/mountstats")
_SERVER_READ, _SERVER_WRITE = 4, 5  # of the line "bytes:", include/linux/nfs_iostat.h


@dataclass(frozen=True)
class Lustre:
    """A Lustre file system as this node uses it, in all of its mounts together."""

    fsname: str

    @property
    def name(self) -> str:
        """Name it as its folder of statistics does."""
        return f"llite/{self.fsname}"

    def traffic(self) -> tuple[int, int]:
        """Bytes that programs of this node read and wrote since the mount, what the client's cache answered included.

        Raises OSError: there are no statistics, or they are not for this user.
        """
        texts = [file.read_text(encoding="ascii") for file in self._files()]
        return sum(_sum(text, "read_bytes") for text in texts), sum(_sum(text, "write_bytes") for text in texts)

    def _files(self) -> list[Path]:
        """List ``<fsname>-<address of the superblock>/stats``, one for each mount."""
        for root in _LLITE:
            found = [file for file in root.glob("*/stats") if file.parent.name.rpartition("-")[0] == self.fsname]
            if found:
                return found
        with os.scandir(_LLITE[-1]):  # tells of the permission that glob passes over
            raise FileNotFoundError(f"{_LLITE[-1]} has no {self.fsname}-*")


@dataclass(frozen=True)
class Nfs:
    """One NFS mount; mounts of one export may share their counts (nfs(5), ``sharecache``)."""

    point: str

    @property
    def name(self) -> str:
        """Name it by its mount point."""
        return f"nfs{self.point}"

    def traffic(self) -> tuple[int, int]:
        """Bytes read from and written to the server since the mount; the client's cache is not in it.

        Raises OSError: the kernel does not tell, or the mount is gone.
        """
        text = _MOUNTSTATS.read_bytes().decode("utf-8", errors="surrogateescape")
        counts = [int(field) for field in _bytes_line(text, self.point).split()]
        return counts[_SERVER_READ], counts[_SERVER_WRITE]


def client_of(mount: Mount) -> Lustre | Nfs | None:
    """Return the client whose statistics tell of `mount`; None for file systems of other types."""
    if mount.fstype == lustre.FSTYPE:
        # <server>[:<server that takes over>]:/<fsname>[/<folder>], mount.lustre(8)
        return Lustre(mount.source.partition(":/")[2].partition("/")[0])
    return Nfs(mount.point) if mount.fstype in _NFS else None


def traffic_behind(path: Path) -> dict[str, Traffic]:
    """Return what counts the bytes read from and written to what holds a path, by name; the nearest to it first.

    Empty where nothing does: a file system in memory, say.
    """
    client = client_of(mount_of(path))
    counters: dict[str, Traffic] = {f"dsk/{device.name}": device.traffic for device in devices_behind(path)}
    return counters | ({client.name: client.traffic} if client else {})


class Written:
    """The bytes that are written, by everybody, to what holds a folder, from now until `settle`.

    `source`: name of the counter; None where there is none, or nothing is seen from here (`folder` is None). `below`:
    the names of counters in which the same bytes are once more, as that of the disk with a loop device's file.
    """

    def __init__(self, folder: Path | None) -> None:
        behind = traffic_behind(folder) if folder else {}
        counters: list[tuple[str | None, Traffic | None]] = [*behind.items(), (None, None)]
        self.source, self._read = counters[0]
        self.below = [f"dsk/{each.name}" for each in carriers(folder)[1:]] if folder and behind else []
        self._before = self._count()
        self._after: int | None = None

    def settle(self) -> None:
        """Count no further."""
        self._after = self._count()

    @property
    def bytes(self) -> int | None:
        """What was counted; None where it cannot be read."""
        return None if self._before is None or self._after is None else self._after - self._before

    def _count(self) -> int | None:
        with suppress(OSError, ValueError, LookupError):
            return self._read()[1] if self._read else None
        return None


def _sum(text: str, counter: str) -> int:
    """Return the total of a counter of ``llite/*/stats``; what was never used has no line.

    A line is ``name count samples [unit] min max sum``; newer versions put the sum of squares behind it.
    """
    match = re.search(rf"^{counter} +\d+ samples \[bytes\] \d+ \d+ (\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _bytes_line(text: str, point: str) -> str:
    """Return what stands behind ``bytes:`` in the section of a mount point; mounted over, the last one is in force."""
    sections = re.split(r"^device ", text, flags=re.MULTILINE)
    for section in reversed(sections):
        head, _, body = section.partition("\n")
        place = head.partition(" mounted on ")[2].partition(" with fstype ")[0]
        match = re.search(r"^\s*bytes:\s*(.+)$", body, re.MULTILINE)
        if unescape(place) == point and match:
            return match.group(1)
    raise FileNotFoundError(f"{_MOUNTSTATS} has no bytes of {point}")
