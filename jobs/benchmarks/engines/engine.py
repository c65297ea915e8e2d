"""Engines, the programs that measure the speed of a storage: their orders, and the checks of their outcomes."""

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
_TOLERANCE = 0.01  # allowed relative difference between an engine's rate and its bytes over its seconds


@dataclass(frozen=True)
class EngineOrder:
    """An order to an engine: the access, the file, and the sizes and number of the requests."""

    # ``write``: the file is written and left durable; ``read``: it is read from begin to end; ``random_read``: blocks
    # are read at random offsets, none twice.
    access: str
    file: Path  # the file to read or write
    file_bytes: int
    block_bytes: int  # bytes per request; the file has a whole number of requests
    direct: bool  # whether the page cache is bypassed (``O_DIRECT``)
    # The number of parallel readers (``random_read``) or writers (of objects); for ``random_read`` also the longest
    # duration and the seed of the random offsets.
    threads: int = 1
    seconds_max: float = math.inf
    seed: int = 0
    # Reads an object (`file` is the key): takes offset and bytes of a request, returns the number of bytes received.
    get: Callable[[int, int], int] | None = None
    # Writes objects (`file_bytes` is the sum of their sizes): takes the number of an object, and its bytes.
    put: Callable[[int, memoryview], object] | None = None


@dataclass(frozen=True)
class EngineOutcome:
    """The outcome of an order: bytes, requests and seconds, as the engine reports them."""

    moved_bytes: int  # bytes read or written
    requests: int  # number of requests
    # Seconds from opening to closing the file by the engine's own clock, including the flush of a write.
    wall_s: float
    version: str  # of the engine
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of each part of `wall_s` that the engine reports
    rate: float | None = None  # bytes per second, as the engine reports


def choose_engine(engine: str, access: str) -> str:
    """Return the name of the engine to use on this machine; ``auto`` means IOR, else fio, else the built-in one.

    IOR has no threads (parallel readers would need an MPI launcher), so it is not used for ``random_read``. Raises
    EngineError if the named engine is not on ``PATH``.
    """
    if engine == AUTO:
        candidates = (FIO,) if access == "random_read" else (IOR, FIO)
        return next((name for name in candidates if shutil.which(name)), BUILTIN)
    if engine != BUILTIN and not shutil.which(engine):
        raise EngineError(f"benchmark.engine={engine}: there is no program {engine} on this machine's PATH")
    return engine


def supports_direct(file: Path, access: str) -> bool:
    """Return whether a file can be opened with O_DIRECT; some file systems refuse it.

    For ``write`` the file is made and removed again, even if a killed run left one; for other accesses no file is made,
    because the folder may belong to another user.
    """
    is_write = access == "write"
    flags = os.O_WRONLY | os.O_CREAT if is_write else os.O_RDONLY
    try:
        if is_write:
            files.remove(file, missing_ok=True)
        os.close(files.open_file(file, flags | os.O_DIRECT, 0o600))
    except OSError as error:
        if error.errno != errno.EINVAL:  # open(2): "The filesystem does not support the O_DIRECT flag"
            raise
        return False
    finally:
        if is_write:
            files.remove(file, missing_ok=True)
    return True


def require_credible(outcome: EngineOutcome, order: EngineOrder, elapsed_s: float) -> EngineOutcome:
    """Return the outcome; raise EngineError if it contradicts itself, the order, or the measured `elapsed_s`."""
    expected_bytes = order.file_bytes if order.access != "random_read" else outcome.requests * order.block_bytes
    rate = outcome.rate
    numbers = (outcome.moved_bytes, outcome.requests, outcome.wall_s, *([] if rate is None else [rate]))
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise EngineError(
            f"bytes, requests, seconds (and rate) cannot be {', '.join(f'{number:g}' for number in numbers)}"
        )
    if outcome.moved_bytes != expected_bytes:
        raise EngineError(f"{outcome.moved_bytes} bytes were moved, not the requested {expected_bytes}")
    if outcome.wall_s > elapsed_s * (1 + _TOLERANCE):
        raise EngineError(f"it reports {outcome.wall_s:g} s, but only {elapsed_s:g} s have passed")
    if rate is not None and abs(rate * outcome.wall_s / outcome.moved_bytes - 1) > _TOLERANCE:
        raise EngineError(f"{rate:g} bytes/s are not {outcome.moved_bytes} bytes in {outcome.wall_s:g} s")
    return outcome
