"""The readers ``h5py_pool`` and ``h5py_shared``: several processes read, each with its own lock of the HDF5 library.

The processes start from a process that has imported h5py but not TensorFlow. The processes of ``h5py_pool`` return
pickled arrays, as in NERSC's CDB. The processes of ``h5py_shared`` write the arrays into shared memory, and the calling
process copies each array once.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import reduction
from multiprocessing.util import Finalize
from typing import Any, cast

import numpy as np

from jobs.data.readers import h5py_parts
from jobs.data.readers.h5py_parts import Array
from jobs.data.readers.part import At, Driver, Part, Reader, event_maker
from jobs.data.specs import end_with_parent, without_ctrl_c
from jobs.errors import EngineError
from jobs.events.time_log import TimeLog

Place = tuple[int, tuple[int, ...], str]  # an array in a slot: index of the first byte, shape and dtype

_START_TIMEOUT_S = 120.0
_ALIGNED = 64  # alignment in bytes of the arrays in a slot


class SharedMemory:
    """Anonymous memory that is shared with child processes, and divided into slots of equal size."""

    def __init__(self, slots: int, slot_bytes: int, file: int | None = None) -> None:
        self.slots, self.slot_bytes = slots, max(mmap.PAGESIZE, slot_bytes)
        self._file = os.memfd_create("tfio-slots") if file is None else file
        os.ftruncate(self._file, self.slots * self.slot_bytes)
        self._map = mmap.mmap(self._file, self.slots * self.slot_bytes)

    def __reduce__(self) -> Any:
        """Return the function and arguments with which a new child process maps the shared memory."""
        return _attach, (self.slots, self.slot_bytes, reduction.DupFd(self._file))

    def array(self, slot: int, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
        """Return the array that begins at byte `start` of a slot, or None if the slot is too small."""
        if start + int(np.prod(shape)) * dtype.itemsize > self.slot_bytes:
            return None
        return np.ndarray(shape, dtype, self._map, slot * self.slot_bytes + start)

    def close(self) -> None:
        """Release the memory."""
        self._map.close()
        os.close(self._file)


def _attach(slots: int, slot_bytes: int, file: Any) -> SharedMemory:
    return SharedMemory(slots, slot_bytes, file.detach())


class _Worker:
    """The arguments that a reading process receives at its start."""

    parts: Sequence[Part]
    driver: Driver
    memory: SharedMemory | None
    log: TimeLog | None


def _prepare(
    parts: Sequence[Part], driver: Driver, memory: SharedMemory | None, log: dict[str, Any] | None, barrier: Any
) -> None:
    """Prepare this process for reading, and wait until all reading processes are ready."""
    import h5py  # noqa: F401, PLC0415 - imported before the measured time begins

    threading.Thread(target=end_with_parent, daemon=True).start()
    _Worker.parts, _Worker.driver, _Worker.memory = parts, driver, memory
    _Worker.log = TimeLog(**{**log, "path": f"{log['path']}.{os.getpid()}.timelog"}) if log else None
    if _Worker.log:
        Finalize(None, _Worker.log.close, exitpriority=1)  # `atexit` does not run in a multiprocessing child
    barrier.wait(_START_TIMEOUT_S)


def _read_pickled(path: str, at: At | None) -> list[Array]:
    return h5py_parts.load_parts(path, _Worker.parts, _Worker.driver, partial(event_maker(_Worker.log), path, at))


def _read_into_slot(path: str, at: At | None, slot: int) -> list[Place | Array]:
    """Read the parts of a file into a slot, and return the place of each array in the slot.

    An array that does not fit into the slot is returned instead of its place.
    """
    memory = cast("SharedMemory", _Worker.memory)
    places: list[Place | Array] = []
    end = 0

    def room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        nonlocal end
        start = -(-end // _ALIGNED) * _ALIGNED
        array = memory.array(slot, start, shape, dtype)
        if array is None:
            places.append(array := h5py_parts.aligned_array(shape, dtype))
        else:
            end = start + array.nbytes
            places.append((start, shape, dtype.str))
        return array

    h5py_parts.load_parts(path, _Worker.parts, _Worker.driver, partial(event_maker(_Worker.log), path, at), room)
    return places


class ReaderPool(Reader):
    """A reader that reads files in a pool of processes."""

    def __init__(self, executor: ProcessPoolExecutor, memory: SharedMemory | None) -> None:
        self._executor, self._memory = executor, memory
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(memory.slots if memory else 0):
            self._free.put(slot)

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Array]:
        """Read the parts of a file in a process of the pool; raise EngineError if the process was killed."""
        try:
            if self._memory is None:
                return self._executor.submit(_read_pickled, os.fspath(path), at).result()
            return self._shared(self._memory, os.fspath(path), at)
        except BrokenExecutor as error:
            cure = "give the Slurm job more memory, or use fewer readers"
            raise EngineError("a reading process was killed", cure) from error

    def _shared(self, memory: SharedMemory, path: str, at: At | None) -> list[Array]:
        slot = self._free.get()
        try:
            parts = self._executor.submit(_read_into_slot, path, at, slot).result()
            return [part if isinstance(part, np.ndarray) else self._copy(memory, slot, *part) for part in parts]
        finally:
            self._free.put(slot)

    def _copy(self, memory: SharedMemory, slot: int, start: int, shape: tuple[int, ...], dtype: str) -> Array:
        numpy_dtype = np.dtype(dtype)
        copy = h5py_parts.aligned_array(shape, numpy_dtype)
        np.copyto(copy, cast("Array", memory.array(slot, start, shape, numpy_dtype)))
        return copy

    def processes(self) -> list[int]:
        """Return the process ids of the pool."""
        return [process.pid for process in multiprocessing.active_children() if process.pid]


@contextmanager
def start_pool(
    parts: Sequence[Part], readers: int, driver: Driver, log: TimeLog | None, slot_bytes: int | None
) -> Iterator[ReaderPool]:
    """Start `readers` processes, and yield a reader that uses the processes.

    `slot_bytes` is the size of a slot of shared memory; there are as many slots as processes. None: no shared memory.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["h5py", __name__])
    with ExitStack() as stack:
        memory = None if slot_bytes is None else SharedMemory(readers, slot_bytes)
        if memory:
            stack.callback(memory.close)
        log_arguments = log.beside if log else None
        arguments = (parts, driver, memory, log_arguments, context.Barrier(readers))
        executor = stack.enter_context(ProcessPoolExecutor(readers, context, _prepare, arguments))
        try:
            with without_ctrl_c():
                answers = [executor.submit(os.getpid) for _ in range(readers)]
            for answer in answers:
                answer.result(_START_TIMEOUT_S)
        except (BrokenExecutor, TimeoutError) as error:
            hint = (
                "see the messages of the processes above; a script must open this reader below"
                ' `if __name__ == "__main__":`'
            )
            raise EngineError("the reading processes do not start", hint) from error
        yield ReaderPool(executor, memory)
