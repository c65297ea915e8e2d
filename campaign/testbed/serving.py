"""Measure the CPU seconds per request and per GB that the kernel's threads need to serve an emulated storage.

The check `quiet` does not count this CPU time as a disturbance of a run (`jobs.checks.serving_s`). A model's server
counts its own CPU time.
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
from jobs.system import files
from jobs.system.layers import account_of_storage

if TYPE_CHECKING:
    from jobs.model.settings import Node
    from jobs.system.layers import ServingCosts

_SMALL, _LARGE = 4096, 112 << 10  # bytes; the second is the paper's median image (Chien et al. 2018, IV)
_WRITTEN = 8 << 20
_READERS = 4
_TIMES, _WINDOW_S, _IDLE_S = 5, 0.1, 0.03
_KTHREADD = 2  # process id of kthreadd, the parent of all kernel threads
_FILE = ".tfio-serving.tmp"


@dataclass(frozen=True)
class ServingInterval:
    """The CPU time of the kernel's threads in an interval, and the requests to a storage in this interval."""

    elapsed_s: float
    cpu_s: float
    requests: int = 0
    moved_gb: float = 0.0


def measure_costs(point: Path, loop: Path, file: Path, identity: Node) -> None:
    """Measure the kernel's CPU costs to serve a storage, and write the costs and the storage's identity into `file`.

    `point` is the mount point and `loop` is the loop device of the storage. On a read-only or full file system, only
    reads are measured. Raise EnvironmentFaultError if the storage fails.
    """
    workloads = (
        partial(time.sleep, _IDLE_S),
        partial(_read_blocks, loop, _SMALL),
        partial(_read_blocks, loop, _LARGE),
        partial(_write_file, point),
    )
    try:
        windows = [[_observe_window(point, workload) for workload in workloads] for _ in range(_TIMES)]
    except (OSError, ValueError) as error:
        raise EnvironmentFaultError(
            f"{point} cannot be measured: {error}", "python -m campaign testbed status"
        ) from error
    files.write_json(file, {**identity, **costs_of_windows(*zip(*windows, strict=True))})


def costs_of_windows(
    idle: Iterable[ServingInterval],
    small: Iterable[ServingInterval],
    large: Iterable[ServingInterval],
    written: Iterable[ServingInterval],
) -> ServingCosts:
    """Return the CPU seconds per request, and the additional CPU seconds per GB read and per GB written.

    The cost per request comes from small requests, and the cost per GB from large requests. The costs are medians over
    several windows. The CPU time that the kernel uses while idle is subtracted.
    """
    idle_cores = statistics.median(window.cpu_s / window.elapsed_s for window in idle)

    def cost(windows: Iterable[ServingInterval], unit: str, request_s: float = 0.0) -> float:
        cpu_and_units = (
            (window.cpu_s - idle_cores * window.elapsed_s - request_s * window.requests, getattr(window, unit))
            for window in windows
        )
        return max(0.0, statistics.median(cpu_s / count if count else 0.0 for cpu_s, count in cpu_and_units))

    request = cost(small, "requests")
    read, write = (cost(windows, "moved_gb", request) for windows in (large, written))
    return {"request_cpu_s": request, "read_gb_cpu_s": read, "written_gb_cpu_s": write}


def _read_blocks(loop: Path, block: int) -> None:
    """Read blocks of the loop device at random offsets with direct I/O, in several threads."""
    device = os.open(loop, os.O_RDONLY | os.O_DIRECT)
    blocks, deadline = os.lseek(device, 0, os.SEEK_END) // block, time.monotonic() + _WINDOW_S

    def read(seed: int) -> None:
        generator, buffer = random.Random(seed), mmap.mmap(-1, block)  # noqa: S311 - places, not secrets
        while time.monotonic() < deadline:
            os.preadv(device, [buffer], generator.randrange(blocks) * block)

    try:
        with ThreadPoolExecutor(_READERS) as readers:
            list(readers.map(read, range(_READERS)))
    finally:
        os.close(device)


def _write_file(point: Path) -> None:
    """Write, flush and remove a file; do nothing if the file system is read-only or has too little space."""
    if os.statvfs(point).f_flag & os.ST_RDONLY or files.free_bytes(point) < 4 * _WRITTEN:
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


def _observe_window(point: Path, workload: Callable[[], object]) -> ServingInterval:
    old_account, old_thread_ns, began = account_of_storage(point), _kernel_thread_ns(), time.monotonic()
    workload()
    elapsed_s, new_thread_ns, new_account = time.monotonic() - began, _kernel_thread_ns(), account_of_storage(point)
    if old_account is None or new_account is None:
        raise OSError("the storage does not count its requests")
    counts = {
        key: new_account.counts[key] - old_account.counts[key]
        for key in ("reads", "writes", "read_bytes", "written_bytes")
    }
    moved_gb = (counts["read_bytes"] + counts["written_bytes"]) / 1e9
    cpu_ns = sum(new_ns - old_thread_ns.get(pid, 0) for pid, new_ns in new_thread_ns.items())
    return ServingInterval(elapsed_s, cpu_ns / 1e9, int(counts["reads"] + counts["writes"]), moved_gb)


def _kernel_thread_ns() -> dict[int, int]:
    """Return the CPU time (ns) of each kernel thread by thread id; empty in a container without kernel threads."""
    times = {}
    for process in psutil.process_iter(["ppid"]):
        if process.info["ppid"] == _KTHREADD:
            with suppress(OSError, ValueError, IndexError):
                times[process.pid] = int(Path(f"/proc/{process.pid}/schedstat").read_text(encoding="ascii").split()[0])
    return times
