"""Load files into the page cache or remove files from the page cache, in a notebook or a test, and check the result.

::

    from jobs.cold import cold_files, warm_files

    with cold_files("/data/images") as proof:
        train()
    print(proof.fetched_bytes, proof.read_bytes)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jobs import program_checks
from jobs.errors import JobError
from jobs.model.conduct import Limits
from jobs.model.results import Check
from jobs.observe.counters import process_io
from jobs.program_checks import at_least, at_most
from jobs.system import page_cache, untrusted
from jobs.system.device import combine_devices, device_of
from jobs.system.layers import Layers, layers_below
from jobs.system.page_cache import PAGE_BYTES, Residency


class CacheError(JobError):
    """Raised if files do not get into the requested state (cold or warm), or do not stay in this state."""


@dataclass
class CacheProof:
    """The measured state of the page cache before and after the body of the context.

    `after`, `read_bytes` and `fetched_bytes` are set at the end of the context.
    """

    files: int
    bytes: int
    before: float | None  # share of the files' pages in memory; None if unknown
    after: float | None = None
    read_bytes: int | None = None  # bytes of the files that came into memory; None if unknown
    fetched_bytes: int | None = None  # bytes fetched from devices by this process and its ended child processes


@contextmanager
def cold_files(*paths: str | os.PathLike[str]) -> Iterator[CacheProof]:
    """Remove files, and all files below folders, from the page cache before the body of the context.

    Raises CacheError if files stay in memory, or if the kernel does not show whether files stay in memory. Raises
    CacheError also at the end of the context, if the data that the body read did not come from the device.
    """
    yield from _with_proof("cold", paths)


@contextmanager
def warm_files(*paths: str | os.PathLike[str]) -> Iterator[CacheProof]:
    """Read files, and all files below folders, into the page cache before the body of the context.

    Raises CacheError if the files do not fit into memory. Raises CacheError also at the end of the context, if files
    were dropped from memory or came from the device.
    """
    yield from _with_proof("warm", paths)


def _with_proof(state: Literal["cold", "warm"], paths: tuple[str | os.PathLike[str], ...]) -> Iterator[CacheProof]:
    limits, files = Limits(), _list_files(paths)
    folders = {path.stat().st_dev: path.parent for path in files}.values()  # one folder per file system
    layers = layers_below(*folders)
    before = _prepare(state, files, layers)
    _require_passed(_check_state(state, before, layers, limits))
    proof = CacheProof(len(files), sum(path.stat().st_size for path in files), before.fraction)
    device = combine_devices([device_of(folder) for folder in folders])
    counts_before = process_io(), device.read_counters().read_bytes if device else None
    yield proof
    io_after, residency = process_io(), page_cache.residency(files)
    fetched_bytes = io_after["read_bytes"] - counts_before[0]["read_bytes"] if io_after and counts_before[0] else None
    device_bytes = (
        device.read_counters().read_bytes - counts_before[1] if device and counts_before[1] is not None else None
    )
    cached_bytes = None if residency.unverifiable else residency.resident * PAGE_BYTES
    proof.after, proof.fetched_bytes = residency.fraction, fetched_bytes
    proof.read_bytes = cached_bytes if state == "cold" else None
    run: Any = {"device_bytes": fetched_bytes, "device_read_bytes": device_bytes, "data_bytes": proof.bytes}
    run |= {"data_in_memory_bytes": cached_bytes, "data_pages_bytes": residency.pages * PAGE_BYTES}
    run |= {"device": device.name if device else None}
    run |= {"to_fetch_bytes": None if before.fetch.unknown else before.fetch.bytes}
    if state == "cold":
        _require_passed(program_checks.from_device(run, limits))
    else:
        _require_passed(_check_state("warm", residency, layers, limits))
        _require_passed(program_checks.from_memory(run, limits))


def _list_files(paths: tuple[str | os.PathLike[str], ...]) -> list[Path]:
    """Return the distinct files at and below the paths."""
    files: dict[tuple[int, int], Path] = {}
    for path in map(Path, paths):
        entries = untrusted.files_below(path) if path.is_dir() else [(path, path.stat())]
        files |= {(status.st_dev, status.st_ino): file for file, status in entries if file.is_file()}
    if not files:
        raise CacheError(
            f"no file in {', '.join(map(str, paths)) or 'nothing'}", "name files, or folders that contain files"
        )
    return list(files.values())


def _prepare(state: str, files: list[Path], layers: Layers) -> Residency:
    if state == "warm":
        page_cache.read_through(files)
        return page_cache.residency(files)
    residency = page_cache.drop_from_cache(files, files, files[0].parent)
    layers.drop_from_cache()
    return residency


def _check_state(state: str, residency: Residency, layers: Layers, limits: Limits) -> Check:
    share = 1.0 if layers.in_memory else None if layers.hidden else residency.fraction
    message = (
        "it is unknown which pages of these files are in memory"
        if share is None
        else f"{share:.1%} of the pages are in memory"
    )
    if state == "cold":
        return at_most("cold", share, limits.resident_max, "; ".join([message, *layers.in_memory]))
    return at_least("warm", residency.fraction, 1 - limits.resident_max, message)


def _require_passed(check: Check) -> None:
    if not check["passed"]:
        verdict = "cannot be proved" if check["passed"] is None else "does not hold"
        raise CacheError(f"{check['rule']} {verdict}: {check['message']}", "see docs/reference/stall.md")
