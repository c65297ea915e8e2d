"""Engines: the programs that can say what a storage gives, their orders, and what they must answer."""

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
    """What an engine is to do."""

    # ``write``: make the file and leave it durable; ``read``: from its beginning to its end; ``random_read``: blocks at
    # random places, none of them twice.
    access: str
    file: Path  # what is read or written
    file_bytes: int
    block_bytes: int  # of one request; the file has whole requests
    direct: bool  # past the page cache, ``O_DIRECT``
    # Of ``random_read``, and of objects that are written: readers or writers at once; of ``random_read`` how long they
    # read at most, and what the places follow from.
    threads: int = 1
    seconds_max: float = math.inf
    seed: int = 0
    # Of an object, `file` is the key: takes the offset and the bytes of a request, and returns how many came.
    get: Callable[[int, int], int] | None = None
    # Of objects that are written, `file_bytes` is the sum of them: takes the number of one, and its bytes.
    put: Callable[[int, memoryview], object] | None = None


@dataclass(frozen=True)
class Outcome:
    """What an engine did."""

    moved_bytes: int  # read or written
    requests: int  # in which they were
    # Seconds from opening the file to closing it by the engine's own clock, the flush of a write included.
    wall_s: float
    version: str  # of the engine
    parts: Mapping[str, float] = field(default_factory=dict)  # seconds of each part of `wall_s` that the engine reports
    rate: float | None = None  # bytes per second, as the engine reports


def chosen(engine: str, access: str) -> str:
    """Return the engine that a setting means on this machine: ``auto`` is IOR, else fio, else the built-in one.

    IOR has no threads, so that readers at once would need a launcher of MPI: it reads at no random places. Raises
    EngineError where the one that is asked for is not on ``PATH``.
    """
    if engine == AUTO:
        able = (FIO,) if access == "random_read" else (IOR, FIO)
        return next((name for name in able if shutil.which(name)), BUILTIN)
    if engine != BUILTIN and not shutil.which(engine):
        raise EngineError(f"benchmark.engine={engine}: there is no program {engine} on this machine's PATH")
    return engine


def takes_direct(file: Path, access: str) -> bool:
    """Find out whether a file can be opened past the page cache; some file systems refuse it.

    One that is to be written is made for it and removed, with what a run that was killed has left; nothing else is
    made: a folder that is read may be somebody else's.
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
    """Return an outcome that contradicts neither itself nor order and seconds passed here; else raises EngineError."""
    asked = order.file_bytes if order.access != "random_read" else outcome.requests * order.block_bytes
    rate = outcome.rate
    figures = (outcome.moved_bytes, outcome.requests, outcome.wall_s, *([] if rate is None else [rate]))
    if not all(math.isfinite(each) and each > 0 for each in figures):
        raise EngineError(f"bytes, requests, seconds (and rate) cannot be {', '.join(f'{each:g}' for each in figures)}")
    if outcome.moved_bytes != asked:
        raise EngineError(f"{outcome.moved_bytes} bytes were moved and not the {asked} that were asked for")
    if outcome.wall_s > elapsed_s * (1 + _TOLERANCE):
        raise EngineError(f"it says {outcome.wall_s:g} s, and only {elapsed_s:g} s have passed")
    if rate is not None and abs(rate * outcome.wall_s / outcome.moved_bytes - 1) > _TOLERANCE:
        raise EngineError(f"{rate:g} bytes/s are not {outcome.moved_bytes} bytes in {outcome.wall_s:g} s")
    return outcome
