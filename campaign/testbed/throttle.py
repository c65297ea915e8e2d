"""Limit the speed of a block device with the kernel's control groups, version 1 (blkio) or 2 (io).

With version 1, one line for the root group limits a device for all processes, also for buffered write-back. With
version 2, the root group cannot have limits. So each group directly below the root group gets the limits. Then no
process must be moved into another group, which would need root. Each group can use the whole speed, but a campaign runs
in a single group. Buffered write-back counts for the group that wrote the data if the controllers io and memory are
both enabled (Documentation/admin-guide/cgroup-v2.rst, Writeback).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import EnvironmentFaultError
from campaign.testbed.steps import WriteStep
from jobs.system.device import unescape

if TYPE_CHECKING:
    Limits = Mapping[str, int]

KINDS = ("read_bps", "write_bps", "read_iops", "write_iops")
_V2_NAMES = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}
_MOUNTINFO = Path("/proc/self/mountinfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_IO, _MEMORY = "io", "memory"


@dataclass(frozen=True)
class CgroupV1Limits:
    """The present limits of each device in the root group of control groups version 1."""

    folder: Path
    limits: Mapping[str, Limits]
    doubts: tuple[str, ...] = ()

    def steps(self, number: str, limits: Limits) -> list[WriteStep]:
        """Return the steps that set exactly the limits `limits` for a device (``7:0``).

        Return no step if the device has these limits already.
        """
        present = self.limits.get(number, {})
        return [
            WriteStep(
                self.folder / f"blkio.throttle.{kind}_device", f"{number} {limits.get(kind, 0)}"
            )  # 0 removes the limit
            for kind in KINDS
            if limits.get(kind) != present.get(kind)
        ]


@dataclass(frozen=True)
class CgroupV2Limits:
    """The present limits of each device in each group below the root group of control groups version 2."""

    limits: Mapping[Path, Mapping[str, Limits]]  # the limits of each device, by the folder of the group
    # The file that enables the controller io for the groups; None if the controller is enabled already.
    switch: Path | None = None
    doubts: tuple[str, ...] = ()  # warnings about writes that the kernel will not limit
    hindrance: tuple[str, str] | None = None  # error message and cure if no device can be limited, else None

    def steps(self, number: str, limits: Limits) -> list[WriteStep]:
        """Return the steps that set exactly the limits `limits` for a device (``7:0``) in each group.

        Groups that have these limits already need no step.
        """
        if limits and self.hindrance:
            raise EnvironmentFaultError(*self.hindrance)
        line = " ".join(f"{word}={limits.get(kind, 'max')}" for word, kind in _V2_NAMES.items())
        writes = [
            WriteStep(group / "io.max", f"{number} {line}")
            for group, present in self.limits.items()
            if dict(present.get(number, {})) != dict(limits)
        ]
        return [WriteStep(self.switch, f"+{_IO}"), *writes] if writes and self.switch else writes


def find_throttle(mountinfo: Path = _MOUNTINFO, own_groups: Path = _OWN_GROUPS) -> CgroupV1Limits | CgroupV2Limits:
    """Return the present limits of all devices, in the version of control groups that this machine uses."""
    for fstype, point, options in _hierarchies(mountinfo):
        if fstype == "cgroup" and "blkio" in options:
            return _find_blkio(point)
    for fstype, point, _ in _hierarchies(mountinfo):
        if fstype == "cgroup2" and _IO in _words_of(point / "cgroup.controllers"):
            return _find_io(point, own_groups)
    fault = (
        "the kernel cannot limit block devices here: neither blkio of cgroup v1 nor the controller io of cgroup v2 is"
        " available"
    )
    cure = "mount one of these controllers, or make storages without speed limits: hdd.read_mb_per_s=null and so on"
    return CgroupV2Limits({}, hindrance=(fault, cure))


def _find_blkio(folder: Path) -> CgroupV1Limits:
    limits_of_devices: dict[str, dict[str, int]] = {}
    for kind in KINDS:
        for line in _kernel_lines(folder / f"blkio.throttle.{kind}_device"):
            number, _, limit = line.partition(" ")
            limits_of_devices.setdefault(number, {})[kind] = int(limit)
    return CgroupV1Limits(folder, limits_of_devices)


def _find_io(root: Path, own_groups: Path) -> CgroupV2Limits:
    if (root / "io.max").exists():  # in a container, the visible root is a normal group, which can have limits
        return CgroupV2Limits({root: _read_io_max(root)})
    in_root = (
        "this process is in the root group of cgroup v2, which cannot have limits",
        f"move your shell into a new group: mkdir {root}/work && echo $$ > {root}/work/cgroup.procs",
    )
    controllers = _words_of(root / "cgroup.subtree_control")
    groups = sorted(path.parent for path in root.glob("*/cgroup.procs"))
    doubts = () if _MEMORY in controllers else ("without the controller memory, buffered writes are not throttled",)
    switch = None if _IO in controllers else root / "cgroup.subtree_control"
    hindrance = in_root if "0::/" in _kernel_lines(own_groups) else None
    return CgroupV2Limits({group: _read_io_max(group) for group in groups}, switch, doubts, hindrance)


def _read_io_max(group: Path) -> dict[str, dict[str, int]]:
    """Return the limits of each device in the file ``io.max`` of a group.

    The file has lines such as ``7:0 rbps=163000000 wbps=max riops=max wiops=max``.
    """
    limits_of_devices = {}
    for line in _kernel_lines(group / "io.max"):
        number, *pairs = line.split()
        limits = (pair.partition("=") for pair in pairs)
        limits_of_devices[number] = {_V2_NAMES[word]: int(value) for word, _, value in limits if value != "max"}
    return limits_of_devices


def _hierarchies(mountinfo: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield the file system type, the mount point and the options of each mounted hierarchy of control groups."""
    for line in _kernel_lines(mountinfo):
        fields, _, type_and_options = line.partition(" - ")
        fstype, *_, options = type_and_options.split(" ")
        if fstype.startswith("cgroup"):
            yield fstype, Path(unescape(fields.split(" ")[4])), options.split(",")


def _words_of(path: Path) -> list[str]:
    return [word for line in _kernel_lines(path) for word in line.split()]


def _kernel_lines(path: Path) -> list[str]:
    """Return the lines of a file of the kernel, or an empty list if the file cannot be read."""
    try:
        return [line for line in path.read_text(encoding="utf-8", errors="surrogateescape").split("\n") if line]
    except OSError:
        return []
