"""Observer of the whole system: a thread samples the kernel's counters, one CSV a run in the columns of dstat.

Sampled are the devices behind the run's paths (each once; network file systems by their client's statistics), the
bytes of this process, I/O pressure, CPU and memory (`jobs.observe.trace_sources`). A source that cannot be read is
named as such and stays empty; nothing here makes a run fail.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jobs.model.request import Request
from jobs.observe.counters import Counters, Edge
from jobs.observe.observer import Observer
from jobs.observe.trace_sources import OK, Source, reason, sources_of
from jobs.ready_run import Work
from jobs.system import files


class _Sample(NamedTuple):
    """Counts of all sources (None: not readable) at `at_s` of the clock, Unix time `epoch_s`."""

    at_s: float
    epoch_s: float
    counts: tuple[tuple[int, ...] | None, ...]


class Clock:
    """What time it is, and the wait for a time or for a lock that is let go; tests move one by hand."""

    now = staticmethod(time.perf_counter)

    def wait(self, stop: threading.Lock, until_s: float) -> bool:
        """Wait until then at most; return whether the lock was let go: it says stop."""
        return stop.acquire(timeout=max(0.0, until_s - self.now()))


class Trace:
    """Sample from `start` to `stop`, on while `settle` runs (a drain, say, begun by `finish`), then for `tail_s`.

    Samples are due on a fixed grid. One that is so late that the next is nearer than half an interval replaces that;
    rates are over the time that really passed, so their sums are what the kernel counted.
    A run that failed has no tail.
    """

    clock = Clock()

    def __init__(
        self,
        paths: Sequence[Path],
        interval_s: float,
        tail_s: float,
        file: Path,
        settle: Callable[[], object] | None = None,
    ) -> None:
        self._interval_s, self._tail_s, self._file, self._settle = interval_s, tail_s, file, settle
        self._sources, self._states = sources_of(paths)
        self._samples: list[_Sample] = []
        self._ended_s = math.inf
        self._stop = threading.Lock()  # let go, it says stop; to wait for an Event, which is Python, costs 0.2 ms more
        self._stop.acquire()
        self._thread: threading.Thread | None = None
        self._cpu_s = self._late_s = 0.0
        self._summary: dict[str, Any] | None = None
        self._edges: tuple[Edge, Edge] | None = None

    def start(self) -> None:
        """Take the first sample, at time zero."""
        self._sample()
        self._watch(until_s=math.inf)

    def stop(self, *, failed: bool = False) -> None:
        """Take the sample that ends the iteration; a run that failed ends the trace too."""
        self._end_watch()
        if len(self._samples) > 1 and self.clock.now() - self._samples[-1].at_s < self._interval_s / 2:
            self._samples.pop()  # counts over so short a time, divided by it, would show peaks that were none
        self._sample()
        self._ended_s = self._samples[-1].at_s
        if failed:
            self._conclude()
        elif self._settle:
            self._watch(until_s=math.inf)
        elif self._tail_s > 0:
            self._watch(until_s=self._ended_s + self._tail_s)

    def align(self, first: Edge, last: Edge) -> None:
        """Let the iteration begin and end where the counters of the run were read, with what they counted."""
        self._edges = first, last

    def finish(self) -> dict[str, Any]:
        """Wait for what goes on and for the end of the tail, and write the CSV, whole or not at all.

        Returns ``file`` (name of the CSV; None where it could not be written, then ``error`` says why), ``interval_s``,
        ``tail_s``, ``samples``, ``sources`` (name to ``ok`` or what is wrong with it), ``cpu_s`` (of the sampling
        thread) and ``late_s`` (of the sample that was latest).
        """
        if self._summary is None and self._settle:
            self._settle()
            self._end_watch()
            self._watch(until_s=self.clock.now() + self._tail_s)
        return self._conclude()

    def _conclude(self) -> dict[str, Any]:
        if self._summary is None:
            self._join()
            if self._edges:
                self._take(*self._edges)
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

    def _take(self, first: Edge, last: Edge) -> None:
        """Put the edges in the place of the first sample and of that which ended the iteration."""
        start, *inside = (sample for sample in self._samples if sample.at_s <= self._ended_s)
        end, tail = inside.pop(), [sample for sample in self._samples if sample.at_s > self._ended_s]
        within = [sample for sample in inside if first.at_s < sample.at_s < last.at_s]
        self._samples = [self._at(first, start), *within, self._at(last, end), *tail]
        self._ended_s = last.at_s

    def _at(self, edge: Edge, sample: _Sample) -> _Sample:
        counts = (edge.counts.get(s.name, count) for s, count in zip(self._sources, sample.counts, strict=True))
        return _Sample(edge.at_s, sample.epoch_s + edge.at_s - sample.at_s, tuple(counts))

    def _watch(self, until_s: float) -> None:
        origin_s = self._samples[-1].at_s
        self._thread = threading.Thread(target=self._tick, args=(origin_s, until_s), name="trace", daemon=True)
        self._thread.start()

    def _end_watch(self) -> None:
        self._stop.release()  # the thread takes it again
        self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _tick(self, origin_s: float, until_s: float) -> None:
        """Sample at each interval after `origin_s`, and at `until_s`, unless told to stop."""
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

    def _read(self, source: Source) -> tuple[int, ...] | None:
        """Read a source; one that failed is not asked again, so that its cells end where its sums do."""
        if self._states[source.name] != OK:
            return None
        try:
            return source.read()
        except (OSError, ValueError, LookupError) as error:
            self._states[source.name] = f"not readable: {reason(error)}"
            return None

    def _write(self) -> dict[str, str | None]:
        text = "".join(",".join(_quoted(cell) for cell in row) + "\n" for row in self._rows())
        try:
            files.write(self._file, text.encode("utf-8", "replace").decode("utf-8"))
        except OSError as error:
            return {"file": None, "error": reason(error)}
        return {"file": self._file.name, "error": None}

    def _rows(self) -> Iterator[Sequence[Any]]:
        """Yield two rows of header, then one for each sample: what happened since the one before it."""
        named = [(None if place else s.name, column) for s in self._sources for place, column in enumerate(s.columns)]
        yield from zip(("epoch", "epoch"), ("elapsed", "s"), *named, ("phase", "phase"), strict=True)
        before = None
        for sample in self._samples:
            phase = "iteration" if sample.at_s <= self._ended_s else "tail"
            cells = [cell for place in range(len(self._sources)) for cell in self._cells(place, before, sample)]
            yield [round(sample.epoch_s, 3), round(sample.at_s - self._samples[0].at_s, 6), *cells, phase]
            before = sample

    def _cells(self, place: int, before: _Sample | None, after: _Sample) -> Sequence[float | None]:
        """Return the cells of the source at `place` in one row; the first row has levels alone."""
        source, now = self._sources[place], after.counts[place]
        then = before.counts[place] if before else None
        if now is not None and source.cells is None:
            return now
        if now is None or then is None or before is None or source.cells is None:
            return [None] * len(source.columns)
        return source.cells([late - early for late, early in zip(now, then, strict=True)], after.at_s - before.at_s)


class Traced(Observer):
    """The trace of a run, where one is asked for: what holds the dataset, and what holds the snapshots."""

    place = 80
    gives = ("trace",)

    def __init__(self, request: Request, work: Work) -> None:
        super().__init__(request, work)
        self._trace: Trace | None = None
        if asked := request.get("trace"):
            saved = work.checkpoints
            folders, settle = (saved.folders, saved.settle) if saved else ((), None)
            file = Path(asked["file"])
            self._trace = Trace([*work.folders, *folders], asked["interval_s"], asked["tail_s"], file, settle)

    def start(self) -> None:
        """Begin to sample."""
        if self._trace:
            self._trace.start()

    def stop(self, *, failed: bool) -> None:
        """End the iteration."""
        if self._trace:
            self._trace.stop(failed=failed)

    def metrics(self) -> Mapping[str, Any]:
        """Return what `Trace.finish` says, None without a trace."""
        if self._trace is None:
            return {"trace": None}
        for counters in (each for each in self.beside if isinstance(each, Counters)):
            self._trace.align(*counters.edges)
        return {"trace": self._trace.finish()}


OBSERVER = Traced


def _next_tick(now_s: float, interval_s: float) -> float:
    """Return the first multiple of the interval that is more than half an interval away."""
    return (math.floor(now_s / interval_s + 0.5) + 1) * interval_s


def _quoted(cell: float | str | None) -> str:
    """Write a cell as dstat does: words in quotes, numbers without, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return '"' + cell.replace('"', '""') + '"'
    return f"{cell:.6f}".rstrip("0").rstrip(".") if isinstance(cell, float) else str(cell)
