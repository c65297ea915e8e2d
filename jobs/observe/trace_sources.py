"""What a trace samples: each source is a group of columns, read from the kernel and turned into cells."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from jobs.system.device import mount_of, read_kernel
from jobs.system.emulated import model_behind, served
from jobs.system.traffic import Traffic, traffic_behind

OK = "ok"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KIB = 1024
_CPU_FIELDS = slice(1, 9)  # of the "cpu" line of /proc/stat; guest time, behind them, is contained in user and nice
_MEMORY = re.compile(r"^(Cached|Dirty|Writeback): +(\d+) kB", re.MULTILINE)  # of /proc/meminfo; its kB are KiB
_RSS = 1  # field of /proc/self/statm, in pages


@dataclass(frozen=True)
class Source:
    """A group of columns."""

    # The two rows of the header.
    name: str
    columns: tuple[str, ...]
    # Takes the kernel's counts now; may raise OSError, or ValueError or LookupError for text of another form.
    read: Callable[[], tuple[int, ...]]
    # Turns the difference of two counts and the seconds between them into cells, None where they tell nothing; or None:
    # the counts are levels and are shown as they are.
    cells: Callable[[Sequence[int], float], Sequence[float | None]] | None


def sources_of(paths: Sequence[Path]) -> tuple[list[Source], dict[str, str]]:
    """Find what there is to sample; a path of which nothing can be told has a line among the states."""
    traffic: dict[str, Traffic] = {}
    models: dict[Path, None] = {}
    states = {}
    for path in paths:
        try:
            found = traffic_behind(path)
            # A model serves a loop device; a path on a network is not touched to find that out.
            model = model_behind(path) if any(name.startswith("dsk/loop") for name in found) else None
        except OSError as error:
            states[str(path)] = f"not readable: {reason(error)}"
            continue
        traffic.update(found)
        models |= {model: None} if model else {}
        if not found:
            states[str(path)] = f"no device and no client's statistics: {mount_of(path).fstype}"
    sources = [
        *(Source(name, ("read", "writ"), read, _rates) for name, read in traffic.items()),
        *(Source(f"model/{model.stem}", ("req", "depth", "busy"), partial(_model, model), _served) for model in models),
        Source("process", ("read", "writ"), _process, _rates),
        Source("io pressure", ("some", "full"), _pressure, _shares),
        Source("total cpu usage", ("usr", "sys", "idl", "wai", "stl"), _cpu, _percents),
        Source("memory usage", ("rss", "cach", "dirty", "wback"), _memory, None),
    ]
    return sources, {source.name: OK for source in sources} | states


def _model(model: Path) -> tuple[int, ...]:
    """Return requests, microseconds of all of them, and microseconds with one in flight, of a model's storage."""
    said = served(model)
    return said["reads"] + said["writes"], round(said["queue_s"] * 1e6), round(said["busy_s"] * 1e6)


def _served(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Return requests a second, how many are in flight on average, and in which percent of the time one is."""
    requests, queue_us, busy_us = counts
    return [requests / seconds, queue_us / 1e6 / seconds, busy_us / 1e4 / seconds]


def _process() -> tuple[int, ...]:
    counts = dict(line.split(": ") for line in read_kernel("/proc/self/io").splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def _pressure() -> tuple[int, ...]:
    """Microseconds in which some, and in which all tasks that had work waited for I/O (accounting/psi.rst)."""
    some, full = read_kernel("/proc/pressure/io").splitlines()
    return int(some.rpartition("total=")[2]), int(full.rpartition("total=")[2])


def _cpu() -> tuple[int, ...]:
    """Ticks of the whole machine: user and nice, system with interrupts, idle, waiting for I/O, stolen."""
    line = read_kernel("/proc/stat").partition("\n")[0]
    user, nice, system, idle, wait, irq, softirq, steal = map(int, line.split()[_CPU_FIELDS])
    return user + nice, system + irq + softirq, idle, wait, steal


def _memory() -> tuple[int, ...]:
    """Bytes resident of this process, in the page cache, dirty there, and being written."""
    pages = int(read_kernel("/proc/self/statm").split()[_RSS])
    kib = dict(_MEMORY.findall(read_kernel("/proc/meminfo")))
    return pages * _PAGE_BYTES, *(int(kib[line]) * _KIB for line in ("Cached", "Dirty", "Writeback"))


def _rates(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Per second; None where a counter was set back (Lustre's may be, by root)."""
    return [count / seconds if count >= 0 else None for count in counts]


def _shares(counts: Sequence[int], seconds: float) -> Sequence[float | None]:
    """Percent of the time, of microseconds."""
    return [count / 1e6 / seconds * 100 for count in counts]


def _percents(counts: Sequence[int], _seconds: float) -> Sequence[float | None]:
    """Percent of their sum; None where no tick passed. The kernel's waiting time may decrease (proc(5)): taken as 0."""
    ticks = [max(0, count) for count in counts]
    return [100 * tick / sum(ticks) if any(ticks) else None for tick in ticks]


def reason(error: Exception) -> str:
    """Return in one line why something could not be read or written."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
