"""Observe the kernel's counters: the work of the run, and the work of all other processes during the run."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jobs.model.results import DeviceUse
from jobs.model.work import RunRequest
from jobs.observe.data_files import CacheObserver
from jobs.observe.observer import Observer
from jobs.ready_run import ReadyRun
from jobs.system import cgroup
from jobs.system.clock import read_clocks
from jobs.system.device import Device, DeviceRequests, combine_devices, device_of
from jobs.system.page_cache import ColdReadBytes
from jobs.system.traffic import WrittenBytes

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7  # indices in the "cpu" line of /proc/stat, see proc(5)
_USER_SYSTEM = slice(11, 13)  # utime and stime in /proc/<pid>/stat, counted from the field after the program's name


class DeviceCount(NamedTuple):
    """The requests of all processes to a device since boot."""

    device: Device
    use: DeviceRequests


@dataclass(frozen=True)
class CounterReading:
    """The values of all counters at one moment. The counters count since boot or since the start of the process."""

    at_s: float  # ``time.perf_counter`` at this moment
    process: dict[str, int] | None  # bytes and calls from ``/proc/self/io``; None if the kernel does not show the file
    device: DeviceCount | None  # requests of all processes to the device of the data; None if there is no device
    busy_s: float  # busy CPU seconds of the whole machine
    steal_s: float  # CPU seconds that the hypervisor took
    # CPU seconds of this process and of ended children that this process waited for. `process` includes these children.
    own_cpu_s: float
    io_pressure_s: float | None = None  # seconds in which a task waited for I/O (`cgroup.io_pressure_s`)
    kernel_s: float | None = None  # the time by the kernel's clock; None if the clock cannot be read
    raw_s: float | None = None  # the time by the hardware's clock, which is never adjusted
    lowest: DeviceCount | None = None  # requests to the lowest device below `device`; None if there is none
    # Requests to all other devices to which this run writes; None for a run that writes nothing.
    further: tuple[DeviceCount | None, ...] | None = None
    # For each process that works for this run, by process id: bytes read, bytes written, CPU seconds.
    helpers: Mapping[int, tuple[int, int, float]] = field(default_factory=dict)
    # For each process that reads for this run, by process id: bytes read, bytes written, CPU seconds.
    readers: Mapping[int, tuple[int, int, float]] = field(default_factory=dict)


class ObservedEdge(NamedTuple):
    """The begin or the end of the observed time, with the values of the counters that the system trace samples."""

    at_s: float
    counts: Mapping[str, tuple[int, ...]]


class CountersObserver(Observer):
    """Observes the kernel's counters over the run, and the load average of the machine before the run."""

    place = 10
    gives = (
        "elapsed_s", "kernel_s", "raw_s", "device_bytes", "written_bytes", "device_read_bytes", "lowest_read_bytes",
        "cpu_s", "other_cpu", "steal_s", "readers_cpu_s", "device_use", "load_average", "device", "lowest_device",
        "quota_cores", "throttled_periods", "throttled_s", "reached_bytes", "io_pressure_s",
    )  # fmt: skip

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        super().__init__(request, work)
        self._device = combine_devices([device_of(folder) for folder in work.folders])
        self._lowest = work.below.lowest

    def start(self) -> None:
        """Read the counters before the run."""
        self._load_average = os.getloadavg()[0]
        self._quota, self._throttled = cgroup.quota_cores(), cgroup.throttled_time()
        self._written = WrittenBytes(self.work.folders[0]) if self.work.writes and self.work.folders else None
        self._before = self._reading()

    def stop(self, *, failed: bool) -> None:  # noqa: ARG002
        """Read the counters after the run, before snapshots are copied to a slow storage."""
        self._after = self._reading()
        if self._written:
            self._written.stop()
        self._throttled_after = cgroup.throttled_time()

    @property
    def edges(self) -> tuple[ObservedEdge, ObservedEdge]:
        """Return the begin and the end of the observed time, with the counters by their names in the system trace."""
        return self._edge(self._before), self._edge(self._after)

    def _edge(self, reading: CounterReading) -> ObservedEdge:
        process = reading.process and (reading.process["read_bytes"], reading.process["write_bytes"])
        counts = {"process": process} | {
            f"dsk/{count.device.name}": (count.use.read_bytes, count.use.written_bytes)
            for count in (reading.device, reading.lowest)
            if count
        }
        return ObservedEdge(reading.at_s, {name: numbers for name, numbers in counts.items() if numbers})

    def _reading(self) -> CounterReading:
        work, snapshots = self.work, self.work.checkpoints
        # If the run writes, its writes are flushed during the run, so that the bytes of the run and of other programs
        # must be separated. An engine is a child of this process; the kernel adds its counts to this process.
        further: Sequence[Device | None] | None = (
            snapshots.devices if snapshots else () if work.writes or work.may_write or work.source else None
        )
        server_pids = work.source.pids() if work.source and work.writes else ()
        return read_counters(
            self._device, self._lowest, work.reading(), further, snapshots.helpers() if snapshots else server_pids
        )

    def metrics(self) -> Mapping[str, Any]:
        """Return the differences of the counters (`subtract_readings`), the load before the run, and the devices.

        The further keys are:

        - ``load_average``: the load average before the run;
        - ``device_use``: the requests to the devices (`use_of_devices`);
        - ``device`` and ``lowest_device``: the names of the devices; None if there is no such device;
        - ``quota_cores``: the CPU quota of the control group; None without a quota;
        - ``throttled_periods`` and ``throttled_s``: how often and how long the quota stopped threads;
        - ``reached_bytes``, only for a run that writes a file: the bytes that all processes wrote to the storage of the
          file; None if unknown.
        """
        fetch = next((observer.fetch for observer in self.beside if isinstance(observer, CacheObserver)), None)
        return {
            **subtract_readings(self._before, self._after),
            "device_use": use_of_devices(self._before, self._after, fetch),
            "load_average": self._load_average,
            "device": self._device.name if self._device else None,
            "lowest_device": self._lowest.name if self._lowest else None,
            "quota_cores": self._quota,
            **self._throttling(),
            **({"reached_bytes": self._written.bytes if self._written else None} if self.work.writes else {}),
        }

    def _throttling(self) -> dict[str, float]:
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
) -> CounterReading:
    """Return the current values of all counters.

    `readers` and `helpers` are process ids. `further` are the devices of the snapshots.
    """
    ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    at_s, kernel_s, raw_s = read_clocks()
    return CounterReading(
        at_s=at_s,
        kernel_s=kernel_s,
        raw_s=raw_s,
        process=process_io(),
        device=_count(device),
        # The fields 8 and 9 (guest time) are left out, because the fields user and nice include the guest time.
        busy_s=(sum(ticks[:_STEAL]) - ticks[_IDLE] - ticks[_IOWAIT]) * _TICK_S,
        steal_s=ticks[_STEAL] * _TICK_S,
        own_cpu_s=sum(usage.ru_utime + usage.ru_stime for usage in usages),
        io_pressure_s=cgroup.io_pressure_s(),
        lowest=_count(lowest),
        further=None if further is None else tuple(map(_count, _devices_beside(device, further))),
        helpers=_work_of_helpers({*helpers} - {*readers}),
        readers=_work_of_helpers(readers),
    )


