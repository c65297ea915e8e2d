"""What control groups leave of processors and memory: quota and limit of this process, how long it was held back.

A container or a job with a quota of 0.2 sees all cores and gets a fifth of one; `os.sched_getaffinity` does not tell.
Version 2 has ``cpu.max`` and ``cpu.stat`` (Documentation/admin-guide/cgroup-v2.rst), version 1 ``cpu.cfs_quota_us``,
``cpu.cfs_period_us`` and ``cpu.stat`` (Documentation/scheduler/sched-bwc.rst). Any group above counts too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.system.device import unescape

PROC = Path("/proc/self")
_MEMORY_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_NO_LIMIT_BYTES = 1 << 62


@dataclass(frozen=True)
class Throttled:
    """How often and for how long the groups of this process were held back since they were made."""

    periods: int  # periods in which the quota was used up
    seconds: float  # time that runnable threads had to wait for the next period, added up over the processors


def quota(proc: Path = PROC) -> float | None:
    """Return how many cores the quotas of this process leave, the least of all groups above it; None for no quota."""
    return min((cores for group in groups("cpu", proc) if (cores := _cores(group)) is not None), default=None)


def memory_limit_bytes(proc: Path = PROC) -> int | None:
    """Return the least memory that this process' groups may use; None for no limit (version 1 tells one of 8 EiB)."""
    words = [lines(group / name) for group in groups("memory", proc) for name in _MEMORY_LIMITS]
    limits = [int(first) for first, *_ in filter(None, words) if first.isdigit()]
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def memory_left_bytes(proc: Path = PROC) -> int | None:
    """Return how much memory can still be had here, that of the page cache included; None where nobody tells.

    Of the machine ``MemAvailable`` (proc(5)); of a group with a limit what its processes do not hold.
    """
    machine = [line.split()[1] for line in lines(proc.parent / "meminfo") if line.startswith("MemAvailable:")]
    found = [int(kib) * 1024 for kib in machine]
    for group in groups("memory", proc):
        words = [first for name in _MEMORY_LIMITS for first in lines(group / name)[:1]]
        limits = [int(word) for word in words if word.isdigit() and int(word) < _NO_LIMIT_BYTES]
        held = dict(line.split(" ", 1) for line in lines(group / "memory.stat") if " " in line)
        found += [limit - int(held.get("anon", held.get("total_rss", 0))) for limit in limits]
    return min(found, default=None)


def throttled(proc: Path = PROC) -> Throttled | None:
    """Return how this process' groups were held back so far; None where no group has a quota.

    Of nested groups with quotas of their own the one that was held back longest counts: a group waits while the group
    above it does.
    """
    found = [each for group in groups("cpu", proc) if _cores(group) is not None and (each := _statistics(group))]
    return max(found, key=lambda each: each.seconds, default=None)


def groups(controller: str, proc: Path = PROC) -> Iterator[Path]:
    """Yield the folders of the groups that this process is in, from its own up to the top of the mount.

    `controller` is the name by which version 1 mounts it; the groups of version 2, which has all in one, come too.
    """
    paths: dict[str, str] = {}
    for line in lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))  # of version 2 the one name is empty
    for line in lines(proc / "mountinfo"):
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


def _cores(group: Path) -> float | None:
    with suppress(OSError, ValueError):
        limit, period = (group / "cpu.max").read_text(encoding="ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    with suppress(OSError, ValueError):
        limit_us = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        return None if limit_us < 0 else limit_us / int((group / "cpu.cfs_period_us").read_text(encoding="ascii"))
    return None


def _statistics(group: Path) -> Throttled | None:
    values = dict(line.split(" ", 1) for line in lines(group / "cpu.stat") if " " in line)
    with suppress(KeyError, ValueError):
        seconds = (
            int(values["throttled_usec"]) / 1e6 if "throttled_usec" in values else int(values["throttled_time"]) / 1e9
        )
        return Throttled(int(values["nr_throttled"]), seconds)
    return None


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none where it cannot be read."""
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError:
        return []
    return text.removesuffix("\n").split("\n") if text else []  # other line ends may be part of a mount point's name
