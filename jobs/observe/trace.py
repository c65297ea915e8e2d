"""The observer of the whole system: a thread samples the kernel's counters into one CSV per run, as dstat does.

It samples the devices behind the run's paths (for network file systems the client's statistics), the bytes of this
process, I/O pressure, CPU and memory. Each source is a group of columns, read from the kernel and converted to cells.
If a source cannot be read, its columns stay empty and the record has the reason; the run does not fail.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jobs.model.work import RunRequest
from jobs.observe.counters import CountersObserver, ObservedEdge
from jobs.observe.observer import Observer
from jobs.ready_run import ReadyRun
from jobs.system import files
from jobs.system.device import mount_of, read_kernel
from jobs.system.layers import ask_server, model_behind
from jobs.system.traffic import Traffic, traffic_counters

OK = "ok"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
_CPU_FIELDS = slice(1, 9)  # of the "cpu" line of /proc/stat; user and nice include the guest time after them
_MEMORY = re.compile(r"^(Cached|Dirty|Writeback): +(\d+) kB", re.MULTILINE)  # of /proc/meminfo; its kB are KiB
_RSS = 1  # field of /proc/self/statm, in pages


@dataclass(frozen=True)
class TraceCounter:
    """A source of the trace: a group of columns, its reader, and the function that makes its cells."""

    # The two rows of the header.
    name: str
    columns: tuple[str, ...]
    # Returns the kernel's counts; may raise OSError, and ValueError or LookupError for an unknown format.
    read: Callable[[], tuple[int, ...]]
    # Converts the differences of the counts, and the seconds between them, to cells (None: no value). Without it
    # the counts are levels and are shown unchanged.
    cells: Callable[[Sequence[int], float], Sequence[float | None]] | None


def find_counters(paths: Sequence[Path]) -> tuple[list[TraceCounter], dict[str, str]]:
    """Return the sources to sample, and the states of all sources by name, also of paths without a source."""
    traffic: dict[str, Traffic] = {}
    models: dict[Path, None] = {}
    states = {}
    for path in paths:
        try:
            path_traffic = traffic_counters(path)
            # Only a loop device can have an emulation server; a path on a network is not touched to find one.
            model = model_behind(path) if any(name.startswith("dsk/loop") for name in path_traffic) else None
        except OSError as error:
            states[str(path)] = f"not readable: {error_in_one_line(error)}"
            continue
        traffic.update(path_traffic)
        models |= {model: None} if model else {}
        if not path_traffic:
            states[str(path)] = f"no device, and no statistics of its client: {mount_of(path).fstype}"
    sources = [
        *(TraceCounter(name, ("read", "writ"), read, _rates_per_s) for name, read in traffic.items()),
        *(
            TraceCounter(f"model/{model.stem}", ("req", "depth", "busy"), partial(_model_counts, model), _model_rates)
            for model in models
        ),
        TraceCounter("process", ("read", "writ"), _process_bytes, _rates_per_s),
        TraceCounter("io pressure", ("some", "full"), _io_pressure_us, _percent_of_time),
        TraceCounter("total cpu usage", ("usr", "sys", "idl", "wai", "stl"), _cpu_ticks, _percent_of_sum),
        TraceCounter("memory usage", ("rss", "cach", "dirty", "wback"), _memory_bytes, None),
    ]
    return sources, {source.name: OK for source in sources} | states


def _model_counts(model: Path) -> tuple[int, ...]:
    """Return the requests, the sum of their microseconds, and the busy microseconds of an emulated storage."""
    report = ask_server(model)
    return report["reads"] + report["writes"], round(report["queue_s"] * 1e6), round(report["busy_s"] * 1e6)


def _model_rates(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return requests per second, the mean number in flight, and the busy time in percent."""
    requests, queue_us, busy_us = counts
    return [requests / seconds, queue_us / 1e6 / seconds, busy_us / 1e4 / seconds]


