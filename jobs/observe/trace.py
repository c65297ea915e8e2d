"""Trace the whole system during a run: a thread samples the kernel's counters, and writes one CSV per run, like dstat.

The thread samples the devices behind the run's paths, the bytes of this process, I/O pressure, CPU and memory. For
network file systems, the thread samples the statistics of the client. Each source of counters is a group of columns in
the CSV. If a source cannot be read, its columns stay empty, and the record has the reason; the run does not fail.
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
_CPU_FIELDS = slice(1, 9)  # fields in the "cpu" line of /proc/stat, without guest time, which user and nice include
_MEMORY = re.compile(r"^(Cached|Dirty|Writeback): +(\d+) kB", re.MULTILINE)  # in /proc/meminfo, kB means KiB
_RSS = 1  # index of the resident memory in /proc/self/statm, in pages


@dataclass(frozen=True)
class TraceCounter:
    """A source of the trace: a group of columns, a function that reads counters, and a function that makes cells."""

    # The names in the two header rows of the CSV.
    name: str
    columns: tuple[str, ...]
    # A function that reads the kernel's counters. May raise OSError, or ValueError and LookupError for an unknown
    # format.
    read: Callable[[], tuple[int, ...]]
    # A function that converts the differences between two samples, and the seconds between these samples, to cells. A
    # cell is None if there is no value. If the function is None, the counters are levels and become cells unchanged.
    cells: Callable[[Sequence[int], float], Sequence[float | None]] | None


def find_counters(paths: Sequence[Path]) -> tuple[list[TraceCounter], dict[str, str]]:
    """Return the sources to sample, and the state of each source by name.

    The states also contain each path for which there is no source.
    """
    traffic: dict[str, Traffic] = {}
    models: dict[Path, None] = {}
    states = {}
    for path in paths:
        try:
            path_traffic = traffic_counters(path)
            # Only a loop device can have an emulation server. A path on a network file system is not accessed here.
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
    """Return the number of requests to an emulated storage, the sum of their durations, and the busy time (in µs)."""
    report = ask_server(model)
    return report["reads"] + report["writes"], round(report["queue_s"] * 1e6), round(report["busy_s"] * 1e6)


def _model_rates(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return the requests per second, the mean number of requests in flight, and the busy time in percent.

    All are None if the counters were reset, because the server was started again.
    """
    if min(counts) < 0:
        return [None] * len(counts)
    requests, queue_us, busy_us = counts
    return [requests / seconds, queue_us / 1e6 / seconds, busy_us / 1e4 / seconds]


