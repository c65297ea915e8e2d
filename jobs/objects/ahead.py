"""Engine ``async``: one event loop in a thread of its own gets objects before they are asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

from jobs.objects.client import Client, Stored

if TYPE_CHECKING:
    import obstore

_LATE_S = 1.0  # for requests in flight to be cancelled; the thread does not keep a process from ending


class Ahead:
    """Keeps so many requests in flight, in the order of the objects; as many more may have come and not been taken."""

    def __init__(self, client: Client, wanted: Sequence[tuple[str, Stored]], concurrency: int) -> None:
        """Send nothing yet: the first request is sent when the first object is taken, within the clock of a run."""
        self._client, self._concurrency = client, concurrency
        self._futures: dict[str, Future[obstore.Bytes]] = {name: Future() for name, _ in wanted}
        self._left = iter([(known, self._futures[name]) for name, known in wanted])
        self._awaited: set[Future[obstore.Bytes]] = set()
        self._loop = asyncio.new_event_loop()
        self._room, self._held, self._waiting = asyncio.Event(), 0, False
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def take(self, name: str) -> obstore.Bytes | None:
        """Return an object when it is there, or raise its error; None for one that is not to come, or was taken."""
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
            if waiting:  # a wake-up of the loop costs more than all else here
                self._soon(self._room.set)

    def _begin(self) -> None:
        if self._task is None and not self._loop.is_closed():
            self._task = self._loop.create_task(self._all())
            self._thread = threading.Thread(target=self._run, args=(self._task,), name="objects", daemon=True)
            self._thread.start()

    def _run(self, task: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError, InvalidStateError):  # of a future that was given up
            self._loop.run_until_complete(task)
        self._loop.close()

    async def _all(self) -> None:
        await asyncio.gather(*(self._work() for _ in range(self._concurrency)))

    async def _work(self) -> None:
        """Get one object after the other; an error is for whoever asks for the object."""
        while True:
            await self._admitted()
            known, future = next(self._left, (None, None))
            if known is None or future is None:
                return
            try:
                data = await self._client.get_async(known.key, known)
            except Exception as error:  # noqa: BLE001 - goes on in the thread that waits for it
                future.set_exception(error)
            else:
                future.set_result(data)

    async def _admitted(self) -> None:
        """Wait until one more object may be asked for: until few enough were asked for and are not taken."""
        while True:
            with self._lock:
                if self._held < 2 * self._concurrency:
                    self._held += 1
                    return
                self._room.clear()
                self._waiting = True
            await self._room.wait()

    def _soon(self, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has come to its end
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End what is in flight; whoever still waits for an object, or asks for one later, gets an error."""
        with self._lock:
            if self._task is None:
                self._loop.close()
        if self._thread and self._task:
            self._soon(self._task.cancel)
            self._thread.join(_LATE_S)
        with self._lock:
            for future in (*self._futures.values(), *self._awaited):
                future.cancel()
