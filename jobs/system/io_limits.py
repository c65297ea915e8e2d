"""What control groups let this process read and write: limits on bytes and requests per second, by device.

Version 2: ``io.max`` of any group above (Documentation/admin-guide/cgroup-v2.rst, IO Interface Files). Version 1:
``blkio.throttle.*_device`` of the own group alone, for there a group's limit leaves those below it as they are
(Documentation/admin-guide/cgroup-v1/blkio-controller.rst, Hierarchical Cgroups).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from jobs.system import cgroup
from jobs.system.device import Device

_V1_KINDS = ("read_iops", "read_bps", "write_iops", "write_bps")
_V2_KINDS = {"riops": "read_iops", "rbps": "read_bps", "wiops": "write_iops", "wbps": "write_bps"}


class Limit(NamedTuple):
    """What one group lets through to one device."""

    device: str
    kind: str  # ``read_bps`` and ``write_bps`` of bytes, ``read_iops`` and ``write_iops`` of requests
    per_s: int
    group: str


def limits(devices: Sequence[Device], proc: Path = cgroup.PROC) -> list[Limit]:
    """Return the limits on one of the devices that act on this process."""
    names = {device.number: device.name for device in devices}
    groups = [*cgroup.groups("blkio", proc)]
    own = next((group for group in groups if _is_version_1(group)), None)
    found = [(own, *line) for line in _of_version_1(own)] if own else []
    found += [(group, *line) for group in groups for line in _of_version_2(group)]
    return [Limit(names[number], kind, per_s, str(group)) for group, number, kind, per_s in found if number in names]


def hidden(proc: Path = cgroup.PROC) -> bool:
    """Return whether there are groups above that cannot be seen from here and may have limits, as in a container.

    Of version 2 every group but the one at the top of the machine has ``cgroup.type``.
    """
    groups = [*cgroup.groups("blkio", proc)]
    if not groups:
        return bool(cgroup.lines(proc / "cgroup"))
    return not any(map(_is_version_1, groups)) and (groups[-1] / "cgroup.type").exists()


def _is_version_1(group: Path) -> bool:
    return (group / "blkio.throttle.read_bps_device").exists()


def _of_version_1(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield device number, kind and limit: ``8:16 2097152``."""
    for kind in _V1_KINDS:
        for line in cgroup.lines(group / f"blkio.throttle.{kind}_device"):
            number, limit = line.split()
            yield number, kind, int(limit)


def _of_version_2(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield device number, kind and limit: ``8:16 rbps=2097152 wbps=max riops=max wiops=120``."""
    for line in cgroup.lines(group / "io.max"):
        number, *words = line.split()
        for kind, _, limit in (word.partition("=") for word in words):
            if kind in _V2_KINDS and limit.isdigit():
                yield number, _V2_KINDS[kind], int(limit)