def _process_bytes() -> tuple[int, ...]:
    counts = dict(line.split(": ") for line in read_kernel("/proc/self/io").splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def _io_pressure_us() -> tuple[int, ...]:
    """Return the microseconds in which at least one task, and in which all busy tasks, waited for I/O.

    The kernel's documentation (accounting/psi.rst) describes these counters.
    """
    some, full = read_kernel("/proc/pressure/io").splitlines()
    return int(some.rpartition("total=")[2]), int(full.rpartition("total=")[2])


def _cpu_ticks() -> tuple[int, ...]:
    """Return the CPU ticks of the whole machine: user and nice, system and interrupts, idle, I/O wait, stolen."""
    line = read_kernel("/proc/stat").partition("\n")[0]
    user, nice, system, idle, wait, irq, softirq, steal = map(int, line.split()[_CPU_FIELDS])
    return user + nice, system + irq + softirq, idle, wait, steal


def _memory_bytes() -> tuple[int, ...]:
    """Return four numbers of bytes: resident memory of this process, page cache, dirty pages, pages in writeback."""
    pages = int(read_kernel("/proc/self/statm").split()[_RSS])
    kib = dict(_MEMORY.findall(read_kernel("/proc/meminfo")))
    return pages * _PAGE_BYTES, *(int(kib[line]) * _KIB for line in ("Cached", "Dirty", "Writeback"))


def _rates_per_s(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return the counts per second, or None for a counter that was reset (root can reset Lustre's counters)."""
    return [count / seconds if count >= 0 else None for count in counts]


def _percent_of_time(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Convert microseconds to percent of the elapsed `seconds`."""
    return [count / 1e6 / seconds * 100 for count in counts]


def _percent_of_sum(counts: Sequence[int], _seconds: float) -> Sequence[float | None]:
    """Convert counts of ticks to percent of the sum of all counts; the results are None if no tick has passed."""
    ticks = [max(0, count) for count in counts]
    return [100 * tick / sum(ticks) if any(ticks) else None for tick in ticks]


def error_in_one_line(error: Exception) -> str:
    """Return a text of one line that describes an error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


class _Sample(NamedTuple):
    """The counters of all sources at one moment; the counters of an unreadable source are None.

    `at_s` is the moment by the clock of the trace, and `epoch_s` is the Unix time.
    """

    at_s: float
    epoch_s: float
    counts: tuple[tuple[int, ...] | None, ...]


class TraceClock:
    """The clock of the trace, with a function that waits; tests replace this clock."""

    now = staticmethod(time.perf_counter)

    def wait(self, stop: threading.Lock, until_s: float) -> bool:
        """Wait until the time `until_s`, or until another thread releases the lock `stop`.

        Return whether the lock was released, which means that the trace must stop.
        """
        return stop.acquire(timeout=max(0.0, until_s - self.now()))


class SystemTrace:
    """A trace of the system from `start` to `stop`, and for `tail_s` seconds longer.

    If the run has snapshots, the trace also continues until all snapshots are on the slow storage: `finish` calls
    `settle`, which waits for this. Samples are taken at fixed intervals. If a late sample comes less than half an
    interval before the next sample, the next sample is left out. Rates are calculated over the time that has really
    passed, so that their sums equal the kernel's counts. The trace of a failed run ends with `stop`.
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
        self._stop = threading.Lock()  # a release of the lock stops the thread; a threading.Event takes 0.2 ms longer
        self._stop.acquire()
        self._thread: threading.Thread | None = None
        self._cpu_s = self._late_s = 0.0
        self._summary: dict[str, Any] | None = None

    def start(self) -> None:
        """Take the first sample, and start the thread that takes further samples."""
        self._sample()
        self._watch(until_s=math.inf)

    def stop(self, *, failed: bool = False) -> None:
        """Take the sample at the end of the iteration; if the run failed, end the trace."""
        self._end_watch()
        if len(self._samples) > 1 and self.clock.now() - self._samples[-1].at_s < self._interval_s / 2:
            self._samples.pop()  # rates over a very short time would show false peaks
        self._sample()
        self._ended_s = self._samples[-1].at_s
        if failed:
            self._conclude()
        elif self._settle:
            self._watch(until_s=math.inf)
        elif self._tail_s > 0:
            self._watch(until_s=self._ended_s + self._tail_s)

    def finish(self, edges: tuple[ObservedEdge, ObservedEdge] | None = None) -> dict[str, Any]:
        """Wait for the end of the trace, write the CSV, and return a summary.

        If `edges` are given, they replace the samples at the begin and at the end of the iteration, so that the trace
        agrees with the run's counters. The keys of the summary are:

        - ``file``: name of the CSV; None if the CSV could not be written, and then ``error`` has the reason;
        - ``interval_s``, ``tail_s``: the settings of the trace;
        - ``samples``: number of samples;
        - ``sources``: for each source, ``ok`` or the reason why it could not be read;
        - ``cpu_s``: CPU seconds of the sampling thread;
        - ``late_s``: the largest delay of a sample.
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
        """Replace the samples at the begin and at the end of the iteration by samples at the given edges."""
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
        self._stop.release()  # the sampling thread acquires the lock again and ends
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _tick(self, origin_s: float, until_s: float) -> None:
        """Take a sample at each interval after `origin_s`, and a last sample at `until_s`, or end when stopped."""
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
        """Return the counters of a source, or None after an error; a source is not read again after an error."""
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
        """Yield two header rows, and then one row per sample with the changes since the previous sample."""
        headings = [(None if index else s.name, name) for s in self._sources for index, name in enumerate(s.columns)]
        yield from zip(("epoch", "epoch"), ("elapsed", "s"), *headings, ("phase", "phase"), strict=True)
        previous = None
        for sample in self._samples:
            phase = "iteration" if sample.at_s <= self._ended_s else "tail"
            cells = [cell for index in range(len(self._sources)) for cell in self._cells(index, previous, sample)]
            yield [round(sample.epoch_s, 3), round(sample.at_s - self._samples[0].at_s, 6), *cells, phase]
            previous = sample

    def _cells(self, index: int, previous: _Sample | None, after: _Sample) -> Sequence[float | None]:
        """Return the cells of the source number `index` for one sample.

        The first sample has only levels, because there is no previous sample from which to calculate a rate.
        """
        source, counts = self._sources[index], after.counts[index]
        previous_counts = previous.counts[index] if previous else None
        if counts is not None and source.cells is None:
            return counts
        if counts is None or previous_counts is None or previous is None or source.cells is None:
            return [None] * len(source.columns)
        differences = [late - early for late, early in zip(counts, previous_counts, strict=True)]
        return source.cells(differences, after.at_s - previous.at_s)


class TraceObserver(Observer):
    """Makes a system trace of a run, with the storages of data set and snapshots, if the request asks for a trace."""

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
        """Start the trace."""
        if self._trace:
            self._trace.start()

    def stop(self, *, failed: bool) -> None:
        """Take the sample at the end of the iteration."""
        if self._trace:
            self._trace.stop(failed=failed)

    def metrics(self) -> Mapping[str, Any]:
        """Return ``trace``: the result of `SystemTrace.finish`, or None for a run without a trace."""
        if self._trace is None:
            return {"trace": None}
        edges = next((observer.edges for observer in self.beside if isinstance(observer, CountersObserver)), None)
        return {"trace": self._trace.finish(edges)}


def _next_tick(now_s: float, interval_s: float) -> float:
    """Return the first multiple of the interval that is more than half an interval after `now_s`."""
    return (math.floor(now_s / interval_s + 0.5) + 1) * interval_s


def _format_cell(cell: float | str | None) -> str:
    """Return a cell in the format of dstat: words with quotes, numbers without quotes, and an empty text for None."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return '"' + cell.replace('"', '""') + '"'
    return f"{cell:.6f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)


OBSERVERS = (TraceObserver,)
