"""The page cache for a notebook, or a test of one's own: files out of memory, or in it, with proof before and after.

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
from jobs.check_outcome import at_least, at_most
from jobs.errors import JobError
from jobs.model.limits import Limits
from jobs.model.results import Check
from jobs.observe.counters import process_io
from jobs.system import page_cache, untrusted
from jobs.system.device import device_of, together
from jobs.system.extents import PAGE_BYTES
from jobs.system.layers import Layers, layers
from jobs.system.page_cache import Residency


class CacheError(JobError):
    """Files are not in the state that was asked for, or did not stay in it."""


@dataclass
class Proof:
    """What was in memory of the files, and what was fetched of them; the figures after are there when all is over."""

    files: int
    bytes: int
    before: float | None  # share of the pages in memory; None where the kernel does not tell
    after: float | None = None
    read_bytes: int | None = None  # pages of the files that came into memory; None where that cannot be told
    fetched_bytes: int | None = None  # from devices, for this process and for its children that were waited for


@contextmanager
def cold(*paths: str | os.PathLike[str]) -> Iterator[Proof]:
    """Put files, and all below folders, out of memory, for what is done within.

    Raises CacheError where some of them stay in memory, or nobody can tell; and at the end where what was read of them
    did not come from their device.
    """
    yield from _within("cold", paths)


@contextmanager
def warm(*paths: str | os.PathLike[str]) -> Iterator[Proof]:
    """Read files, and all below folders, into memory, for what is done within.

    Raises CacheError where they do not fit there; and at the end where some of them left it, or came from their device.
    """
    yield from _within("warm", paths)


def _within(state: Literal["cold", "warm"], paths: tuple[str | os.PathLike[str], ...]) -> Iterator[Proof]:
    limits, files = Limits(), _files(paths)
    folders = {path.stat().st_dev: path.parent for path in files}.values()  # one of each file system
    below = layers(*folders)
    before = _brought(state, files, below)
    _require(_state(state, before, below, limits))
    proof = Proof(len(files), sum(path.stat().st_size for path in files), before.fraction)
    device = together([device_of(folder) for folder in folders])
    counts = process_io(), device.use().read_bytes if device else None
    yield proof
    io, left = process_io(), page_cache.residency(files)
    fetched = io["read_bytes"] - counts[0]["read_bytes"] if io and counts[0] else None
    given = device.use().read_bytes - counts[1] if device and counts[1] is not None else None
    came = None if left.unverifiable else left.resident * PAGE_BYTES
    proof.after, proof.fetched_bytes = left.fraction, fetched
    proof.read_bytes = came if state == "cold" else None
    run: Any = {"device_bytes": fetched, "device_read_bytes": given, "data_bytes": proof.bytes}
    run |= {"data_in_memory_bytes": came, "data_pages_bytes": left.pages * PAGE_BYTES}
    run |= {"to_fetch_bytes": None if before.fetch.unknown else before.fetch.bytes}
    if state == "cold":
        _require(program_checks.from_device(run, limits))
    else:
        _require(_state("warm", left, below, limits))
        _require(program_checks.from_memory(run, limits))


def _files(paths: tuple[str | os.PathLike[str], ...]) -> list[Path]:
    """Return the files at and below paths, each once, without those whose names begin with a dot."""
    found: dict[tuple[int, int], Path] = {}
    for path in map(Path, paths):
        below = untrusted.below(path) if path.is_dir() else [(path, path.stat())]
        found |= {(status.st_dev, status.st_ino): each for each, status in below if each.is_file()}
    if not found:
        raise CacheError(
            f"no file in {', '.join(map(str, paths)) or 'nothing'}", "name files, or folders that have some"
        )
    return list(found.values())


def _brought(state: str, files: list[Path], below: Layers) -> Residency:
    if state == "warm":
        page_cache.read_through(files)
        return page_cache.residency(files)
    found = page_cache.cooled(files, files, files[0].parent)
    for file in below.files:
        page_cache.cooled([file], [file], file.parent)
    return found


def _state(state: str, found: Residency, below: Layers, limits: Limits) -> Check:
    share = 1.0 if below.in_memory else None if below.hidden else found.fraction
    message = (
        "what is in memory of these files cannot be told" if share is None else f"{share:.1%} of the pages are there"
    )
    if state == "cold":
        return at_most("cold", share, limits.resident_max, "; ".join([message, *below.in_memory]))
    return at_least("warm", found.fraction, 1 - limits.resident_max, message)


def _require(check: Check) -> None:
    if not check["passed"]:
        unknown = "cannot be proved" if check["passed"] is None else "does not hold"
        raise CacheError(f"{check['rule']} {unknown}: {check['message']}", "see docs/stall.md")
