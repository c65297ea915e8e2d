"""Count the bytes that go to and from the storage of a path: by its disks, or by its client (Lustre, NFS)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.system import lustre
from jobs.system.device import Mount, devices_behind, devices_of_every_byte, mount_of, unescape

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
        """Return the name of its folder of statistics."""
        return f"llite/{self.fsname}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that programs of this node read and wrote since the mount, cached reads included.

        Raises OSError: there are no statistics, or they are not for this user.
        """
        texts = [file.read_text(encoding="ascii") for file in self._files()]
        return sum(_sum_of_counter(text, "read_bytes") for text in texts), sum(
            _sum_of_counter(text, "write_bytes") for text in texts
        )

    def _files(self) -> list[Path]:
        """Return ``<fsname>-<address of the superblock>/stats``, one for each mount."""
        for root in _LLITE:
            statistics = [file for file in root.glob("*/stats") if file.parent.name.rpartition("-")[0] == self.fsname]
            if statistics:
                return statistics
        with os.scandir(_LLITE[-1]):  # tells of the permission that glob passes over
            raise FileNotFoundError(f"{_LLITE[-1]} has no {self.fsname}-*")


@dataclass(frozen=True)
class Nfs:
    """One NFS mount; mounts of one export may share their counts (nfs(5), ``sharecache``)."""

    point: str

    @property
    def name(self) -> str:
        """Return its mount point."""
        return f"nfs{self.point}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes read from and written to the server since the mount, without cached reads.

        Raises OSError: the kernel does not tell, or the mount is gone.
        """
        text = _MOUNTSTATS.read_bytes().decode("utf-8", errors="surrogateescape")
        counts = [int(field) for field in _bytes_line(text, self.point).split()]
        return counts[_SERVER_READ], counts[_SERVER_WRITE]


def network_client(mount: Mount) -> Lustre | Nfs | None:
    """Return the client whose statistics count `mount`; None for file systems of other types."""
    if mount.fstype == lustre.FSTYPE:
        # <server>[:<server that takes over>]:/<fsname>[/<folder>], mount.lustre(8)
        return Lustre(mount.source.partition(":/")[2].partition("/")[0])
    return Nfs(mount.point) if mount.fstype in _NFS else None


def traffic_counters(path: Path) -> dict[str, Traffic]:
    """Return the counters of the bytes read from and written to the storage of a path, by name, nearest first.

    Empty where nothing does: a file system in memory, say.
    """
    client = network_client(mount_of(path))
    counters: dict[str, Traffic] = {f"dsk/{device.name}": device.traffic for device in devices_behind(path)}
    return counters | ({client.name: client.traffic} if client else {})


class Written:
    """The bytes that everybody writes to the storage of a folder, from now until `settle`.

    `source`: name of the counter; None where there is none, or nothing is seen from here (`folder` is None). `below`:
    the names of counters in which the same bytes are once more, as that of the disk with a loop device's file.
    """

    def __init__(self, folder: Path | None) -> None:
        behind = traffic_counters(folder) if folder else {}
        counters: list[tuple[str | None, Traffic | None]] = [*behind.items(), (None, None)]
        self.source, self._read = counters[0]
        self.below = [f"dsk/{each.name}" for each in devices_of_every_byte(folder)[1:]] if folder and behind else []
        self._before = self._count()
        self._after: int | None = None

    def settle(self) -> None:
        """Stop counting."""
        self._after = self._count()

    @property
    def bytes(self) -> int | None:
        """Return the counted bytes; None if they cannot be read."""
        return None if self._before is None or self._after is None else self._after - self._before

    def _count(self) -> int | None:
        with suppress(OSError, ValueError, LookupError):
            return self._read()[1] if self._read else None
        return None


def _sum_of_counter(text: str, counter: str) -> int:
    """Return the total of a counter of ``llite/*/stats``; 0 for an unused one, which has no line.

    A line is ``name count samples [unit] min max sum``; newer versions put the sum of squares behind it.
    """
    match = re.search(rf"^{counter} +\d+ samples \[bytes\] \d+ \d+ (\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _bytes_line(text: str, point: str) -> str:
    """Return the text behind ``bytes:`` in the section of a mount point; the last section is in force."""
    sections = re.split(r"^device ", text, flags=re.MULTILINE)
    for section in reversed(sections):
        head, _, body = section.partition("\n")
        place = head.partition(" mounted on ")[2].partition(" with fstype ")[0]
        match = re.search(r"^\s*bytes:\s*(.+)$", body, re.MULTILINE)
        if unescape(place) == point and match:
            return match.group(1)
    raise FileNotFoundError(f"{_MOUNTSTATS} has no bytes of {point}")
