"""The observer of the kernel's counters: the work of the run, and the work of all others during it."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jobs.model.results import DeviceUse
from jobs.model.work import Request
from jobs.observe.data_files import Cache
from jobs.observe.observer import Observer
from jobs.ready_run import Work
from jobs.system import cgroup
from jobs.system.clock import read_clocks
from jobs.system.device import Device, Use, combine_devices, device_of
from jobs.system.page_cache import Fetch
from jobs.system.traffic import Written

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7  # fields of the "cpu" line of /proc/stat, proc(5)
_USER_SYSTEM = slice(11, 13)  # utime and stime of /proc/<pid>/stat, counted from behind the name


class Count(NamedTuple):
    """The requests of all processes to a device since boot."""

    device: Device
    use: Use


@dataclass(frozen=True)
class Reading:
    """A reading of the counters, which all grow from boot or from the start of the process."""

    at_s: float  # ``time.perf_counter`` of the reading
    process: dict[str, int] | None  # ``/proc/self/io`` (bytes and calls); None if the kernel does not count them
    device: Count | None  # the requests of all processes to the whole device; None if there is no such device
    busy_s: float  # CPU seconds of the whole machine spent working
    steal_s: float  # CPU seconds that the hypervisor took
    # CPU seconds of this process and of its children that were waited for; to `process` the kernel itself adds what
    # those have done.
    own_cpu_s: float
    io_pressure_s: float | None = None  # in which a task waited for I/O (`cgroup.io_pressure_s`)
    kernel_s: float | None = None  # the same moment by the kernel's own clock; None if it cannot be read
    raw_s: float | None = None  # the same moment by the hardware's clock, which is never adjusted
    lowest: Count | None = None  # as `device`, for the lowest device below it; None if there is none
    # As `device`, of the other devices that this run writes to; None for a run that writes nothing.
    further: tuple[Count | None, ...] | None = None
    # Of each process that works for this run, by its number: bytes read and written, CPU seconds.
    helpers: Mapping[int, tuple[int, int, float]] = field(default_factory=dict)
    readers: Mapping[int, tuple[int, int, float]] = field(default_factory=dict)  # of those that read what it asks for


class Edge(NamedTuple):
    """The begin or the end of the observed time, with the counts of the trace's sources at that moment."""

    at_s: float
    counts: Mapping[str, tuple[int, ...]]


class Counters(Observer):
    """The observer of the kernel's counters over the run, and of the machine's load before it."""

    place = 10
    gives = (
        "elapsed_s", "kernel_s", "raw_s", "device_bytes", "written_bytes", "device_read_bytes", "lowest_read_bytes",
        "cpu_s", "other_cpu", "steal_s", "readers_cpu_s", "device_use", "load_average", "device", "lowest_device",
        "quota_cores", "throttled_periods", "throttled_s", "reached_bytes", "io_pressure_s",
    )  # fmt: skip

    def __init__(self, request: Request, work: Work) -> None:
        super().__init__(request, work)
        self._device = combine_devices([device_of(folder) for folder in work.folders])
        self._lowest = work.below.lowest

    def start(self) -> None:
        """Read the counters before the run."""
        self._load_average = os.getloadavg()[0]
        self._quota, self._throttled = cgroup.quota_cores(), cgroup.throttled_time()
        self._written = Written(self.work.folders[0]) if self.work.writes and self.work.folders else None
        self._before = self._reading()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counters after the run, without a drain that may follow."""
        self._after = self._reading()
        if self._written:
            self._written.settle()
        self._throttled_after = cgroup.throttled_time()

    @property
    def edges(self) -> tuple[Edge, Edge]:
        """Return begin and end of the observed time, each with the counts by the names of the trace's sources."""
        return self._edge(self._before), self._edge(self._after)

    def _edge(self, reading: Reading) -> Edge:
        process = reading.process and (reading.process["read_bytes"], reading.process["write_bytes"])
        counts = {"process": process} | {
            f"dsk/{each.device.name}": (each.use.read_bytes, each.use.written_bytes)
            for each in (reading.device, reading.lowest)
            if each
        }
        return Edge(reading.at_s, {name: count for name, count in counts.items() if count})

    def _reading(self) -> Reading:
        work, saved = self.work, self.work.checkpoints
        # What a run writes is flushed during the run: its own bytes are not others' traffic. An engine is a child of
        # ours, and the kernel adds it to our own counts.
        further: Sequence[Device | None] | None = (
            saved.devices if saved else () if work.writes or work.may_write or work.source else None
        )
        served = work.source.pids() if work.source and work.writes else ()
        return read_counters(self._device, self._lowest, work.reading(), further, saved.helpers() if saved else served)

    def metrics(self) -> Mapping[str, Any]:
        """Return the difference of the readings (`subtract_readings`), the load before, and the devices.

        Further keys are ``load_average``; ``device`` and ``lowest_device``, None if there is none; ``device_use``
        (`use_of_devices`); ``quota_cores``, None for no quota of a control group; with one ``throttled_periods`` and
        ``throttled_s``; of a run that writes a file ``reached_bytes``, which everybody wrote to its storage, None if no
        counter tells.
        """
        fetch = next((each.fetch for each in self.beside if isinstance(each, Cache)), None)
        return {
            **subtract_readings(self._before, self._after),
            "device_use": use_of_devices(self._before, self._after, fetch),
            "load_average": self._load_average,
            "device": self._device.name if self._device else None,
            "lowest_device": self._lowest.name if self._lowest else None,
            "quota_cores": self._quota,
            **self._held_back(),
            **({"reached_bytes": self._written.bytes if self._written else None} if self.work.writes else {}),
        }

    def _held_back(self) -> dict[str, float]:
        before, after = self._throttled, self._throttled_after
        if before is None or after is None:
            return {}
        return {"throttled_periods": after.periods - before.periods, "throttled_s": after.seconds - before.seconds}


