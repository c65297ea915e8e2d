"""How the kernel bounds the speed of a block device: control groups, version 1 (blkio) or 2 (io).

Version 1 bounds the device for everybody, buffered write-back included, by a line for the root group. Version 2 has no
bounds for its root group: there each of the groups below it gets the line, so that a process need not be moved (for
which it would need root); every group has the whole speed, and one campaign runs in one. Write-back counts for the
group that wrote where the controllers io and memory are both on (Documentation/admin-guide/cgroup-v2.rst, Writeback).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError
from campaign.testbed.steps import Write
from jobs.system.device import unescape

if TYPE_CHECKING:
    Limits = Mapping[str, int]

KINDS = ("read_bps", "write_bps", "read_iops", "write_iops")
_V2_WORDS = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}
_MOUNTINFO = Path("/proc/self/mountinfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_IO, _MEMORY = "io", "memory"


@dataclass(frozen=True)
class Blkio:
    """Version 1, as it was found: the bounds of each device of the root group."""

    folder: Path
    found: Mapping[str, Limits]
    doubts: tuple[str, ...] = ()

    def steps(self, number: str, limits: Limits) -> list[Write]:
        """Return what gives a device (``7:0``) just these bounds; nothing where it has them."""
        now = self.found.get(number, {})
        return [
            Write(self.folder / f"blkio.throttle.{kind}_device", f"{number} {limits.get(kind, 0)}")  # 0 takes it away
            for kind in KINDS
            if limits.get(kind) != now.get(kind)
        ]


@dataclass(frozen=True)
class Io:
    """Version 2, as it was found."""

    found: Mapping[Path, Mapping[str, Limits]]  # the bounds of each device, by the group
    # The file that hands the controller io down to the groups, where that is still to be done.
    switch: Path | None = None
    doubts: tuple[str, ...] = ()  # what will not be bounded, in words
    hindrance: tuple[str, str] | None = None  # what is wrong, and its cure, where nothing can be bounded here

    def steps(self, number: str, limits: Limits) -> list[Write]:
        """Return what gives a device just these bounds, in each group that has others."""
        if limits and self.hindrance:
            raise EnvironmentFaultError(*self.hindrance)
        line = " ".join(f"{word}={limits.get(kind, 'max')}" for word, kind in _V2_WORDS.items())
        writes = [
            Write(group / "io.max", f"{number} {line}")
            for group, found in self.found.items()
            if dict(found.get(number, {})) != dict(limits)
        ]
        return [Write(self.switch, f"+{_IO}"), *writes] if writes and self.switch else writes


def find(mountinfo: Path = _MOUNTINFO, own_groups: Path = _OWN_GROUPS) -> Blkio | Io:
    """Find what bounds devices here, and which have bounds already."""
    for fstype, point, options in _hierarchies(mountinfo):
        if fstype == "cgroup" and "blkio" in options:
            return _blkio(point)
    for fstype, point, _ in _hierarchies(mountinfo):
        if fstype == "cgroup2" and _IO in _words(point / "cgroup.controllers"):
            return _io(point, own_groups)
    why = "the kernel bounds no block device here: neither cgroup v1 has blkio mounted nor cgroup v2 the controller io"
    return Io({}, hindrance=(why, "mount one of them, or do not throttle: hdd.read_mb_per_s=null and so on"))


def _blkio(folder: Path) -> Blkio:
    found: dict[str, dict[str, int]] = {}
    for kind in KINDS:
        for line in _lines(folder / f"blkio.throttle.{kind}_device"):
            number, _, limit = line.partition(" ")
            found.setdefault(number, {})[kind] = int(limit)
    return Blkio(folder, found)


def _io(root: Path, own_groups: Path) -> Io:
    if (root / "io.max").exists():  # a group that a container takes for its root
        return Io({root: _io_max(root)})
    in_root = (
        "this process is in the root group of cgroup v2, where nothing can be bounded",
        f"move your shell to a group of its own: mkdir {root}/work && echo $$ > {root}/work/cgroup.procs",
    )
    handed_down = _words(root / "cgroup.subtree_control")
    groups = sorted(path.parent for path in root.glob("*/cgroup.procs"))
    doubts = () if _MEMORY in handed_down else ("without the controller memory, buffered writes are not throttled",)
    switch = None if _IO in handed_down else root / "cgroup.subtree_control"
    hindrance = in_root if "0::/" in _lines(own_groups) else None
    return Io({group: _io_max(group) for group in groups}, switch, doubts, hindrance)


def _io_max(group: Path) -> dict[str, dict[str, int]]:
    """Read lines like ``7:0 rbps=163000000 wbps=max riops=max wiops=max``."""
    found = {}
    for line in _lines(group / "io.max"):
        number, *pairs = line.split()
        said = (pair.partition("=") for pair in pairs)
        found[number] = {_V2_WORDS[word]: int(value) for word, _, value in said if value != "max"}
    return found


def _hierarchies(mountinfo: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield type, mount point and options of the mounted hierarchies."""
    for line in _lines(mountinfo):
        left, _, right = line.partition(" - ")
        fstype, *_, options = right.split(" ")
        if fstype.startswith("cgroup"):
            yield fstype, Path(unescape(left.split(" ")[4])), options.split(",")


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    """Return the lines of a file of the kernel's; none where it is not there."""
    try:
        return [line for line in path.read_text(encoding="utf-8", errors="surrogateescape").split("\n") if line]
    except OSError:
        return []
