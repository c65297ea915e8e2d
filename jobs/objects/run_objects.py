"""The objects that a run reads from an object store, and the engines that read them.

The engine ``async`` is an event loop in its own thread (`ReadAhead`), which reads objects before they are needed.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from jobs.lazy_imports import np, tf
from jobs.model.settings import Node
from jobs.objects import servers
from jobs.objects.client import Client, DataError, StoredObject
from jobs.objects.ranges import RangeReader

if TYPE_CHECKING:
    import obstore

_CLOSE_S = 1.0  # seconds to wait for the end of the thread, which does not keep its process alive


class ReadAhead:
    """A reader with `concurrency` requests in flight, in the order of `wanted`, and with as many finished objects."""

    def __init__(self, client: Client, wanted: Sequence[tuple[str, StoredObject]], concurrency: int) -> None:
        """Send no request yet: the first `take` sends it, while the clock of the run is running."""
        self._client, self._concurrency = client, concurrency
        self._futures: dict[str, Future[obstore.Bytes]] = {name: Future() for name, _ in wanted}
        self._remaining = iter([(known, self._futures[name]) for name, known in wanted])
        self._awaited: set[Future[obstore.Bytes]] = set()
        self._loop = asyncio.new_event_loop()
        self._room, self._held, self._waiting = asyncio.Event(), 0, False
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def take(self, name: str) -> obstore.Bytes | None:
        """Wait for an object and return it, or raise its error; None if it is not listed, or was taken before."""
        with self._lock:
            self._begin()
            future = self._futures.pop(name, None)
            if future is None:
                return None
            self._awaited.add(future)
        try:
            return future.result()
        finally:
            with self._lock:
                self._awaited.discard(future)
                self._held -= 1
                waiting, self._waiting = self._waiting, False
            if waiting:  # only if needed: waking the loop takes long
                self._call_in_loop(self._room.set)

    def _begin(self) -> None:
        if self._task is None and not self._loop.is_closed():
            self._task = self._loop.create_task(self._run_workers())
            self._thread = threading.Thread(target=self._run, args=(self._task,), name="objects", daemon=True)
            self._thread.start()

    def _run(self, task: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError, InvalidStateError):  # of a cancelled future
            self._loop.run_until_complete(task)
        self._loop.close()

    async def _run_workers(self) -> None:
        await asyncio.gather(*(self._read_objects() for _ in range(self._concurrency)))

    async def _read_objects(self) -> None:
        """Read one object after the other; an error is stored for the thread that takes the object."""
        while True:
            await self._wait_for_room()
            known, future = next(self._remaining, (None, None))
            if known is None or future is None:
                return
            try:
                data = await self._client.get_async(known.key, known)
            except Exception as error:  # noqa: BLE001 - raised in the waiting thread
                future.set_exception(error)
            else:
                future.set_result(data)

    async def _wait_for_room(self) -> None:
        """Wait until fewer than 2 x `concurrency` objects are requested or ready, and not yet taken."""
        while True:
            with self._lock:
                if self._held < 2 * self._concurrency:
                    self._held += 1
                    return
                self._room.clear()
                self._waiting = True
            await self._room.wait()

    def _call_in_loop(self, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End the requests in flight; a thread that waits for an object, or takes one later, gets an error."""
        with self._lock:
            if self._task is None:
                self._loop.close()
        if self._thread and self._task:
            self._call_in_loop(self._task.cancel)
            self._thread.join(_CLOSE_S)
        with self._lock:
            for future in (*self._futures.values(), *self._awaited):
                future.cancel()


class ListedObjects(Protocol):
    """A list of files with the interface of `jobs.data.manifest.Manifest`."""

    @property
    def files(self) -> Sequence[tuple[str, int, int]]:
        """Return name, size in bytes and class of each file."""

    @property
    def objects(self) -> Sequence[tuple[str | None, str | None]] | None:
        """Return ETag and SHA-256 of each object, if known."""


class RunObjects:
    """The objects of a run, by their names in the manifest."""

    def __init__(self, client: Client, stored: Mapping[str, StoredObject], disk: str | None, threads: int) -> None:
        """Make a source of `stored` objects; `disk` is the servers' device or folder, if it exists on this machine."""
        self.client, self.stored, self.disks = client, stored, (Path(disk),) if disk and Path(disk).exists() else ()
        self.wrong: set[str] = set()
        """The names of objects that are missing, or differ from the manifest."""
        self.engine: Node = {
            "engine": client.storage["engine"],
            "concurrency": client.storage["concurrency"] or threads,
        }
        self.ranges = RangeReader(client, stored, self.wrong, self.engine["concurrency"])
        self._ahead: ReadAhead | None = None

    def take(self, name: str) -> obstore.Bytes:
        """Return the content of an object; errors are those of `Client.get`."""
        try:
            data = self._ahead.take(name) if self._ahead else None
            return self.client.get(self.stored[name].key, self.stored[name]) if data is None else data
        except DataError:
            self.wrong.add(name)
            raise

    def array(self, name: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the content as an array uint8 ``(bytes,)`` on the client's memory, without a copy."""
        keep_thread_state()
        return np.frombuffer(cast("Any", self.take(os.fsdecode(np.asarray(name).item()))), np.uint8)

    def tensor(self, name: tf.Tensor) -> tf.Tensor:
        """Return the content of an object as a tensor of a pipeline: uint8 ``(bytes,)``."""
        contents = tf.numpy_function(self.array, [name], tf.uint8)
        contents.set_shape((None,))
        return contents

    def pids(self) -> list[int]:
        """Return the ids of the processes that serve the objects on this machine."""
        return [process.pid for process in servers.processes_of(self.client.storage["endpoint"])]

    @contextmanager
    def in_order(self, names: Sequence[str]) -> Iterator[None]:
        """Read these objects in this order within the block; the engine ``async`` starts when the first one is taken.

        Raises the error that ended the client, if any: the objects after it were not read.
        """
        if self.engine["engine"] == "async":
            self._ahead = ReadAhead(
                self.client, [(name, self.stored[name]) for name in names], self.engine["concurrency"]
            )
        try:
            yield
        finally:
            if self._ahead:
                self._ahead.close()
                self._ahead = None
            if self.client.fault:
                raise self.client.fault


_THREAD = threading.local()


def keep_thread_state() -> None:
    """Let the calling thread keep its Python state between two calls from TensorFlow.

    A thread that Python has not started gets a new state, with its own memory, for each call of `PyGILState_Ensure`
    that is not within another one: a third of the time of a call of Python from a pipeline. One call that is never
    released (Python's C API, "Non-Python created threads") keeps the state until the process ends.
    """
    if not hasattr(_THREAD, "state"):
        _THREAD.state = ctypes.pythonapi.PyGILState_Ensure()


@contextmanager
def objects_of_dataset(
    storage: Node, url: str, listed: ListedObjects, disk: str | None, threads: int
) -> Iterator[RunObjects]:
    """Yield the objects of a data set below `url` as the source of a run; `storage` is the node of the settings."""
    client = Client(storage)
    prefix = client.key_of(url)
    identities = listed.objects or ((None, None),) * len(listed.files)
    stored = {
        name: StoredObject(f"{prefix}/{name}" if prefix else name, size, *identity)
        for (name, size, _), identity in zip(listed.files, identities, strict=True)
    }
    source = RunObjects(client, stored, disk, threads)
    try:
        yield source
    finally:
        source.ranges.close()
