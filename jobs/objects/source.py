"""What a run reads from an object store: which objects, and by which engine."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from jobs.lazy_imports import np, tf
from jobs.model.settings import Node
from jobs.objects import servers
from jobs.objects.ahead import Ahead
from jobs.objects.client import Client, DataError, Stored
from jobs.objects.ranges import Ranges

if TYPE_CHECKING:
    import obstore


class Listed(Protocol):
    """A list of files, as `jobs.data.manifest.Manifest` is one."""

    @property
    def files(self) -> Sequence[tuple[str, int, int]]:
        """Name, bytes and class of each."""

    @property
    def objects(self) -> Sequence[tuple[str | None, str | None]] | None:
        """ETag and SHA-256 of each, where they are known."""


class Source:
    """The objects of a run, by the names that their manifest has."""

    def __init__(self, client: Client, stored: Mapping[str, Stored], disk: str | None, threads: int) -> None:
        """Take what is read; `disk`, a device or a folder, is below the servers, where it can be seen from here."""
        self.client, self.stored, self.disks = client, stored, (Path(disk),) if disk and Path(disk).exists() else ()
        self.wrong: set[str] = set()
        """Names of objects that are missing, or not what the manifest says."""
        self.engine: Node = {
            "engine": client.storage["engine"],
            "concurrency": client.storage["concurrency"] or threads,
        }
        self.ranges = Ranges(client, stored, self.wrong, self.engine["concurrency"])
        self._ahead: Ahead | None = None

    def take(self, name: str) -> obstore.Bytes:
        """Return the contents of an object; errors are those of `Client.get`."""
        try:
            data = self._ahead.take(name) if self._ahead else None
            return self.client.get(self.stored[name].key, self.stored[name]) if data is None else data
        except DataError:
            self.wrong.add(name)
            raise

    def array(self, name: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the contents as they lie in the client's memory, uint8 ``(bytes,)``: nothing is copied."""
        keep_thread_state()
        return np.frombuffer(cast("Any", self.take(os.fsdecode(np.asarray(name).item()))), np.uint8)

    def tensor(self, name: tf.Tensor) -> tf.Tensor:
        """Read an object within a pipeline: uint8 ``(bytes,)``."""
        contents = tf.numpy_function(self.array, [name], tf.uint8)
        contents.set_shape((None,))
        return contents

    def pids(self) -> list[int]:
        """Return the numbers of the processes that serve the objects on this machine."""
        return [each.pid for each in servers.of(self.client.storage["endpoint"])]

    @contextmanager
    def in_order(self, names: Sequence[str]) -> Iterator[None]:
        """Read these objects in this order meanwhile: engine ``async`` begins with the first that is taken.

        Raises what ended the client, if something did: what came after it was not read.
        """
        if self.engine["engine"] == "async":
            self._ahead = Ahead(self.client, [(name, self.stored[name]) for name in names], self.engine["concurrency"])
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
    """Let the calling thread keep its state in the interpreter between two calls from TensorFlow.

    A thread that Python has not started gets a state for each call of `PyGILState_Ensure` that is not within another
    one, memory of its own included: a third of what it costs to call Python from a pipeline. One call that is never
    released (Python's C API, "Non-Python created threads") makes the state last as long as the process.
    """
    if not hasattr(_THREAD, "kept"):
        _THREAD.kept = ctypes.pythonapi.PyGILState_Ensure()


@contextmanager
def of_dataset(storage: Node, url: str, listed: Listed, disk: str | None, threads: int) -> Iterator[Source]:
    """Open the objects of a data set, which are below `url`, for a run; `storage` is of the settings."""
    client = Client(storage)
    below = client.key_of(url)
    known = listed.objects or ((None, None),) * len(listed.files)
    stored = {
        name: Stored(f"{below}/{name}" if below else name, size, *each)
        for (name, size, _), each in zip(listed.files, known, strict=True)
    }
    source = Source(client, stored, disk, threads)
    try:
        yield source
    finally:
        source.ranges.close()
