"""Read the limits that control groups set for this process: processor quota, memory, reads and writes.

A process in a container or a Slurm job with a processor quota of 0.2 sees all cores, also with `os.sched_getaffinity`,
but gets only a fifth of one core. Version 2 of control groups has the quota and the throttled time in ``cpu.max`` and
``cpu.stat`` (Documentation/admin-guide/cgroup-v2.rst). Version 1 has ``cpu.cfs_quota_us``, ``cpu.cfs_period_us`` and
``cpu.stat`` (Documentation/scheduler/sched-bwc.rst). The quotas of all parent groups limit a process, too.

In version 2, ``io.max`` of the own group and of every parent group limits reads and writes (cgroup-v2.rst, IO Interface
Files). In version 1, only ``blkio.throttle.*_device`` of the own group limits reads and writes, because the limit of a
parent group has no effect on its child groups (Documentation/admin-guide/cgroup-v1/blkio-controller.rst, Hierarchical
Cgroups).
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
    """How often and for how long the processor quota of a control group has stopped threads, since the group exists."""

    periods: int  # number of periods in which the quota was used up
    seconds: float  # waiting time of runnable threads, summed over the processors


def quota_cores(proc: Path = PROC) -> float | None:
    """Return the smallest processor quota of this process's control groups, in cores, or None without a quota."""
    return min(
        (cores for group in control_groups("cpu", proc) if (cores := _quota_of_group(group)) is not None), default=None
    )


def memory_limit_bytes(proc: Path = PROC) -> int | None:
    """Return the smallest memory limit of this process's control groups in bytes, or None without a limit.

    In version 1, a group without a limit has the value 8 EiB.
    """
    words = [read_lines(group / name) for group in control_groups("memory", proc) for name in _MEMORY_LIMITS]
    limits = [int(line) for line, *_ in filter(None, words) if line.isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return the bytes of memory that are still available, including the page cache, or None if unknown.

    For the machine, this is ``MemAvailable`` (proc(5)). For a control group, this is the limit minus the memory in use.
    The smallest value is returned.
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
    """Return the throttled time of this process's control groups, or None if no group has a quota.

    If several nested groups have quotas, the longest time is returned, because a group also waits while its parent
    group waits.
    """
    throttled = [
        group_time
        for group in control_groups("cpu", proc)
        if _quota_of_group(group) is not None and (group_time := _throttled_of_group(group))
    ]
    return max(throttled, key=lambda group_time: group_time.seconds, default=None)


def io_pressure_s(proc: Path = PROC) -> float | None:
    """Return the seconds during which at least one task has waited for I/O, or None if unknown (psi.rst).

    The number is from this process's own group of version 2, which also contains the child processes. If the own group
    does not have the number, the number is from the nearest parent group, or from the whole machine.
    """
    files = [*(group / "io.pressure" for group in control_groups("io", proc)), proc.parent / "pressure" / "io"]
    words: list[str] = next(filter(None, map(read_lines, files)), [])
    totals = [line.rpartition("total=")[2] for line in words if line.startswith("some ")]
    return int(totals[0]) / 1e6 if totals else None


def control_groups(controller: str, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of this process's control groups, from its own group up to the top of the mount.

    `controller` selects groups of version 1, which mounts each controller separately. Groups of version 2 are always
    included, because version 2 mounts all controllers together.
    """
    paths: dict[str, str] = {}
    for line in read_lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))  # version 2 has one empty name
    for line in read_lines(proc / "mountinfo"):
        mount_fields, _, filesystem_fields = line.partition(" - ")
        fstype, _, options = filesystem_fields.split(" ")
        name = "" if fstype == "cgroup2" else controller if controller in options.split(",") else None
        if fstype not in ("cgroup", "cgroup2") or name not in paths:
            continue
        root, point = (Path(unescape(word)) for word in mount_fields.split(" ")[3:5])
        own = Path(paths[name])
        # In a container, the mount may show only a part of the host's groups. So the path of the own group is relative
        # either to the root of the mount or to the root of the host.
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
    """Return the lines of a file, or an empty list if the file cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    # Not `splitlines`, because the name of a mount point may contain other line ends.
    return text.removesuffix("\n").split("\n") if text else []


_V1_KINDS = ("read_iops", "read_bps", "write_iops", "write_bps")
_V2_KINDS = {"riops": "read_iops", "rbps": "read_bps", "wiops": "write_iops", "wbps": "write_bps"}


class IoLimit(NamedTuple):
    """A limit on reads or writes that one control group sets for one device."""

    device: str
    kind: str  # ``read_bps`` or ``write_bps`` (bytes), ``read_iops`` or ``write_iops`` (requests)
    per_s: int  # largest number of bytes or requests per second
    group: str


def io_limits(devices: Sequence[Device], proc: Path = PROC) -> list[IoLimit]:
    """Return the limits on this process's reads from and writes to these devices."""
    names = {device.number: device.name for device in devices}
    groups = [*control_groups("blkio", proc)]
    own = next((group for group in groups if _is_version_1(group)), None)
    limits = [(own, *line) for line in _limits_of_version_1(own)] if own else []
    limits += [(group, *line) for group in groups for line in _limits_of_version_2(group)]
    return [IoLimit(names[number], kind, per_s, str(group)) for group, number, kind, per_s in limits if number in names]


def has_hidden_groups(proc: Path = PROC) -> bool:
    """Return whether this process may have parent groups that are not visible, as in a container.

    In version 2, every group except the machine's top group has a file ``cgroup.type``. So a visible top group with
    this file has hidden parent groups.
    """
    groups = [*control_groups("blkio", proc)]
    if not groups:
        return bool(read_lines(proc / "cgroup"))
    return not any(map(_is_version_1, groups)) and (groups[-1] / "cgroup.type").exists()


def _is_version_1(group: Path) -> bool:
    return (group / "blkio.throttle.read_bps_device").exists()


def _limits_of_version_1(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield the device number, the kind and the limit from each line, such as ``8:16 2097152``."""
    for kind in _V1_KINDS:
        for line in read_lines(group / f"blkio.throttle.{kind}_device"):
            number, limit = line.split()
            yield number, kind, int(limit)


def _limits_of_version_2(group: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each device number, kind and limit from lines like ``8:16 rbps=2097152 wbps=max riops=max wiops=120``."""
    for line in read_lines(group / "io.max"):
        number, *words = line.split()
        for kind, _, limit in (word.partition("=") for word in words):
            if kind in _V2_KINDS and limit.isdigit():
                yield number, _V2_KINDS[kind], int(limit)
