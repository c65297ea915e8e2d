"""Count the bytes that go to and from the storage of a path, by its disks or its network client (Lustre, NFS)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.system import lustre
from jobs.system.device import Mount, devices_behind, devices_of_every_byte, mount_of, unescape

Traffic = Callable[[], tuple[int, int]]  # returns the bytes read and the bytes written

_NFS = ("nfs", "nfs4")
# Older versions use the first folder, newer ones the second, in debugfs, which only root may read.
_LLITE = (Path("/proc/fs/lustre/llite"), Path("/sys/kernel/debug/lustre/llite"))
_MOUNTSTATS = Path("/proc/self/mountstats")
_SERVER_READ, _SERVER_WRITE = 4, 5  # fields of the line "bytes:", include/linux/nfs_iostat.h


@dataclass(frozen=True)
class Lustre:
    """A Lustre file system as this node uses it, with all of its mounts together."""

    fsname: str

    @property
    def name(self) -> str:
        """Return the name of its folder with statistics."""
        return f"llite/{self.fsname}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that programs of this node have read and written since the mount, including cached reads.

        Raises OSError if there are no statistics, or this user may not read them.
        """
        texts = [file.read_text(encoding="ascii") for file in self._files()]
        return sum(_sum_of_counter(text, "read_bytes") for text in texts), sum(
            _sum_of_counter(text, "write_bytes") for text in texts
        )

    def _files(self) -> list[Path]:
        """Return the files ``<fsname>-<address of the superblock>/stats``, one per mount."""
        for root in _LLITE:
            statistics = [file for file in root.glob("*/stats") if file.parent.name.rpartition("-")[0] == self.fsname]
            if statistics:
                return statistics
        with os.scandir(_LLITE[-1]):  # raises the permission error that glob ignores
            raise FileNotFoundError(f"{_LLITE[-1]} has no {self.fsname}-*")


@dataclass(frozen=True)
class Nfs:
    """One NFS mount; mounts of the same export may share their counts (nfs(5), ``sharecache``)."""

    point: str

    @property
    def name(self) -> str:
        """Return its mount point."""
        return f"nfs{self.point}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes read from and written to the server since the mount, without cached reads.

        Raises OSError if the kernel does not show them, or the mount has gone.
        """
        text = _MOUNTSTATS.read_bytes().decode("utf-8", errors="surrogateescape")
        counts = [int(field) for field in _bytes_line(text, self.point).split()]
        return counts[_SERVER_READ], counts[_SERVER_WRITE]


def network_client(mount: Mount) -> Lustre | Nfs | None:
    """Return the client whose statistics count the bytes of `mount`; None for file systems of other types."""
    if mount.fstype == lustre.FSTYPE:
        # <server>[:<server that takes over>]:/<fsname>[/<folder>], mount.lustre(8)
        return Lustre(mount.source.partition(":/")[2].partition("/")[0])
    return Nfs(mount.point) if mount.fstype in _NFS else None


def traffic_counters(path: Path) -> dict[str, Traffic]:
    """Return the counters of the bytes read from and written to the storage of a path, by name, nearest first.

    The result is empty if nothing counts them, for example for a file system in memory.
    """
    client = network_client(mount_of(path))
    counters: dict[str, Traffic] = {f"dsk/{device.name}": device.traffic for device in devices_behind(path)}
    return counters | ({client.name: client.traffic} if client else {})


class WrittenBytes:
    """The bytes that all processes write to the storage of a folder, from now until `settle`.

    `source` is the name of the counter; None if there is none, or if `folder` is None. `below` has the names of
    counters that count the same bytes again, as the counter of the disk with a loop device's file.
    """

    def __init__(self, folder: Path | None) -> None:
        all_counters = traffic_counters(folder) if folder else {}
        counters: list[tuple[str | None, Traffic | None]] = [*all_counters.items(), (None, None)]
        self.source, self._read = counters[0]
        self.below = (
            [f"dsk/{device.name}" for device in devices_of_every_byte(folder)[1:]] if folder and all_counters else []
        )
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
    """Return the total of a counter of ``llite/*/stats``; 0 for an unused counter, which has no line.

    A line is ``name count samples [unit] min max sum``; newer versions append the sum of squares.
    """
    match = re.search(rf"^{counter} +\d+ samples \[bytes\] \d+ \d+ (\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _bytes_line(text: str, point: str) -> str:
    """Return the text after ``bytes:`` in the section of a mount point; the last section is valid."""
    sections = re.split(r"^device ", text, flags=re.MULTILINE)
    for section in reversed(sections):
        head, _, body = section.partition("\n")
        mount_point = head.partition(" mounted on ")[2].partition(" with fstype ")[0]
        match = re.search(r"^\s*bytes:\s*(.+)$", body, re.MULTILINE)
        if unescape(mount_point) == point and match:
            return match.group(1)
    raise FileNotFoundError(f"{_MOUNTSTATS} has no bytes of {point}")