def _devices_beside(device: Device | None, others: Sequence[Device | None]) -> list[Device | None]:
    """Return each other device once that is not a part of `device`; None for one that is not counted."""
    members = [member for other in others for member in (other.members if other else (None,))]
    return [member for member in dict.fromkeys(members) if device is None or member not in device.members]


def _count(device: Device | None) -> DeviceCount | None:
    return DeviceCount(device, device.read_counters()) if device else None


def subtract_readings(before: CounterReading, after: CounterReading) -> dict[str, float | int | None]:
    """Return the differences between two readings: the work of this process, and the work of all other processes.

    The keys are:

    - ``device_bytes``: bytes fetched for this process and its readers (``read_bytes`` of ``/proc/self/io``);
    - ``written_bytes``: bytes that this process wrote;
    - ``device_read_bytes``: bytes that all processes read from the device;
    - ``lowest_read_bytes``: bytes that all processes read from the lowest device below;
    - ``cpu_s``, ``steal_s``, ``io_pressure_s``: see `CounterReading`;
    - ``readers_cpu_s``: CPU seconds of the readers, only if other processes read for this process;
    - ``other_cpu``: mean number of CPU cores that other processes used;
    - ``elapsed_s``: seconds between the readings;
    - ``kernel_s``, ``raw_s``: seconds between the readings by the kernel's clock and by the hardware's clock.
    """
    elapsed_s = after.at_s - before.at_s
    own_cpu_s = after.own_cpu_s - before.own_cpu_s
    helper_work = _work_of_processes(before.helpers, after.helpers)
    reader_work = _work_of_processes(before.readers, after.readers)
    read_bytes, written_bytes = _own_bytes(before, after)
    readers_cpu_s = sum(cpu_s for _, _, cpu_s in reader_work)
    all_cpu_s = own_cpu_s + readers_cpu_s + sum(cpu_s for _, _, cpu_s in helper_work)
    return {
        "elapsed_s": elapsed_s,
        **{key: _subtract(getattr(before, key), getattr(after, key)) for key in ("kernel_s", "raw_s", "io_pressure_s")},
        "device_bytes": read_bytes,
        "written_bytes": written_bytes,
        "device_read_bytes": _bytes_read_from(before.device, after.device),
        "lowest_read_bytes": _bytes_read_from(before.lowest, after.lowest),
        "cpu_s": own_cpu_s,
        "other_cpu": max(0.0, after.busy_s - before.busy_s - all_cpu_s) / elapsed_s,
        "steal_s": after.steal_s - before.steal_s,
        **({"readers_cpu_s": readers_cpu_s} if reader_work else {}),
    }


