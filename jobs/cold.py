"""Control of the page cache in a notebook or test: files out of memory or in it, with proof before and after.

::

    from jobs.cold import cold, warm

    with cold("/data/images") as proof:
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
    """Files that are not in the requested state, or did not stay in it."""


@dataclass
class Proof:
    """The share of the files in memory and the bytes fetched; the values `after` are set at the end of the context."""

    files: int
    bytes: int
    before: float | None  # share of the pages in memory; None if the kernel does not tell
    after: float | None = None
    read_bytes: int | None = None  # bytes of the files that came into memory; None if unknown
    fetched_bytes: int | None = None  # from devices, for this process and its ended children


@contextmanager
def cold(*paths: str | os.PathLike[str]) -> Iterator[Proof]:
    """Remove files, and all files below folders, from memory for the body of the context.

    Raises CacheError if some stay in memory, or if that is unknown; and at the end if the data read did not come from
    their device.
    """
    yield from _within("cold", paths)


@contextmanager
def warm(*paths: str | os.PathLike[str]) -> Iterator[Proof]:
    """Read files, and all files below folders, into memory for the body of the context.

    Raises CacheError if they do not fit; and at the end if some left the memory, or came from their device.
    """
    yield from _within("warm", paths)


def _within(state: Literal["cold", "warm"], paths: tuple[str | os.PathLike[str], ...]) -> Iterator[Proof]:
    limits, files = Limits(), _files(paths)
    folders = {path.stat().st_dev: path.parent for path in files}.values()  # one per file system
    below = layers_below(*folders)
    before = _brought(state, files, below)
    _require(_state(state, before, below, limits))
    proof = Proof(len(files), sum(path.stat().st_size for path in files), before.fraction)
    device = combine_devices([device_of(folder) for folder in folders])
    counts = process_io(), device.use().read_bytes if device else None
    yield proof
    io, left = process_io(), page_cache.residency(files)
    fetched = io["read_bytes"] - counts[0]["read_bytes"] if io and counts[0] else None
    device_bytes = device.use().read_bytes - counts[1] if device and counts[1] is not None else None
    cached_bytes = None if left.unverifiable else left.resident * PAGE_BYTES
    proof.after, proof.fetched_bytes = left.fraction, fetched
    proof.read_bytes = cached_bytes if state == "cold" else None
    run: Any = {"device_bytes": fetched, "device_read_bytes": device_bytes, "data_bytes": proof.bytes}
    run |= {"data_in_memory_bytes": cached_bytes, "data_pages_bytes": left.pages * PAGE_BYTES}
    run |= {"to_fetch_bytes": None if before.fetch.unknown else before.fetch.bytes}
    if state == "cold":
        _require(program_checks.from_device(run, limits))
    else:
        _require(_state("warm", left, below, limits))
        _require(program_checks.from_memory(run, limits))


def _files(paths: tuple[str | os.PathLike[str], ...]) -> list[Path]:
    """Return the distinct files at and below the paths, except those whose names begin with a dot."""
    files: dict[tuple[int, int], Path] = {}
    for path in map(Path, paths):
        below = untrusted.below(path) if path.is_dir() else [(path, path.stat())]
        files |= {(status.st_dev, status.st_ino): each for each, status in below if each.is_file()}
    if not files:
        raise CacheError(
            f"no file in {', '.join(map(str, paths)) or 'nothing'}", "name files, or folders that have some"
        )
    return list(files.values())


def _brought(state: str, files: list[Path], below: Layers) -> Residency:
    if state == "warm":
        page_cache.read_through(files)
        return page_cache.residency(files)
    residency = page_cache.drop_from_cache(files, files, files[0].parent)
    below.drop_from_cache()
    return residency


def _state(state: str, residency: Residency, below: Layers, limits: Limits) -> Check:
    share = 1.0 if below.in_memory else None if below.hidden else residency.fraction
    message = (
        "what is in memory of these files cannot be told" if share is None else f"{share:.1%} of the pages are there"
    )
    if state == "cold":
        return at_most("cold", share, limits.resident_max, "; ".join([message, *below.in_memory]))
    return at_least("warm", residency.fraction, 1 - limits.resident_max, message)


def _require(check: Check) -> None:
    if not check["passed"]:
        unknown = "cannot be proved" if check["passed"] is None else "does not hold"
        raise CacheError(f"{check['rule']} {unknown}: {check['message']}", "see docs/reference/stall.md")