def _process_bytes() -> tuple[int, ...]:
    counts = dict(line.split(": ") for line in read_kernel("/proc/self/io").splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def _io_pressure_us() -> tuple[int, ...]:
    """Return the microseconds in which some task waited for I/O, and all busy tasks did (accounting/psi.rst)."""
    some, full = read_kernel("/proc/pressure/io").splitlines()
    return int(some.rpartition("total=")[2]), int(full.rpartition("total=")[2])


def _cpu_ticks() -> tuple[int, ...]:
    """Return ticks of the whole machine: user and nice, system with interrupts, idle, I/O wait, stolen."""
    line = read_kernel("/proc/stat").partition("\n")[0]
    user, nice, system, idle, wait, irq, softirq, steal = map(int, line.split()[_CPU_FIELDS])
    return user + nice, system + irq + softirq, idle, wait, steal


def _memory_bytes() -> tuple[int, ...]:
    """Return bytes: resident memory of this process; page cache, its dirty pages, and pages under writeback."""
    pages = int(read_kernel("/proc/self/statm").split()[_RSS])
    kib = dict(_MEMORY.findall(read_kernel("/proc/meminfo")))
    return pages * _PAGE_BYTES, *(int(kib[line]) * _KIB for line in ("Cached", "Dirty", "Writeback"))


def _rates_per_s(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return counts per second; None if a counter was reset (root can do so with Lustre's)."""
    return [count / seconds if count >= 0 else None for count in counts]


def _percent_of_time(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return the share in percent of counts of microseconds in the time."""
    return [count / 1e6 / seconds * 100 for count in counts]


def _percent_of_sum(counts: Sequence[int], _seconds: float) -> Sequence[float | None]:
    """Return counts in percent of their sum; None if no tick passed."""
    ticks = [max(0, count) for count in counts]
    return [100 * tick / sum(ticks) if any(ticks) else None for tick in ticks]


def error_in_one_line(error: Exception) -> str:
    """Return the reason of an error in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


class _Sample(NamedTuple):
    """A sample of the counts of all sources (None: unreadable) at `at_s` of the clock and Unix time `epoch_s`."""

    at_s: float
    epoch_s: float
    counts: tuple[tuple[int, ...] | None, ...]


class TraceClock:
    """The clock, which can also wait until a time or for a lock; tests replace it."""

    now = staticmethod(time.perf_counter)

    def wait(self, stop: threading.Lock, until_s: float) -> bool:
        """Wait until `until_s`, or until the lock is released, which means stop; return whether it was released."""
        return stop.acquire(timeout=max(0.0, until_s - self.now()))


class SystemTrace:
    """A trace: samples from `start` to `stop`, during a drain (`settle`, called by `finish`), and for `tail_s` more.

    Samples are due on a fixed grid; the next one is left out if a late sample comes less than half an interval before
    it. Rates are computed over the time that really passed, so their sums equal the kernel's counts. A failed run has
    no tail.
    """

    clock = TraceClock()

    def __init__(
        self,
        paths: Sequence[Path],
        interval_s: float,
        tail_s: float,
        file: Path,
        settle: Callable[[], object] | None = None,
    ) -> None:
        self._interval_s, self._tail_s, self._file, self._settle = interval_s, tail_s, file, settle
        self._sources, self._states = find_counters(paths)
        self._samples: list[_Sample] = []
        self._ended_s = math.inf
        self._stop = threading.Lock()  # its release means stop; an Event takes 0.2 ms longer
        self._stop.acquire()
        self._thread: threading.Thread | None = None
        self._cpu_s = self._late_s = 0.0
        self._summary: dict[str, Any] | None = None

    def start(self) -> None:
        """Take the first sample, at time zero."""
        self._sample()
        self._watch(until_s=math.inf)

    def stop(self, *, failed: bool = False) -> None:
        """Take the sample that ends the iteration; end the trace if the run failed."""
        self._end_watch()
        if len(self._samples) > 1 and self.clock.now() - self._samples[-1].at_s < self._interval_s / 2:
            self._samples.pop()  # rates over so short a time would show false peaks
        self._sample()
        self._ended_s = self._samples[-1].at_s
        if failed:
            self._conclude()
        elif self._settle:
            self._watch(until_s=math.inf)
        elif self._tail_s > 0:
            self._watch(until_s=self._ended_s + self._tail_s)

    def finish(self, edges: tuple[ObservedEdge, ObservedEdge] | None = None) -> dict[str, Any]:
        """Wait for the drain and for the end of the tail, write the CSV (complete or not at all), and return a summary.

        The begin and end of the iteration become the `edges`, at which the run's counters were read. The keys are
        ``file`` (name of the CSV; None if it could not be written, then see ``error``), ``interval_s``, ``tail_s``,
        ``samples``, ``sources`` (name to ``ok`` or a fault), ``cpu_s`` (of the sampling thread) and ``late_s`` (the
        largest delay of a sample).
        """
        if self._summary is None and self._settle:
            self._settle()
            self._end_watch()
            self._watch(until_s=self.clock.now() + self._tail_s)
        return self._conclude(edges)

    def _conclude(self, edges: tuple[ObservedEdge, ObservedEdge] | None = None) -> dict[str, Any]:
        if self._summary is None:
            self._join()
            if edges:
                self._replace_edges(*edges)
            self._summary = {
                **self._write(),
                "interval_s": self._interval_s,
                "tail_s": self._tail_s,
                "samples": len(self._samples),
                "sources": self._states,
                "cpu_s": self._cpu_s,
                "late_s": self._late_s,
            }
        return self._summary

    def _replace_edges(self, first: ObservedEdge, last: ObservedEdge) -> None:
        """Replace the first sample and the sample at the end of the iteration by samples at the edges."""
        start, *middle = (sample for sample in self._samples if sample.at_s <= self._ended_s)
        end, tail = middle.pop(), [sample for sample in self._samples if sample.at_s > self._ended_s]
        inner_samples = [sample for sample in middle if first.at_s < sample.at_s < last.at_s]
        self._samples = [self._sample_at(first, start), *inner_samples, self._sample_at(last, end), *tail]
        self._ended_s = last.at_s

    def _sample_at(self, edge: ObservedEdge, sample: _Sample) -> _Sample:
        counts = (edge.counts.get(s.name, count) for s, count in zip(self._sources, sample.counts, strict=True))
        return _Sample(edge.at_s, sample.epoch_s + edge.at_s - sample.at_s, tuple(counts))

    def _watch(self, until_s: float) -> None:
        origin_s = self._samples[-1].at_s
        self._thread = threading.Thread(target=self._tick, args=(origin_s, until_s), name="trace", daemon=True)
        self._thread.start()

    def _end_watch(self) -> None:
        self._stop.release()  # the thread acquires it again
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _tick(self, origin_s: float, until_s: float) -> None:
        """Take a sample at each interval after `origin_s`, and at `until_s`, until stopped."""
        due_s = origin_s
        while due_s < until_s:
            due_s = origin_s + _next_tick(self.clock.now() - origin_s, self._interval_s)
            if until_s - due_s < self._interval_s / 2:
                due_s = until_s
            if self.clock.wait(self._stop, due_s):
                break
            self._late_s = max(self._late_s, self.clock.now() - due_s)
            self._sample()
        self._cpu_s += time.thread_time()

    def _sample(self) -> None:
        at_s, epoch_s = self.clock.now(), time.time()
        self._samples.append(_Sample(at_s, epoch_s, tuple(self._read(source) for source in self._sources)))

    def _read(self, source: TraceCounter) -> tuple[int, ...] | None:
        """Return the counts of a source; a source that failed is not read again, so its cells end there."""
        if self._states[source.name] != OK:
            return None
        try:
            return source.read()
        except (OSError, ValueError, LookupError) as error:
            self._states[source.name] = f"not readable: {error_in_one_line(error)}"
            return None

    def _write(self) -> dict[str, str | None]:
        text = "".join(",".join(_format_cell(cell) for cell in row) + "\n" for row in self._rows())
        try:
            files.write_text(self._file, text.encode("utf-8", "replace").decode("utf-8"))
        except OSError as error:
            return {"file": None, "error": error_in_one_line(error)}
        return {"file": self._file.name, "error": None}

    def _rows(self) -> Iterator[Sequence[Any]]:
        """Yield two header rows, then one row per sample: the changes since the previous sample."""
        headings = [(None if index else s.name, name) for s in self._sources for index, name in enumerate(s.columns)]
        yield from zip(("epoch", "epoch"), ("elapsed", "s"), *headings, ("phase", "phase"), strict=True)
        previous = None
        for sample in self._samples:
            phase = "iteration" if sample.at_s <= self._ended_s else "tail"
            cells = [cell for index in range(len(self._sources)) for cell in self._cells(index, previous, sample)]
            yield [round(sample.epoch_s, 3), round(sample.at_s - self._samples[0].at_s, 6), *cells, phase]
            previous = sample

    def _cells(self, index: int, previous: _Sample | None, after: _Sample) -> Sequence[float | None]:
        """Return the cells of the source number `index` in one row; the first row has only levels."""
        source, counts = self._sources[index], after.counts[index]
        previous_counts = previous.counts[index] if previous else None
        if counts is not None and source.cells is None:
            return counts
        if counts is None or previous_counts is None or previous is None or source.cells is None:
            return [None] * len(source.columns)
        differences = [late - early for late, early in zip(counts, previous_counts, strict=True)]
        return source.cells(differences, after.at_s - previous.at_s)


class TraceObserver(Observer):
    """The observer that traces a run's storages of data set and snapshots, if asked for."""

    place = 80
    gives = ("trace",)

    def __init__(self, request: RunRequest, work: ReadyRun) -> None:
        super().__init__(request, work)
        self._trace: SystemTrace | None = None
        if trace := request.get("trace"):
            paths = [*work.folders, *self.snapshot_folders]
            settle = work.checkpoints.settle if work.checkpoints else None
            self._trace = SystemTrace(paths, trace["interval_s"], trace["tail_s"], Path(trace["file"]), settle)

    def start(self) -> None:
        """Begin to sample."""
        if self._trace:
            self._trace.start()

    def stop(self, *, failed: bool) -> None:
        """End the iteration."""
        if self._trace:
            self._trace.stop(failed=failed)

    def metrics(self) -> Mapping[str, Any]:
        """Return the result of `Trace.finish`, None without a trace."""
        if self._trace is None:
            return {"trace": None}
        edges = next((observer.edges for observer in self.beside if isinstance(observer, CountersObserver)), None)
        return {"trace": self._trace.finish(edges)}


def _next_tick(now_s: float, interval_s: float) -> float:
    """Return the first multiple of the interval that is more than half an interval away."""
    return (math.floor(now_s / interval_s + 0.5) + 1) * interval_s


def _format_cell(cell: float | str | None) -> str:
    """Return a cell in dstat's form: words in quotes, numbers without quotes, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return '"' + cell.replace('"', '""') + '"'
    return f"{cell:.6f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)


OBSERVERS = (TraceObserver,)
