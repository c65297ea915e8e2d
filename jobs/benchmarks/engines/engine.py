"""Engines measure the speed of a storage: this module has their orders, and checks their outcomes."""

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
    """An order that tells an engine what to measure: the access, the file, and the size of the requests."""

    # ``write``: the engine writes the file and flushes it. ``read``: the engine reads the file from begin to end.
    # ``random_read``: the engine reads blocks at random offsets, and reads no block twice.
    access: str
    file: Path  # the file to read or write; for objects, the key
    file_bytes: int  # size of the file; if objects are written, the sum of their sizes
    block_bytes: int  # bytes per request; the file size is a multiple of this number
    direct: bool  # whether the page cache is bypassed (``O_DIRECT``)
    threads: int = 1  # parallel readers for ``random_read``, or parallel writers of objects
    seconds_max: float = math.inf  # time limit of ``random_read``
    seed: int = 0  # seed of the random offsets of ``random_read``
    # Function that reads a part of an object: takes the offset and the bytes of a request, and returns the number of
    # bytes received.
    get: Callable[[int, int], int] | None = None
    # Function that writes an object: takes the number and the bytes of the object.
    put: Callable[[int, memoryview], object] | None = None


@dataclass(frozen=True)
class EngineOutcome:
    """The outcome of an order: the bytes, requests and seconds that the engine reports."""

    moved_bytes: int  # bytes read or written
    requests: int  # number of requests
    # Seconds from opening to closing the file, by the engine's own clock; the seconds of a write include the flush.
    wall_s: float
    version: str  # version of the engine
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of each part of `wall_s` that the engine reports
    rate: float | None = None  # bytes per second, as the engine reports


def choose_engine(engine: str, access: str) -> str:
    """Return the name of the engine to use on this machine.

    ``auto`` means IOR if it is installed, else fio if it is installed, else the built-in engine. IOR is not used for
    ``random_read``, because IOR has no threads, and its parallel readers would need an MPI launcher. Raises EngineError
    if the named engine is not on ``PATH``.
    """
    if engine == AUTO:
        candidates = (FIO,) if access == "random_read" else (IOR, FIO)
        return next((name for name in candidates if shutil.which(name)), BUILTIN)
    if engine != BUILTIN and not shutil.which(engine):
        raise EngineError(f"benchmark.engine={engine}: there is no program {engine} on this machine's PATH")
    return engine


def supports_direct(file: Path, access: str) -> bool:
    """Return whether a file can be opened with O_DIRECT, which some file systems do not support.

    For ``write``, this function removes an old file, creates the file and removes the file again. For other accesses,
    this function creates no file, because the folder may belong to another user.
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
    """Return the outcome if it is credible.

    Raises EngineError if the numbers of the outcome contradict each other, contradict the `order` (what the engine was
    asked to do), or contradict the measured seconds `elapsed_s`.
    """
    expected_bytes = order.file_bytes if order.access != "random_read" else outcome.requests * order.block_bytes
    rate = outcome.rate
    numbers = (outcome.moved_bytes, outcome.requests, outcome.wall_s, *([] if rate is None else [rate]))
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise EngineError(
            "the engine reports impossible numbers of bytes, requests and seconds (and rate):"
            f" {', '.join(f'{number:g}' for number in numbers)}"
        )
    if outcome.moved_bytes != expected_bytes:
        raise EngineError(
            f"the engine reports {outcome.moved_bytes} bytes, but {expected_bytes} bytes were to be read or written"
        )
    if outcome.wall_s > elapsed_s * (1 + _TOLERANCE):
        raise EngineError(f"the engine reports {outcome.wall_s:g} s, but only {elapsed_s:g} s have passed")
    if rate is not None and abs(rate * outcome.wall_s / outcome.moved_bytes - 1) > _TOLERANCE:
        raise EngineError(
            f"the engine reports {rate:g} bytes/s, but also {outcome.moved_bytes} bytes in {outcome.wall_s:g} s"
        )
    return outcome
