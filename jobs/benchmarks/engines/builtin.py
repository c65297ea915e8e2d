"""The built-in engine: reads and writes one file in large requests, or reads blocks of it at random places."""

from __future__ import annotations

import errno
import math
import mmap
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier
from typing import cast

import numpy as np

from jobs.benchmarks.engines import engine
from jobs.benchmarks.engines.engine import Order, Outcome
from jobs.system import files

VERSION = "1"
_PAGE_WORDS = 4096 // 8


class _Parts(dict[str, float]):
    """Seconds of each named part, with a stamp before and one after it."""

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self[name] = time.perf_counter() - before


def run(order: Order) -> Outcome:
    """Do what is asked; raises OSError where the file cannot be used, EngineError where it has another size."""
    before = time.perf_counter()
    write = _put if order.put else _write
    outcome = {"read": _read, "write": write, "random_read": _random_read}[order.access](order)
    return engine.believe(outcome, order, time.perf_counter() - before)


def _read(order: Order) -> Outcome:
    parts, moved, requests = _Parts(), 0, 0
    buffer = mmap.mmap(-1, order.block_bytes)  # whole pages, as O_DIRECT wants them
    start = time.perf_counter()
    with ExitStack() as stack:
        with parts.named("open_s"):
            read = stack.enter_context(_opened(order, memoryview(buffer)))
        with parts.named("transfer_s"):
            while count := read(moved):
                moved, requests = moved + count, requests + 1
        with parts.named("close_s"):
            stack.close()
    return Outcome(moved, requests, time.perf_counter() - start, VERSION, parts)


def _write(order: Order) -> Outcome:
    """Write random bytes and wait until they are durable; no two pages are alike, for arrays that know such."""
    parts, moved, requests = _Parts(), 0, 0
    buffer = mmap.mmap(-1, order.block_bytes)
    buffer[:] = os.urandom(order.block_bytes)
    stamps = np.frombuffer(buffer, np.uint64)[::_PAGE_WORDS]
    start = time.perf_counter()
    with parts.named("open_s"):
        fd = files.opened(order.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _direct(order), 0o600)
    try:
        with parts.named("transfer_s"):
            while moved < order.file_bytes:
                stamps += np.uint64(len(stamps))
                moved, requests = moved + _whole(fd, buffer, moved), requests + 1
        with parts.named("sync_s"):
            os.fsync(fd)
    finally:
        with parts.named("close_s"):
            os.close(fd)
    return Outcome(moved, requests, time.perf_counter() - start, VERSION, parts)


def _whole(fd: int, buffer: mmap.mmap, offset: int) -> int:
    """Write a buffer whole; what is left of one that was not is the rest of some blocks, and no less."""
    done = 0
    while done < len(buffer):
        done += os.pwritev(fd, [memoryview(buffer)[done:]], offset + done)
    return done


def _random_read(order: Order) -> Outcome:
    """Read blocks in a seeded order, each once; a reader takes the next one that no other has, until time is up."""
    blocks = list(range(order.file_bytes // order.block_bytes))
    random.Random(order.seed).shuffle(blocks)  # noqa: S311 - places, not secrets
    return _by_threads(order, blocks, _reader)


def _put(order: Order) -> Outcome:
    """Write objects of one request each, by as many writers as there are threads."""
    return _by_threads(order, list(range(order.file_bytes // order.block_bytes)), _writer)


def _by_threads(order: Order, blocks: list[int], work: Callable[..., tuple[int, float, float]]) -> Outcome:
    waiting = iter(blocks)  # `next` of a list's iterator is one step of the interpreter: no two threads get one block
    ready = Barrier(order.threads)
    with ThreadPoolExecutor(order.threads) as pool:
        done = list(pool.map(lambda _: work(order, waiting, ready), range(order.threads)))
    counts, starts, ends = zip(*done, strict=True)
    return Outcome(sum(counts) * order.block_bytes, sum(counts), max(ends) - min(starts), VERSION)


def _writer(order: Order, waiting: Iterator[int], ready: Barrier) -> tuple[int, float, float]:
    """Put until no object is left, each with other bytes; returns how many, when the first began and the last ended."""
    buffer = bytearray(os.urandom(order.block_bytes))
    stamps, count = np.frombuffer(buffer, np.uint64)[::_PAGE_WORDS], 0
    put = cast("Callable[[int, memoryview], object]", order.put)
    ready.wait()
    start = time.perf_counter()
    for number in waiting:
        stamps += np.uint64(len(stamps))
        put(number, memoryview(buffer))
        count += 1
    return count, start, time.perf_counter()


def _reader(order: Order, waiting: Iterator[int], ready: Barrier) -> tuple[int, float, float]:
    """Read until no block waits or time is up; returns how many blocks, when the first began and the last was there."""
    buffer = mmap.mmap(-1, math.ceil(order.block_bytes / mmap.PAGESIZE) * mmap.PAGESIZE)
    count = 0
    with _opened(order, memoryview(buffer)[: order.block_bytes]) as read:
        ready.wait()
        start = time.perf_counter()
        while time.perf_counter() - start < order.seconds_max and (block := next(waiting, None)) is not None:
            if read(block * order.block_bytes) != order.block_bytes:
                raise OSError(errno.EIO, f"a block was not read whole at {block * order.block_bytes}", str(order.file))
            count += 1
        return count, start, time.perf_counter()


@contextmanager
def _opened(order: Order, view: memoryview) -> Iterator[Callable[[int], int]]:
    """Open what is read; yields what reads as much as fits into `view` from an offset on, and says how much that was.

    Bytes of an object stay where its client has them.
    """
    if get := order.get:
        yield lambda offset: get(offset, min(len(view), order.file_bytes - offset))
        return
    fd = files.opened(order.file, os.O_RDONLY | _direct(order))
    try:
        yield lambda offset: os.preadv(fd, [view], offset)
    finally:
        os.close(fd)


def _direct(order: Order) -> int:
    return os.O_DIRECT if order.direct else 0