def read_counters(
    device: Device | None,
    lowest: Device | None = None,
    readers: Collection[int] = (),
    further: Sequence[Device | None] | None = None,
    helpers: Iterable[int] = (),
) -> Reading:
    """Return all counters now; `readers` and `helpers` are process ids, `further` the devices of snapshots."""
    ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    at_s, kernel_s, raw_s = read_clocks()
    return Reading(
        at_s=at_s,
        kernel_s=kernel_s,
        raw_s=raw_s,
        process=process_io(),
        device=_count(device),
        # guest time (fields 8, 9) is contained in user and nice
        busy_s=(sum(ticks[:_STEAL]) - ticks[_IDLE] - ticks[_IOWAIT]) * _TICK_S,
        steal_s=ticks[_STEAL] * _TICK_S,
        own_cpu_s=sum(usage.ru_utime + usage.ru_stime for usage in usages),
        io_pressure_s=cgroup.io_pressure_s(),
        lowest=_count(lowest),
        further=None if further is None else tuple(_count(each) for each in further if each != device),
        helpers=_work_of_helpers({*helpers} - {*readers}),
        readers=_work_of_helpers(readers),
    )


def _count(device: Device | None) -> Count | None:
    return Count(device, device.use()) if device else None


def subtract_readings(before: Reading, after: Reading) -> dict[str, float | int | None]:
    """Return the difference of two readings: the work of this process and the work of all others.

    The keys are ``device_bytes`` (fetched for this process and those that read for it, ``read_bytes`` of
    ``/proc/self/io``), ``written_bytes``,
    ``device_read_bytes`` and ``lowest_read_bytes`` (by all processes, from the device and the lowest device below it),
    ``cpu_s``, ``other_cpu`` (cores kept busy by others, on average), ``steal_s``, ``io_pressure_s``, ``elapsed_s``,
    ``kernel_s`` and ``raw_s`` (the same by the kernel's own clock and by that of the hardware), and if other processes
    read for this one ``readers_cpu_s``.
    """
    elapsed_s = after.at_s - before.at_s
    own_cpu_s = after.own_cpu_s - before.own_cpu_s
    helped = _work_of_processes(before.helpers, after.helpers)
    readers = _work_of_processes(before.readers, after.readers)
    read, written = _own_bytes(before, after)
    readers_cpu_s = sum(each[2] for each in readers)
    all_cpu_s = own_cpu_s + readers_cpu_s + sum(each[2] for each in helped)
    return {
        "elapsed_s": elapsed_s,
        **{key: _grown(getattr(before, key), getattr(after, key)) for key in ("kernel_s", "raw_s", "io_pressure_s")},
        "device_bytes": read,
        "written_bytes": written,
        "device_read_bytes": _bytes_read_from(before.device, after.device),
        "lowest_read_bytes": _bytes_read_from(before.lowest, after.lowest),
        "cpu_s": own_cpu_s,
        "other_cpu": max(0.0, after.busy_s - before.busy_s - all_cpu_s) / elapsed_s,
        "steal_s": after.steal_s - before.steal_s,
        **({"readers_cpu_s": readers_cpu_s} if readers else {}),
    }


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _own_bytes(before: Reading, after: Reading) -> tuple[int | None, int | None]:
    """Return the bytes read for this process, and the bytes that it wrote; None if the kernel does not count them."""
    if before.process is None or after.process is None:
        return None, None
    read, written = (after.process[key] - before.process[key] for key in ("read_bytes", "write_bytes"))
    return read + sum(each[0] for each in _work_of_processes(before.readers, after.readers)), written


