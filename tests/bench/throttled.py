"""A storage of a known speed: a file system on a loop device that the kernel throttles (root, cgroup v1).

Buffered write-back is throttled too, for it is the device that is slow and not a process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_THROTTLE = Path("/sys/fs/cgroup/blkio")


@dataclass(frozen=True)
class Speed:
    """What a device does at most: MB/s read and written (Chien et al. 2018, Table I), and reads a second if asked."""

    read_mb_per_s: float
    write_mb_per_s: float
    read_iops: int | None = None

    def limits(self) -> dict[str, int]:
        """Name the files of the cgroup and what each gets."""
        limits = {"read_bps": round(self.read_mb_per_s * 1e6), "write_bps": round(self.write_mb_per_s * 1e6)}
        return limits | ({"read_iops": self.read_iops} if self.read_iops else {})


HDD = Speed(163.00, 133.14)
SSD = Speed(280.55, 195.05)
OPTANE = Speed(1603.06, 511.78)


@contextlib.contextmanager
def throttled(place: Path, speed: Speed, size_gb: float = 2.0) -> Iterator[Path]:
    """Make a storage under `place` (a new folder) and take it away at the end; yields where it is mounted."""
    place.mkdir(parents=True)
    image, mounted = place / "image", place / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, round(size_gb * 1e9))  # a device does not look for memory as it writes
    with contextlib.ExitStack() as undo:
        loop = _run("losetup", "--find", "--show", str(image))
        undo.callback(_run, "losetup", "--detach", loop)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", loop)
        _run("mount", loop, str(mounted))
        undo.callback(_run, "umount", str(mounted))
        number = Path("/sys/block", Path(loop).name, "dev").read_text(encoding="ascii").strip()
        for kind, limit in speed.limits().items():
            _set(kind, number, limit)
            undo.callback(_set, kind, number, 0)
        yield mounted
    image.unlink()
    mounted.rmdir()
    place.rmdir()


def _set(kind: str, number: str, limit: int) -> None:
    (_THROTTLE / f"blkio.throttle.{kind}_device").write_text(f"{number} {limit}", encoding="ascii")


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
