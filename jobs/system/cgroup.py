"""Read the limits that control groups set for this process: processor quota, memory, reads and writes.

A process in a container or job with a quota of 0.2 sees all cores (also by `os.sched_getaffinity`) and gets a fifth of
one. Version 2 has ``cpu.max`` and ``cpu.stat`` (Documentation/admin-guide/cgroup-v2.rst). Version 1 has
``cpu.cfs_quota_us``, ``cpu.cfs_period_us`` and ``cpu.stat`` (Documentation/scheduler/sched-bwc.rst). The quotas of all
parent groups count, too.

Reads and writes are limited in version 2 by ``io.max`` of any parent group (cgroup-v2.rst, IO Interface Files). In
version 1 only ``blkio.throttle.*_device`` of the own group counts, because a limit does not act on groups below it
(Documentation/admin-guide/cgroup-v1/blkio-controller.rst, Hierarchical Cgroups).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jobs.system.device import Device, unescape

PROC = Path("/proc/self")
_MEMORY_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_NO_LIMIT_BYTES = 1 << 62


@dataclass(frozen=True)
class ThrottledTime:
    """How often and for how long the groups of this process were throttled since they were made."""

    periods: int  # number of periods in which the quota was used up
    seconds: float  # waiting time of runnable threads, summed over the processors


def quota_cores(proc: Path = PROC) -> float | None:
    """Return the number of cores that the quotas allow: the smallest of all groups; None without a quota."""
    return min(
        (cores for group in control_groups("cpu", proc) if (cores := _quota_of_group(group)) is not None), default=None
    )


def memory_limit_bytes(proc: Path = PROC) -> int | None:
    """Return the smallest memory limit of this process's groups in bytes; None without a limit (8 EiB in version 1)."""
    words = [read_lines(group / name) for group in control_groups("memory", proc) for name in _MEMORY_LIMITS]
    limits = [int(line) for line, *_ in filter(None, words) if line.isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return the bytes of memory that are still available, including the page cache; None if unknown.

    It is the smallest of the machine's ``MemAvailable`` (proc(5)) and of each group's limit less the memory in use.
    """
    machine = [line.split()[1] for line in read_lines(proc.parent / "meminfo") if line.startswith("MemAvailable:")]
    amounts = [int(kib) * 1024 for kib in machine]
    for group in control_groups("memory", proc):
        words = [line for name in _MEMORY_LIMITS for line in read_lines(group / name)[:1]]
        limits = [int(word) for word in words if word.isdigit() and int(word) < _NO_LIMIT_BYTES]
        used = dict(line.split(" ", 1) for line in read_lines(group / "memory.stat") if " " in line)
        amounts += [limit - int(used.get("anon", used.get("total_rss", 0))) for limit in limits]
    return min(amounts, default=None)


def throttled_time(proc: Path = PROC) -> ThrottledTime | None:
    """Return how much this process's groups were throttled so far; None if no group has a quota.

    Of nested groups with quotas, the group with the longest time counts: a group waits while its parent group waits.
    above it does.
    """
    throttled = [
        group_time
        for group in control_groups("cpu", proc)
        if _quota_of_group(group) is not None and (group_time := _throttled_of_group(group))
    ]
    return max(throttled, key=lambda group_time: group_time.seconds, default=None)


def io_pressure_s(proc: Path = PROC) -> float | None:
    """Return the seconds in which some task has waited for I/O so far; None if unknown (psi.rst).

    They are those of this process's own group of version 2, which has its children, else of a parent or the machine.
    """
    files = [*(group / "io.pressure" for group in control_groups("io", proc)), proc.parent / "pressure" / "io"]
    words: list[str] = next(filter(None, map(read_lines, files)), [])
    totals = [line.rpartition("total=")[2] for line in words if line.startswith("some ")]
    return int(totals[0]) / 1e6 if totals else None


def control_groups(controller: str, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of this process's groups, from its own group up to the top of the mount.

    `controller` is the name by which version 1 mounts it. Groups of version 2, which has no such names, are included.
    """
    paths: dict[str, str] = {}
    for line in read_lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))  # in version 2 the only name is empty
    for line in read_lines(proc / "mountinfo"):
        mount_fields, _, filesystem_fields = line.partition(" - ")
        fstype, _, options = filesystem_fields.split(" ")
        name = "" if fstype == "cgroup2" else controller if controller in options.split(",") else None
        if fstype not in ("cgroup", "cgroup2") or name not in paths:
            continue
        root, point = (Path(unescape(word)) for word in mount_fields.split(" ")[3:5])
        own = Path(paths[name])
        # A container's mount begins below the host's root; the path is relative to one of the two.
        relative = own.relative_to(root) if own.is_relative_to(root) else own.relative_to("/")
        yield from (point / parent for parent in (relative, *relative.parents))


