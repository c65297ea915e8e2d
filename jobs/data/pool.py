"""Processes that make files side by side, and that never outlive the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.data.hdf5 import Hdf5Spec
from jobs.system import files

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from jobs.data.make import Spec

TEMPORARY_GLOB = f"*{files.TEMPORARY}"
"""Names of files that are being written."""

_BATCH = 8  # images: about 0.2 s, which is how long Ctrl-C may take
_BATCH_BYTES = 8_000_000


class PoolBrokenError(Exception):
    """A process of the pool was killed."""


def make_files(folder: Path, spec: Spec, indices: list[int], processes: int) -> Generator[dict[int, int], None, None]:
    """Write files and yield sizes in bytes by index, as they come; PoolBrokenError where a process was killed."""
    at_once = max(1, min(_BATCH, _BATCH_BYTES // int(spec.sizes().max())))
    batches = [indices[start : start + at_once] for start in range(0, len(indices), at_once)]
    if len(batches) < 2:  # noqa: PLR2004 - for one, a process would take longer to start than to work
        _tell(folder, spec)
        yield from map(_write_batch, batches)
        return
    # A fork would inherit this process's locks, and perhaps TensorFlow; a spawned process starts clean.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        max(1, min(processes, len(batches))), context, initializer=_begin, initargs=(folder, spec)
    )
    try:
        with no_ctrl_c():
            futures: list[Future[dict[int, int]]] = [pool.submit(_write_batch, batch) for batch in batches]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise PoolBrokenError from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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

    folder: Path
    spec: Spec
    targets: list[int]


def _begin(folder: Path, spec: Spec) -> None:
    """Prepare a process of the pool."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    _tell(folder, spec)


def _tell(folder: Path, spec: Spec) -> None:
    _Work.folder, _Work.spec, _Work.targets = folder, spec, spec.sizes().tolist()


def end_with_parent() -> None:
    """Go when the parent is gone, however it went: the executor's own queue would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_batch(indices: list[int]) -> dict[int, int]:
    """Write some files, each in full or not at all; return their sizes in bytes by index."""
    sizes = {}
    for index in indices:
        with files.whole(_Work.folder / _Work.spec.name(index), durable=False) as file:
            if isinstance(_Work.spec, Hdf5Spec):
                _Work.spec.write(file, index)
            else:
                file.write(_Work.spec.content(index, _Work.targets[index]))
            sizes[index] = file.seek(0, os.SEEK_END)
    return sizes
