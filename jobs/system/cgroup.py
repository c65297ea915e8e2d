"""Read what control groups leave to this process: quota of processors, memory, limits on reads and writes.

A container or a job with a quota of 0.2 sees all cores and gets a fifth of one; `os.sched_getaffinity` does not tell.
Version 2 has ``cpu.max`` and ``cpu.stat`` (Documentation/admin-guide/cgroup-v2.rst), version 1 ``cpu.cfs_quota_us``,
``cpu.cfs_period_us`` and ``cpu.stat`` (Documentation/scheduler/sched-bwc.rst). Any group above counts too.

Of reads and writes, version 2 has ``io.max`` of any group above (Documentation/admin-guide/cgroup-v2.rst, IO Interface
Files), version 1 ``blkio.throttle.*_device`` of the own group alone, because there a group's limit does not act on
groups below it (Documentation/admin-guide/cgroup-v1/blkio-controller.rst, Hierarchical Cgroups).
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
class Throttled:
    """How often and for how long the groups of this process were held back since they were made."""

    periods: int  # periods in which the quota was used up
    seconds: float  # time that runnable threads had to wait for the next period, added up over the processors


def quota_cores(proc: Path = PROC) -> float | None:
    """Return how many cores the quotas of this process leave, the least of all groups above it; None for no quota."""
    return min(
        (cores for group in control_groups("cpu", proc) if (cores := _quota_of_group(group)) is not None), default=None
    )


def memory_limit_bytes(proc: Path = PROC) -> int | None:
    """Return the least memory limit of this process' groups in bytes; None for no limit (version 1 says 8 EiB)."""
    words = [read_lines(group / name) for group in control_groups("memory", proc) for name in _MEMORY_LIMITS]
    limits = [int(first) for first, *_ in filter(None, words) if first.isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return the bytes of memory that can still be had, page cache included; None if no source tells them.

    Of the machine ``MemAvailable`` (proc(5)); of a group with a limit what its processes do not hold.
    """
    machine = [line.split()[1] for line in read_lines(proc.parent / "meminfo") if line.startswith("MemAvailable:")]
    amounts = [int(kib) * 1024 for kib in machine]
    for group in control_groups("memory", proc):
        words = [first for name in _MEMORY_LIMITS for first in read_lines(group / name)[:1]]
        limits = [int(word) for word in words if word.isdigit() and int(word) < _NO_LIMIT_BYTES]
        held = dict(line.split(" ", 1) for line in read_lines(group / "memory.stat") if " " in line)
        amounts += [limit - int(held.get("anon", held.get("total_rss", 0))) for limit in limits]
    return min(amounts, default=None)


def throttled_time(proc: Path = PROC) -> Throttled | None:
    """Return how this process' groups were held back so far; None if no group has a quota.

    Of nested groups with quotas of their own the one that was held back longest counts: a group waits while the group
    above it does.
    """
    throttled = [
        each
        for group in control_groups("cpu", proc)
        if _quota_of_group(group) is not None and (each := _throttled_of_group(group))
    ]
    return max(throttled, key=lambda each: each.seconds, default=None)


def io_pressure_s(proc: Path = PROC) -> float | None:
    """Return for how long some task waited for I/O so far, in seconds; None where the kernel does not tell (psi.rst).

    Of this process' own group of version 2, which has what it starts, else of the groups above it and of the machine.
    """
    places = [*(group / "io.pressure" for group in control_groups("io", proc)), proc.parent / "pressure" / "io"]
    words: list[str] = next(filter(None, map(read_lines, places)), [])
    some = [line.rpartition("total=")[2] for line in words if line.startswith("some ")]
    return int(some[0]) / 1e6 if some else None


def control_groups(controller: str, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of the groups that this process is in, from its own up to the top of the mount.

    `controller` is the name by which version 1 mounts it; the groups of version 2, which has all in one, come too.
    """
    paths: dict[str, str] = {}
    for line in read_lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))  # of version 2 the one name is empty
    for line in read_lines(proc / "mountinfo"):
        left, _, right = line.partition(" - ")
        fstype, _, options = right.split(" ")
        name = "" if fstype == "cgroup2" else controller if controller in options.split(",") else None
        if fstype not in ("cgroup", "cgroup2") or name not in paths:
            continue
        root, point = (Path(unescape(word)) for word in left.split(" ")[3:5])
        own = Path(paths[name])
        # A container's mount begins below the host's root; the path is told from there or from the host.
        inside = own.relative_to(root) if own.is_relative_to(root) else own.relative_to("/")
        yield from (point / above for above in (inside, *inside.parents))


def _quota_of_group(group: Path) -> float | None:
    with suppress(OSError, ValueError):
        limit, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    with suppress(OSError, ValueError):
        limit_us = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        return None if limit_us < 0 else limit_us / int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))
    return None


def _throttled_of_group(group: Path) -> Throttled | None:
    values = dict(line.split(" ", 1) for line in read_lines(group / "cpu.stat") if " " in line)
    with suppress(KeyError, ValueError):
        seconds = (
            int(values["throttled_usec"]) / 1e6 if "throttled_usec" in values else int(values["throttled_time"]) / 1e9
        )
        return Throttled(int(values["nr_throttled"]), seconds)
    return None


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n") if text else []  # other line ends may be part of a mount point's name


_V1_KINDS = ("read_iops", "read_bps", "write_iops", "write_bps")
_V2_KINDS = {"riops": "read_iops", "rbps": "read_bps", "wiops": "write_iops", "wbps": "write_bps"}


class Limit(NamedTuple):
    """A limit that one group sets for one device."""

    device: str
    kind: str  # ``read_bps`` and ``write_bps`` of bytes, ``read_iops`` and ``write_iops`` of requests
    per_s: int
    group: str


def io_limits(devices: Sequence[Device], proc: Path = PROC) -> list[Limit]:
    """Return the limits on one of the devices that act on this process."""
    names = {device.number: device.name for device in devices}
    groups = [*control_groups("blkio", proc)]
    own = next((group for group in groups if _is_version_1(group)), None)
    limits = [(own, *line) for line in _limits_of_version_1(own)] if own else []
    limits += [(group, *line) for group in groups for line in _limits_of_version_2(group)]
    return [Limit(names[number], kind, per_s, str(group)) for group, number, kind, per_s in limits if number in names]


def has_hidden_groups(proc: Path = PROC) -> bool:
    """Return whether there may be groups above that cannot be seen from here, as in a container.

    Of version 2 every group but the one at the top of the machine has ``cgroup.type``.
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