def _subtract(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _own_bytes(before: CounterReading, after: CounterReading) -> tuple[int | None, int | None]:
    """Return the bytes read for this process, and the bytes that this process wrote; None if unknown."""
    if before.process is None or after.process is None:
        return None, None
    read_bytes, written_bytes = (after.process[key] - before.process[key] for key in ("read_bytes", "write_bytes"))
    return read_bytes + sum(work[0] for work in _work_of_processes(before.readers, after.readers)), written_bytes


def _bytes_read_from(before: DeviceCount | None, after: DeviceCount | None) -> int | None:
    return after.use.read_bytes - before.use.read_bytes if before and after else None


def use_of_devices(
    before: CounterReading, after: CounterReading, fetch: ColdReadBytes | None = None
) -> list[DeviceUse] | None:
    """Return the use of the devices of the data, and of the lowest device below, between two readings.

    Each use has the requests of all processes, and the smallest possible number of requests of this run. Return None if
    the kernel does not count the requests to a device, or the bytes of this process. `fetch` describes the extents of
    the files on the device; each extent takes at least one request. All requests from the upper device to the lowest
    device count as requests of this run.
    """
    read_bytes, written_bytes = _own_bytes(before, after)
    counts_before, counts_after = ((reading.device, *(reading.further or ())) for reading in (before, after))
    device = combine_devices([count.device if count else None for count in counts_before])
    if read_bytes is None or written_bytes is None or device is None or None in counts_after:
        return None
    pairs = list(zip(filter(None, counts_before), filter(None, counts_after), strict=True))
    use = DeviceRequests(*map(sum, zip(*(_subtract_counts(late.use, early.use) for early, late in pairs), strict=True)))
    helper_work = [
        *_work_of_processes(before.helpers, after.helpers),
        *_work_of_processes(before.readers, after.readers),
    ]
    own_read_bytes = read_bytes + sum(work[0] for work in _work_of_processes(before.helpers, after.helpers))
    # If a run only reads, its few writes are not subtracted, because these writes reach the device later or never. If a
    # run saves snapshots, the run syncs its writes while it is observed.
    own_written_bytes = None if after.further is None else written_bytes + sum(work[1] for work in helper_work)
    read_share = min(1.0, read_bytes / fetch.bytes) if fetch and fetch.bytes else 0.0
    own_reads = max(-(-own_read_bytes // device.request_bytes), int(read_share * fetch.extents) if fetch else 0)
    uses = [_describe_use(device, use, own_reads, own_read_bytes, own_written_bytes)]
    if before.lowest and after.lowest:
        lowest_use = DeviceRequests(*_subtract_counts(after.lowest.use, before.lowest.use))
        upper_written_bytes = None if own_written_bytes is None else use.written_bytes
        uses.append(_describe_use(after.lowest.device, lowest_use, use.reads, use.read_bytes, upper_written_bytes))
    return uses


def _describe_use(
    device: Device, use: DeviceRequests, own_reads: int, own_read_bytes: int, own_written_bytes: int | None
) -> DeviceUse:
    return {
        "device": device.name,
        "block_bytes": device.logical_block_bytes,
        "reads": use.reads,
        "read_bytes": use.read_bytes,
        "writes": use.writes,
        "written_bytes": use.written_bytes,
        "flushes": use.flushes,
        "busy_s": min(use.busy_s, use.waited_s),
        "flush_s": use.flush_s,
        "own_reads": own_reads,
        "own_read_bytes": own_read_bytes,
        "own_written_bytes": own_written_bytes,
    }


def _subtract_counts(late: Sequence[Any], early: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(last - first for last, first in zip(late, early, strict=True))


def _work_of_processes(
    before: Mapping[int, tuple[int, int, float]], after: Mapping[int, tuple[int, int, float]]
) -> list[tuple[Any, ...]]:
    """Return for each process the work between two readings: bytes read, bytes written, CPU seconds."""
    return [_subtract_counts(counts, before.get(pid, (0, 0, 0.0))) for pid, counts in after.items()]


def _work_of_helpers(pids: Iterable[int]) -> dict[int, tuple[int, int, float]]:
    """Return the bytes read, bytes written and CPU seconds of each process since its start; skip ended processes."""
    work = {}
    for pid in pids:
        with suppress(OSError):
            ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[_USER_SYSTEM]
            io = process_io(pid) or {"read_bytes": 0, "write_bytes": 0}
            work[pid] = (io["read_bytes"], io["write_bytes"], sum(map(int, ticks)) * _TICK_S)
    return work


def process_io(pid: int | str = "self") -> dict[str, int] | None:
    """Return the counters of a process in ``/proc/<pid>/io`` (bytes and calls), or None if the file is unreadable."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return {key: int(value) for key, _, value in (line.partition(": ") for line in lines)}


OBSERVERS = (CountersObserver,)
