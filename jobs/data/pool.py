"""Processes that make files side by side, and that never outlive the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from jobs.data.specs import Spec
from jobs.data.synthetic_hdf5 import Hdf5Spec
from jobs.system import files

TEMPORARY_GLOB = f"*{files.TEMPORARY}"
"""Names of files that are being written."""

_BATCH = 8  # images: about 0.2 s, which is how long Ctrl-C may take
_BATCH_BYTES = 8_000_000
# Files that are tried to say how long all will take: by their places among the sizes, until the tries took so long.
_SAMPLES, _SAMPLE_S = (0.5, 0.25, 0.75), 0.05
_SAMPLE_BYTES = 100_000_000  # of a larger one that is tried
_Made = TypeVar("_Made")


class PoolBrokenError(Exception):
    """A process of the pool was killed."""


def fill(file: IO[bytes], spec: Spec, index: int, size: int) -> int:
    """Write what a file holds, of about `size` bytes where that is chosen; returns the bytes that it has."""
    if isinstance(spec, Hdf5Spec):
        spec.write(file, index)
    else:
        file.write(spec.content(index, size))
    return file.seek(0, os.SEEK_END)


def to_folder(folder: Path, spec: Spec, index: int, size: int) -> int:
    """Write a file of a folder, there in full or not at all; returns its size in bytes."""
    with files.whole(folder / spec.name(index), durable=False) as file:
        return fill(file, spec, index, size)


def make_files(
    write: Callable[[Spec, int, int], _Made], spec: Spec, indices: list[int], processes: int
) -> Generator[dict[int, _Made], None, None]:
    """Write files and yield what `write` returns of each, by index, as they come; `write` gets index and target size.

    Raises PoolBrokenError where a process was killed.
    """
    at_once = max(1, min(_BATCH, _BATCH_BYTES // int(spec.sizes().max())))
    batches = [indices[start : start + at_once] for start in range(0, len(indices), at_once)]
    if len(batches) < 2:  # noqa: PLR2004 - for one, a process would take longer to start than to work
        _begin(write, spec)
        yield from map(_write_batch, batches)
        return
    # A fork would inherit this process's locks, and perhaps TensorFlow; a spawned process starts clean.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        max(1, min(processes, len(batches))), context, initializer=_begin_process, initargs=(write, spec)
    )
    try:
        with no_ctrl_c():
            futures: list[Future[dict[int, _Made]]] = [pool.submit(_write_batch, batch) for batch in batches]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise PoolBrokenError from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def processor_s(spec: Spec, indices: list[int]) -> float:
    """Return about how many seconds one process takes to make these files, writing apart.

    Some of them are made, in the folder for temporary files.
    """
    if not indices:
        return 0.0
    sizes = spec.sizes()
    ordered = sorted((index for index in indices if sizes[index] <= _SAMPLE_BYTES), key=sizes.__getitem__)
    tries = [ordered[int(len(ordered) * place)] for place in _SAMPLES] if ordered else indices[:1]
    made_bytes, took_s = 0, []
    for number, index in enumerate((tries[0], *tries)):  # the first time it imports
        with tempfile.NamedTemporaryFile() as file:  # of a name, as HDF5 wants it
            began = time.perf_counter()
            size = fill(file, spec, index, int(sizes[index]))
            if number:
                took_s.append(time.perf_counter() - began)
                made_bytes += size
        if sum(took_s) > _SAMPLE_S:
            break
    return float(sizes[indices].sum()) / made_bytes * sum(took_s)


@contextmanager
def no_ctrl_c() -> Iterator[None]:
    """Start processes in which Ctrl-C, that reaches the whole group, is blocked from their first line on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Work:
    """What a process that makes files is told once."""

    write: Callable[[Spec, int, int], Any]
    spec: Spec
    targets: list[int]


def _begin_process(write: Callable[[Spec, int, int], Any], spec: Spec) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    _begin(write, spec)


def _begin(write: Callable[[Spec, int, int], Any], spec: Spec) -> None:
    _Work.write, _Work.spec, _Work.targets = write, spec, spec.sizes().tolist()


def end_with_parent() -> None:
    """Go when the parent is gone, however it went: the executor's own queue would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_batch(indices: list[int]) -> dict[int, Any]:
    return {index: _Work.write(_Work.spec, index, _Work.targets[index]) for index in indices}
