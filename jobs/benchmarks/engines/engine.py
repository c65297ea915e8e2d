"""Engines: programs that measure the speed of a storage, their orders, and the checks of their outcomes."""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.errors import EngineError
from jobs.system import files

AUTO, BUILTIN, FIO, IOR = "auto", "builtin", "fio", "ior"
UNKNOWN = "unknown"
_TOLERANCE = 0.01  # by which an engine's rate may differ from its bytes over its seconds: it rounds both


@dataclass(frozen=True)
class Order:
    """An order to an engine: the access, the file, and the sizes and number of the requests."""

    # ``write``: make the file and leave it durable; ``read``: from its beginning to its end; ``random_read``: blocks at
    # random places, none of them twice.
    access: str
    file: Path  # what is read or written
    file_bytes: int
    block_bytes: int  # of one request; the file has whole requests
    direct: bool  # past the page cache, ``O_DIRECT``
    # The number of parallel readers (``random_read``) or writers (of objects); for ``random_read`` also the longest
    # duration and the seed of the random offsets.
    threads: int = 1
    seconds_max: float = math.inf
    seed: int = 0
    # To read an object (`file` is the key): takes offset and bytes of a request, returns the number of bytes received.
    get: Callable[[int, int], int] | None = None
    # To write objects (`file_bytes` is the sum of their sizes): takes the number of an object, and its bytes.
    put: Callable[[int, memoryview], object] | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of an order: bytes, requests and seconds, as the engine reports them."""

    moved_bytes: int  # read or written
    requests: int  # in which they were
    # Seconds from opening the file to closing it by the engine's own clock, the flush of a write included.
    wall_s: float
    version: str  # of the engine
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of each part of `wall_s` that the engine reports
    rate: float | None = None  # bytes per second, as the engine reports


def chosen(engine: str, access: str) -> str:
    """Return the name of the engine to use on this machine; ``auto`` means IOR, else fio, else the built-in one.

    IOR has no threads (parallel readers would need an MPI launcher), so it is not used for ``random_read``. Raises
    EngineError if the named engine is not on ``PATH``.
    """
    if engine == AUTO:
        able = (FIO,) if access == "random_read" else (IOR, FIO)
        return next((name for name in able if shutil.which(name)), BUILTIN)
    if engine != BUILTIN and not shutil.which(engine):
        raise EngineError(f"benchmark.engine={engine}: there is no program {engine} on this machine's PATH")
    return engine


def takes_direct(file: Path, access: str) -> bool:
    """Return whether a file can be opened with O_DIRECT; some file systems refuse it.

    For ``write`` the file is made and removed again, also if a killed run left one there; for other accesses nothing is
    made, because the folder may belong to somebody else.
    """
    writes = access == "write"
    how = os.O_WRONLY | os.O_CREAT if writes else os.O_RDONLY
    try:
        if writes:
            files.remove(file, missing_ok=True)
        os.close(files.opened(file, how | os.O_DIRECT, 0o600))
    except OSError as error:
        if error.errno != errno.EINVAL:  # open(2): "The filesystem does not support the O_DIRECT flag"
            raise
        return False
    finally:
        if writes:
            files.remove(file, missing_ok=True)
    return True


def believe(outcome: Outcome, order: Order, elapsed_s: float) -> Outcome:
    """Return the outcome; raise EngineError if it contradicts itself, the order or the `elapsed_s` measured here."""
    expected_bytes = order.file_bytes if order.access != "random_read" else outcome.requests * order.block_bytes
    rate = outcome.rate
    figures = (outcome.moved_bytes, outcome.requests, outcome.wall_s, *([] if rate is None else [rate]))
    if not all(math.isfinite(each) and each > 0 for each in figures):
        raise EngineError(f"bytes, requests, seconds (and rate) cannot be {', '.join(f'{each:g}' for each in figures)}")
    if outcome.moved_bytes != expected_bytes:
        raise EngineError(f"{outcome.moved_bytes} bytes were moved and not the {expected_bytes} that were asked for")
    if outcome.wall_s > elapsed_s * (1 + _TOLERANCE):
        raise EngineError(f"it says {outcome.wall_s:g} s, and only {elapsed_s:g} s have passed")
    if rate is not None and abs(rate * outcome.wall_s / outcome.moved_bytes - 1) > _TOLERANCE:
        raise EngineError(f"{rate:g} bytes/s are not {outcome.moved_bytes} bytes in {outcome.wall_s:g} s")
    return outcome
