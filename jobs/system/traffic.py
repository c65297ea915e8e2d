"""Count the bytes read from and written to the storage of a path, with counters of disks or of Lustre and NFS."""

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
# Older versions of Lustre have the statistics in the first folder. Newer versions have the statistics in the second
# folder, in debugfs, which only root may read.
_LLITE = (Path("/proc/fs/lustre/llite"), Path("/sys/kernel/debug/lustre/llite"))
_MOUNTSTATS = Path("/proc/self/mountstats")
_SERVER_READ, _SERVER_WRITE = 4, 5  # indices of the fields in the line "bytes:", include/linux/nfs_iostat.h


@dataclass(frozen=True)
class Lustre:
    """The Lustre client of this node for one file system, with all mounts of the file system together."""

    fsname: str

    @property
    def name(self) -> str:
        """Return the name of this counter."""
        return f"llite/{self.fsname}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that programs on this node have read and written since the mount, including cached reads.

        Raises OSError if there are no statistics, or if this user may not read the statistics.
        """
        texts = [file.read_text(encoding="ascii") for file in self._files()]
        return sum(_sum_of_counter(text, "read_bytes") for text in texts), sum(
            _sum_of_counter(text, "write_bytes") for text in texts
        )

    def _files(self) -> list[Path]:
        """Return the statistics file ``<fsname>-<address of the superblock>/stats`` of each mount."""
        for root in _LLITE:
            statistics = [file for file in root.glob("*/stats") if file.parent.name.rpartition("-")[0] == self.fsname]
            if statistics:
                return statistics
        with os.scandir(_LLITE[-1]):  # raises PermissionError, which `glob` ignores
            raise FileNotFoundError(f"{_LLITE[-1]} has no {self.fsname}-*")


@dataclass(frozen=True)
class Nfs:
    """The NFS client of one mount; two mounts of one export may share their counters (nfs(5), ``sharecache``)."""

    point: str

    @property
    def name(self) -> str:
        """Return the name of this counter."""
        return f"nfs{self.point}"

    def traffic(self) -> tuple[int, int]:
        """Return the bytes read from and written to the server since the mount, without cached reads.

        Raises OSError if the kernel does not show the counters, or if the file system is not mounted any more.
        """
        text = _MOUNTSTATS.read_bytes().decode("utf-8", errors="surrogateescape")
        counts = [int(field) for field in _bytes_line(text, self.point).split()]
        return counts[_SERVER_READ], counts[_SERVER_WRITE]


def network_client(mount: Mount) -> Lustre | Nfs | None:
    """Return the Lustre or NFS client that counts the bytes of `mount`, or None for other file systems."""
    if mount.fstype == lustre.FSTYPE:
        # The source is <server>[:<failover server>]:/<fsname>[/<folder>], mount.lustre(8).
        return Lustre(mount.source.partition(":/")[2].partition("/")[0])
    return Nfs(mount.point) if mount.fstype in _NFS else None


def traffic_counters(path: Path) -> dict[str, Traffic]:
    """Return the counters of the bytes read from and written to the storage of a path, by name of the counter.

    The counter of the uppermost device comes first. The result is empty if there is no counter, for example for a file
    system in memory.
    """
    client = network_client(mount_of(path))
    counters: dict[str, Traffic] = {f"dsk/{device.name}": device.traffic for device in devices_behind(path)}
    return counters | ({client.name: client.traffic} if client else {})


class WrittenBytes:
    """A count of the bytes that all processes write to the storage of a folder.

    The count begins when this object is made, and ends with `stop`. `source` is the name of the counter, or None if
    there is no counter or no folder. `below` has the names of counters that count the bytes a second time, such as the
    counter of the disk that contains the file of a loop device.
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

    def stop(self) -> None:
        """Stop counting."""
        self._after = self._count()

    @property
    def bytes(self) -> int | None:
        """Return the counted bytes, or None if the counter cannot be read or the count has not ended."""
        return None if self._before is None or self._after is None else self._after - self._before

    def _count(self) -> int | None:
        with suppress(OSError, ValueError, LookupError):
            return self._read()[1] if self._read else None
        return None


def _sum_of_counter(text: str, counter: str) -> int:
    """Return the sum of a counter in the text of ``llite/*/stats``, or 0 for an unused counter, which has no line.

    A line is ``name count samples [unit] min max sum``. Newer versions append the sum of squares.
    """
    match = re.search(rf"^{counter} +\d+ samples \[bytes\] \d+ \d+ (\d+)", text, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _bytes_line(text: str, point: str) -> str:
    """Return the text after ``bytes:`` in the last section of a mount point, which hides earlier mounts."""
    sections = re.split(r"^device ", text, flags=re.MULTILINE)
    for section in reversed(sections):
        head, _, body = section.partition("\n")
        mount_point = head.partition(" mounted on ")[2].partition(" with fstype ")[0]
        match = re.search(r"^\s*bytes:\s*(.+)$", body, re.MULTILINE)
        if unescape(mount_point) == point and match:
            return match.group(1)
    raise FileNotFoundError(f"{_MOUNTSTATS} has no bytes of {point}")