def _quota_of_group(group: Path) -> float | None:
    with suppress(OSError, ValueError):
        limit, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    with suppress(OSError, ValueError):
        limit_us = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        return None if limit_us < 0 else limit_us / int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))
    return None


def _throttled_of_group(group: Path) -> ThrottledTime | None:
    values = dict(line.split(" ", 1) for line in read_lines(group / "cpu.stat") if " " in line)
    with suppress(KeyError, ValueError):
        seconds = (
            int(values["throttled_usec"]) / 1e6 if "throttled_usec" in values else int(values["throttled_time"]) / 1e9
        )
        return ThrottledTime(int(values["nr_throttled"]), seconds)
    return None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; empty if it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n") if text else []  # a mount point's name may have other line ends


_V1_KINDS = ("read_iops", "read_bps", "write_iops", "write_bps")
_V2_KINDS = {"riops": "read_iops", "rbps": "read_bps", "wiops": "write_iops", "wbps": "write_bps"}


class IoLimit(NamedTuple):
    """A limit that one group sets for one device."""

    device: str
    kind: str  # ``read_bps`` and ``write_bps`` of bytes, ``read_iops`` and ``write_iops`` of requests
    per_s: int
    group: str


def io_limits(devices: Sequence[Device], proc: Path = PROC) -> list[IoLimit]:
    """Return the limits on these devices that act on this process."""
    names = {device.number: device.name for device in devices}
    groups = [*control_groups("blkio", proc)]
    own = next((group for group in groups if _is_version_1(group)), None)
    limits = [(own, *line) for line in _limits_of_version_1(own)] if own else []
    limits += [(group, *line) for group in groups for line in _limits_of_version_2(group)]
    return [IoLimit(names[number], kind, per_s, str(group)) for group, number, kind, per_s in limits if number in names]


def has_hidden_groups(proc: Path = PROC) -> bool:
    """Return whether there may be parent groups that this process cannot see, as in a container.

    In version 2 every group except the machine's top group has ``cgroup.type``.
    """
    groups = [*control_groups("blkio", proc)]
    if not groups:
        return bool(read_lines(proc / "cgroup"))
    return not any(map(_is_version_1, groups)) and (groups[-1] / "cgroup.type").exists()


def _is_version_1(group: Path) -> bool:
    return (group / "blkio.throttle.read_bps_device").exists()


def _limits_of_version_1(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield device number, kind and limit: ``8:16 2097152``."""
    for kind in _V1_KINDS:
        for line in read_lines(group / f"blkio.throttle.{kind}_device"):
            number, limit = line.split()
            yield number, kind, int(limit)


def _limits_of_version_2(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield device number, kind and limit: ``8:16 rbps=2097152 wbps=max riops=max wiops=120``."""
    for line in read_lines(group / "io.max"):
        number, *words = line.split()
        for kind, _, limit in (word.partition("=") for word in words):
            if kind in _V2_KINDS and limit.isdigit():
                yield number, _V2_KINDS[kind], int(limit)
