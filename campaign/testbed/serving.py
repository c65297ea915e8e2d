"""Measure what the kernel takes to serve an emulated storage: CPU seconds of its threads by request and by GB.

The check `quiet` allows a run just that (`jobs.checks.serving_s`); what a model's server takes it counts itself.
"""

from __future__ import annotations

import mmap
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from campaign.errors import EnvironmentFaultError
from jobs.system import durable, files
from jobs.system.emulated import account

if TYPE_CHECKING:
    from jobs.model.settings import Node
    from jobs.system.emulated import Costs

_SMALL, _LARGE = 4096, 112 << 10  # bytes; the second is the paper's median image (Chien et al. 2018, IV)
_WRITTEN = 8 << 20
_READERS = 4
_TIMES, _WINDOW_S, _IDLE_S = 5, 0.1, 0.03
_KTHREADD = 2  # the parent of all threads of the kernel
_FILE = ".tfio-serving.tmp"


@dataclass(frozen=True)
class Window:
    """What the kernel did in some time, and what was asked of a storage in it."""

    took_s: float
    cpu_s: float
    requests: int = 0
    moved_gb: float = 0.0


def measure(point: Path, loop: Path, file: Path, of: Node) -> None:
    """Measure the storage that is mounted at `point` from `loop`; its costs, and what they are `of`, go into `file`.

    A file system that is read-only, or full, is not written to. Raises EnvironmentFaultError where the storage fails.
    """
    asks = (
        partial(time.sleep, _IDLE_S),
        partial(_read, loop, _SMALL),
        partial(_read, loop, _LARGE),
        partial(_write, point),
    )
    try:
        found = [[_window(point, ask) for ask in asks] for _ in range(_TIMES)]
    except (OSError, ValueError) as error:
        raise EnvironmentFaultError(
            f"{point} cannot be measured: {error}", "python -m campaign testbed status"
        ) from error
    files.write_json(file, {**of, **costs(*zip(*found, strict=True))})


def costs(idle: Iterable[Window], small: Iterable[Window], large: Iterable[Window], written: Iterable[Window]) -> Costs:
    """Return what a request costs by small ones, and a GB by what large ones cost more; 0 where nothing was asked.

    Medians of several windows; what the kernel does at idle moments is taken off.
    """
    idle_cores = statistics.median(each.cpu_s / each.took_s for each in idle)

    def cost(windows: Iterable[Window], unit: str, request_s: float = 0.0) -> float:
        spent = ((w.cpu_s - idle_cores * w.took_s - request_s * w.requests, getattr(w, unit)) for w in windows)
        return max(0.0, statistics.median(cpu_s / count if count else 0.0 for cpu_s, count in spent))

    request = cost(small, "requests")
    read, write = (cost(windows, "moved_gb", request) for windows in (large, written))
    return {"request_cpu_s": request, "read_gb_cpu_s": read, "written_gb_cpu_s": write}


def _read(loop: Path, block: int) -> None:
    """Read blocks at random places past the page cache, several at once."""
    device = os.open(loop, os.O_RDONLY | os.O_DIRECT)
    blocks, until = os.lseek(device, 0, os.SEEK_END) // block, time.monotonic() + _WINDOW_S

    def read(seed: int) -> None:
        chance, buffer = random.Random(seed), mmap.mmap(-1, block)  # noqa: S311 - places, not secrets
        while time.monotonic() < until:
            os.preadv(device, [buffer], chance.randrange(blocks) * block)

    try:
        with ThreadPoolExecutor(_READERS) as readers:
            list(readers.map(read, range(_READERS)))
    finally:
        os.close(device)


def _write(point: Path) -> None:
    """Write a file, flush it and take it away; nothing where there is no room."""
    if os.statvfs(point).f_flag & os.ST_RDONLY or durable.free_bytes(point) < 4 * _WRITTEN:
        return
    file = point / _FILE
    try:
        with file.open("wb") as opened:
            for _ in range(_WRITTEN // _LARGE):
                opened.write(bytes(_LARGE))
            opened.flush()
            os.fsync(opened.fileno())
    finally:
        file.unlink(missing_ok=True)


def _window(point: Path, ask: Callable[[], object]) -> Window:
    before, threads, began = account(point), _kernel_ns(), time.monotonic()
    ask()
    took_s, later, after = time.monotonic() - began, _kernel_ns(), account(point)
    if before is None or after is None:
        raise OSError("it does not say what was asked of it")
    count = {key: after.counts[key] - before.counts[key] for key in ("reads", "writes", "read_bytes", "written_bytes")}
    moved_gb = (count["read_bytes"] + count["written_bytes"]) / 1e9
    cpu_ns = sum(now - threads.get(pid, 0) for pid, now in later.items())
    return Window(took_s, cpu_ns / 1e9, int(count["reads"] + count["writes"]), moved_gb)


def _kernel_ns() -> dict[int, int]:
    """Return the CPU time of each thread of the kernel; nothing in a container that does not see them."""
    found = {}
    for process in psutil.process_iter(["ppid"]):
        if process.info["ppid"] == _KTHREADD:
            with suppress(OSError, ValueError, IndexError):
                found[process.pid] = int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    return found
