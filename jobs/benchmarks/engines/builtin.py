"""The built-in engine: it reads or writes one file in large requests, or reads blocks of a file at random offsets."""

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
from threading import Barrier, BrokenBarrierError
from typing import cast

import numpy as np

from jobs.benchmarks.engines import engine
from jobs.benchmarks.engines.engine import EngineOrder, EngineOutcome
from jobs.system import files

VERSION = "1"
_PAGE_WORDS = 4096 // 8


class _Parts(dict[str, float]):
    """The seconds of each part of a run, by the part's name; the context manager `named` measures a part."""

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self[name] = time.perf_counter() - start


def run_builtin(order: EngineOrder) -> EngineOutcome:
    """Run an order and return the outcome.

    Raises OSError if the file cannot be opened, read or written. Raises EngineError if the file has another size than
    the order.
    """
    start = time.perf_counter()
    write = _put if order.put else _write
    outcome = {"read": _read, "write": write, "random_read": _read_random}[order.access](order)
    return engine.require_credible(outcome, order, time.perf_counter() - start)


def _read(order: EngineOrder) -> EngineOutcome:
    parts, moved_bytes, requests = _Parts(), 0, 0
    buffer = mmap.mmap(-1, order.block_bytes)  # mmap returns whole pages, as O_DIRECT needs
    start = time.perf_counter()
    with ExitStack() as stack:
        with parts.named("open_s"):
            read = stack.enter_context(_opened(order, memoryview(buffer)))
        with parts.named("transfer_s"):
            while count := read(moved_bytes):
                moved_bytes, requests = moved_bytes + count, requests + 1
        with parts.named("close_s"):
            stack.close()
    return EngineOutcome(moved_bytes, requests, time.perf_counter() - start, VERSION, parts)


def _write(order: EngineOrder) -> EngineOutcome:
    """Write random bytes and flush the file; all pages differ, so that no storage can deduplicate the data."""
    parts, moved_bytes, requests = _Parts(), 0, 0
    buffer = mmap.mmap(-1, order.block_bytes)
    buffer[:] = os.urandom(order.block_bytes)
    stamps = np.frombuffer(buffer, np.uint64)[::_PAGE_WORDS]
    start = time.perf_counter()
    with parts.named("open_s"):
        fd = files.open_file(order.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _direct(order), 0o600)
    try:
        with parts.named("transfer_s"):
            while moved_bytes < order.file_bytes:
                stamps += np.uint64(len(stamps))
                moved_bytes, requests = moved_bytes + _write_whole(fd, buffer, moved_bytes), requests + 1
        with parts.named("sync_s"):
            os.fsync(fd)
    finally:
        with parts.named("close_s"):
            os.close(fd)
    return EngineOutcome(moved_bytes, requests, time.perf_counter() - start, VERSION, parts)


def _write_whole(fd: int, buffer: mmap.mmap, offset: int) -> int:
    """Write a whole buffer at this offset, in several writes if needed, and return the buffer's length."""
    written = 0
    while written < len(buffer):
        written += os.pwritev(fd, [memoryview(buffer)[written:]], offset + written)
    return written


def _read_random(order: EngineOrder) -> EngineOutcome:
    """Read blocks by several threads, in a random order that the seed determines; return the outcome.

    Every block is read at most once. The reading ends after `seconds_max`, or when all blocks were read.
    """
    blocks = list(range(order.file_bytes // order.block_bytes))
    random.Random(order.seed).shuffle(blocks)  # noqa: S311 - offsets, not secrets
    return _run_threads(order, blocks, _reader)


def _put(order: EngineOrder) -> EngineOutcome:
    """Write objects with several threads, one object per request; return the outcome."""
    return _run_threads(order, list(range(order.file_bytes // order.block_bytes)), _writer)


def _run_threads(order: EngineOrder, blocks: list[int], work: Callable[..., tuple[int, float, float]]) -> EngineOutcome:
    remaining = iter(blocks)  # `next` of a list iterator is atomic, so two threads never get the same block
    barrier = Barrier(order.threads)

    def run_thread() -> tuple[int, float, float]:
        with _aborted_on_error(barrier):
            return work(order, remaining, barrier)

    with ThreadPoolExecutor(order.threads) as pool, _aborted_on_error(barrier):
        threads = [pool.submit(run_thread) for _ in range(order.threads)]
    for thread in threads:
        if (error := thread.exception()) and not isinstance(error, BrokenBarrierError):
            raise error
    results = [thread.result() for thread in threads]
    counts, starts, ends = zip(*results, strict=True)
    return EngineOutcome(sum(counts) * order.block_bytes, sum(counts), max(ends) - min(starts), VERSION)


@contextmanager
def _aborted_on_error(barrier: Barrier) -> Iterator[None]:
    """Abort the barrier if the body fails; otherwise the other threads wait for the failed thread forever."""
    try:
        yield
    except BaseException:
        barrier.abort()
        raise


def _writer(order: EngineOrder, remaining: Iterator[int], barrier: Barrier) -> tuple[int, float, float]:
    """Write objects with different bytes until no object remains.

    Return the number of objects written by this thread, and the start and end of the writing in seconds.
    """
    buffer = bytearray(os.urandom(order.block_bytes))
    stamps, count = np.frombuffer(buffer, np.uint64)[::_PAGE_WORDS], 0
    put = cast("Callable[[int, memoryview], object]", order.put)
    barrier.wait()
    start = time.perf_counter()
    for number in remaining:
        stamps += np.uint64(len(stamps))
        put(number, memoryview(buffer))
        count += 1
    return count, start, time.perf_counter()


def _reader(order: EngineOrder, remaining: Iterator[int], barrier: Barrier) -> tuple[int, float, float]:
    """Read blocks until no block remains or the time limit is reached.

    Return the number of blocks read by this thread, and the start and end of the reading in seconds.
    """
    buffer = mmap.mmap(-1, math.ceil(order.block_bytes / mmap.PAGESIZE) * mmap.PAGESIZE)
    count = 0
    with _opened(order, memoryview(buffer)[: order.block_bytes]) as read:
        barrier.wait()
        start = time.perf_counter()
        while time.perf_counter() - start < order.seconds_max and (block := next(remaining, None)) is not None:
            if read(block * order.block_bytes) != order.block_bytes:
                raise OSError(
                    errno.EIO, f"a block was read incompletely at {block * order.block_bytes}", str(order.file)
                )
            count += 1
        return count, start, time.perf_counter()


@contextmanager
def _opened(order: EngineOrder, view: memoryview) -> Iterator[Callable[[int], int]]:
    """Yield a function that reads a block at an offset into `view`, and returns the number of bytes read.

    The bytes of an object are not copied to `view`, but stay in the memory of the object client.
    """
    if get := order.get:
        yield lambda offset: get(offset, min(len(view), order.file_bytes - offset))
        return
    fd = files.open_file(order.file, os.O_RDONLY | _direct(order))
    try:
        yield lambda offset: os.preadv(fd, [view], offset)
    finally:
        os.close(fd)


def _direct(order: EngineOrder) -> int:
    return os.O_DIRECT if order.direct else 0
