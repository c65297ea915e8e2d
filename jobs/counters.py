"""The kernel's own counts of what a run did, and of what everybody else did meanwhile."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.device import Device

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7  # fields of the "cpu" line of /proc/stat, proc(5)


@dataclass(frozen=True)
class Reading:
    """One look at the counters; all grow from boot or from the start of the process.

    Attributes
    ----------
    at_s
        ``time.perf_counter`` of the look.
    process
        ``/proc/self/io`` (bytes and calls); None where the kernel does not account for it.
    device
        Bytes read from and written to the whole device by everybody; None where there is no such device.
    busy_s, steal_s
        CPU seconds of the whole machine spent working, and those that the hypervisor took.
    own_cpu_s
        CPU seconds of this process.
    """

    at_s: float
    process: dict[str, int] | None
    device: tuple[int, int] | None
    busy_s: float
    steal_s: float
    own_cpu_s: float


def look(device: Device | None) -> Reading:
    """Read all counters now."""
    ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Reading(
        at_s=time.perf_counter(),
        process=_process_io(),
        device=device.traffic() if device else None,
        # guest time (fields 8, 9) is contained in user and nice
        busy_s=(sum(ticks[:_STEAL]) - ticks[_IDLE] - ticks[_IOWAIT]) * _TICK_S,
        steal_s=ticks[_STEAL] * _TICK_S,
        own_cpu_s=usage.ru_utime + usage.ru_stime,
    )


def between(before: Reading, after: Reading) -> dict[str, float | int | None]:
    """Subtract two looks: what this process did, and what was left for everybody else.

    Returns
    -------
    dict
        ``device_bytes`` (fetched for this process, ``read_bytes`` of ``/proc/self/io``), ``written_bytes``,
        ``device_read_bytes`` (by everybody), ``other_bytes`` (device traffic that was not ours), ``cpu_s``,
        ``other_cpu`` (cores kept busy by others, on average), ``steal_s``, ``elapsed_s``.
    """
    elapsed_s = after.at_s - before.at_s
    own_cpu_s = after.own_cpu_s - before.own_cpu_s
    read = written = None
    if before.process is not None and after.process is not None:
        read = after.process["read_bytes"] - before.process["read_bytes"]
        written = after.process["write_bytes"] - before.process["write_bytes"]
    device_read = other = None
    if before.device is not None and after.device is not None:
        device_read, device_written = (late - early for late, early in zip(after.device, before.device, strict=True))
        # Our own writes reach the device later or never, so none of them are subtracted: a reader writes nothing.
        other = None if read is None else max(0, device_read - read) + device_written
    return {
        "elapsed_s": elapsed_s,
        "device_bytes": read,
        "written_bytes": written,
        "device_read_bytes": device_read,
        "other_bytes": other,
        "cpu_s": own_cpu_s,
        "other_cpu": max(0.0, after.busy_s - before.busy_s - own_cpu_s) / elapsed_s,
        "steal_s": after.steal_s - before.steal_s,
    }


def _process_io() -> dict[str, int] | None:
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}
