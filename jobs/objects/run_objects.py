"""Read the objects of a run from an object store, with one of several engines.

The engine ``async`` is an event loop in its own thread (`ReadAhead`). The event loop reads objects before the run needs
the objects.
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

_CLOSE_S = 1.0  # seconds that `close` waits for the end of the thread; a daemon thread does not keep its process alive


class ReadAhead:
    """A reader that requests objects in the order of `wanted`, before the objects are taken.

    At most `concurrency` requests are in flight. At most 2 x `concurrency` objects are requested or ready.
    """

    def __init__(self, client: Client, wanted: Sequence[tuple[str, StoredObject]], concurrency: int) -> None:
        """Prepare the reader without a request: the first `take` sends requests, in the measured time of the run."""
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
        """Wait for an object and return its bytes, or raise the error of its request.

        Returns None if the object is not in `wanted`, or if it was taken before.
        """
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
            if waiting:  # only if a worker waits, because a call in the event loop is slow
                self._call_in_loop(self._room.set)

    def _begin(self) -> None:
        if self._task is None and not self._loop.is_closed():
            self._task = self._loop.create_task(self._run_workers())
            self._thread = threading.Thread(target=self._run, args=(self._task,), name="objects", daemon=True)
            self._thread.start()

    def _run(self, task: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError, InvalidStateError):  # a cancelled future accepts no result
            self._loop.run_until_complete(task)
        self._loop.close()

    async def _run_workers(self) -> None:
        await asyncio.gather(*(self._read_objects() for _ in range(self._concurrency)))

    async def _read_objects(self) -> None:
        """Read one object after the other; store an error for the thread that takes the object."""
        while True:
            await self._wait_for_room()
            known, future = next(self._remaining, (None, None))
            if known is None or future is None:
                return
            try:
                data = await self._client.get_async(known.key, known)
            except Exception as error:  # noqa: BLE001 - the thread that takes the object raises the error
                future.set_exception(error)
            else:
                future.set_result(data)

    async def _wait_for_room(self) -> None:
        """Wait until fewer than 2 x `concurrency` objects are requested or ready but not yet taken."""
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
        """Cancel the requests in flight; a thread that waits for an object gets an error."""
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
    """The part of the interface of `jobs.data.manifest.Manifest` that this module needs."""

    @property
    def files(self) -> Sequence[tuple[str, int, int]]:
        """Return the name, the size in bytes and the class of each file."""

    @property
    def objects(self) -> Sequence[tuple[str | None, str | None]] | None:
        """Return the ETag and the SHA-256 of each object (None: unknown), or None for a list of files."""


class RunObjects:
    """The objects that a run reads, by their names in the manifest."""

    def __init__(self, client: Client, stored: Mapping[str, StoredObject], disk: str | None, threads: int) -> None:
        """Make a source of the objects `stored`.

        `disk` is the block device or the folder in which the servers of the store keep the objects. A `disk` that does
        not exist on this machine is ignored.
        """
        self.client, self.stored, self.disks = client, stored, (Path(disk),) if disk and Path(disk).exists() else ()
        self.wrong: set[str] = set()
        """The names of the objects that are missing or differ from the manifest."""
        self.engine: Node = {
            "engine": client.storage["engine"],
            "concurrency": client.storage["concurrency"] or threads,
        }
        self.ranges = RangeReader(client, stored, self.wrong, self.engine["concurrency"])
        self._ahead: ReadAhead | None = None

    def take(self, name: str) -> obstore.Bytes:
        """Return the content of an object. Raises the errors of `Client.get`."""
        try:
            data = self._ahead.take(name) if self._ahead else None
            return self.client.get(self.stored[name].key, self.stored[name]) if data is None else data
        except DataError:
            self.wrong.add(name)
            raise

    def array(self, name: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the content of an object as an array uint8 ``(bytes,)``, which uses the client's memory."""
        keep_thread_state()
        return np.frombuffer(cast("Any", self.take(os.fsdecode(np.asarray(name).item()))), np.uint8)

    def tensor(self, name: tf.Tensor) -> tf.Tensor:
        """Return the content of an object as a tensor uint8 ``(bytes,)`` for a tf.data pipeline."""
        contents = tf.numpy_function(self.array, [name], tf.uint8)
        contents.set_shape((None,))
        return contents

    def pids(self) -> list[int]:
        """Return the process ids of the store's servers on this machine."""
        return [process.pid for process in servers.processes_of(self.client.storage["endpoint"])]

    @contextmanager
    def in_order(self, names: Sequence[str]) -> Iterator[None]:
        """Read the objects `names` in this order while a `with` block runs.

        The engine ``async`` starts when the first object is taken. After the block, this function raises the error that
        ended the client, if there is one, because the client did not read later objects.
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
    """Keep the Python thread state of the calling thread between two calls from TensorFlow, to make the calls faster.

    TensorFlow's threads are not started by Python. Such a thread gets a new thread state for each outermost call of
    `PyGILState_Ensure`, which takes a third of the time of a call of Python from a pipeline. This function calls
    `PyGILState_Ensure` once without a release (Python's C API, "Non-Python created threads"), so the thread state
    exists until the process ends.
    """
    if not hasattr(_THREAD, "state"):
        _THREAD.state = ctypes.pythonapi.PyGILState_Ensure()


@contextmanager
def objects_of_dataset(
    storage: Node, url: str, listed: ListedObjects, disk: str | None, threads: int
) -> Iterator[RunObjects]:
    """Yield the objects of a dataset below `url` as the source of a run.

    `storage` has the settings of the object store. `listed` is the manifest of the dataset. `disk` is the disk of the
    servers. `threads` is the number of requests in flight if the settings have no ``concurrency``.
    """
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