def _bytes_read_from(before: Count | None, after: Count | None) -> int | None:
    return after.use.read_bytes - before.use.read_bytes if before and after else None


def use_of_devices(before: Reading, after: Reading, fetch: Fetch | None = None) -> list[DeviceUse] | None:
    """Return all requests to the data's devices and to the lowest device below, with the least share that is ours.

    None if the kernel has no counts for one of them or for this process. `fetch` describes the files' data on the
    device: a read of each extent is a separate request. On the lowest device, all requests of the device above count as
    ours.
    """
    read, written = _own_bytes(before, after)
    befores, afters = ((each.device, *(each.further or ())) for each in (before, after))
    device = combine_devices([each.device if each else None for each in befores])
    if read is None or written is None or device is None or None in afters:
        return None
    pairs = list(zip(filter(None, befores), filter(None, afters), strict=True))
    did = Use(*map(sum, zip(*(_subtract_counts(late.use, early.use) for early, late in pairs), strict=True)))
    helped = [*_work_of_processes(before.helpers, after.helpers), *_work_of_processes(before.readers, after.readers)]
    own_read = read + sum(each[0] for each in _work_of_processes(before.helpers, after.helpers))
    # Our own writes reach the device later or never, so none of them are subtracted: a reader writes nothing. But
    # those of a run that saves are synced in its time.
    own_written = None if after.further is None else written + sum(each[1] for each in helped)
    whole = min(1.0, read / fetch.bytes) if fetch and fetch.bytes else 0.0
    own_reads = max(-(-own_read // device.request_bytes), int(whole * fetch.extents) if fetch else 0)
    uses = [_use_of(device, did, own_reads, own_read, own_written)]
    if before.lowest and after.lowest:
        below = Use(*_subtract_counts(after.lowest.use, before.lowest.use))
        above = None if own_written is None else did.written_bytes
        uses.append(_use_of(after.lowest.device, below, did.reads, did.read_bytes, above))
    return uses


def _use_of(device: Device, did: Use, own_reads: int, own_read: int, own_written: int | None) -> DeviceUse:
    return {
        "device": device.name,
        "block_bytes": device.logical_block_bytes,
        "reads": did.reads,
        "read_bytes": did.read_bytes,
        "writes": did.writes,
        "written_bytes": did.written_bytes,
        "flushes": did.flushes,
        "busy_s": min(did.busy_s, did.waited_s),
        "flush_s": did.flush_s,
        "own_reads": own_reads,
        "own_read_bytes": own_read,
        "own_written_bytes": own_written,
    }


def _subtract_counts(late: Sequence[Any], early: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(one - other for one, other in zip(late, early, strict=True))


def _work_of_processes(
    before: Mapping[int, tuple[int, int, float]], after: Mapping[int, tuple[int, int, float]]
) -> list[tuple[Any, ...]]:
    """Return the work of each process between two readings: bytes read, bytes written, CPU seconds."""
    return [_subtract_counts(now, before.get(pid, (0, 0, 0.0))) for pid, now in after.items()]


def _work_of_helpers(pids: Iterable[int]) -> dict[int, tuple[int, int, float]]:
    """Return bytes read, bytes written and CPU seconds of each process so far; one that has ended is missing."""
    work = {}
    for pid in pids:
        with suppress(OSError):
            ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_USER_SYSTEM]
            done = process_io(pid) or {"read_bytes": 0, "write_bytes": 0}
            work[pid] = (done["read_bytes"], done["write_bytes"], sum(map(int, ticks)) * _TICK_S)
    return work


def process_io(pid: int | str = "self") -> dict[str, int] | None:
    """Return the counters of a process (``/proc/<pid>/io``: bytes, calls); None if the kernel does not show them."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}


OBSERVERS = (Counters,)
