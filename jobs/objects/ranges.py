"""Reads ranges of objects, for data within a file of a format: one at a time, or many by one event loop.

A range longer than a part of an upload is read by several requests, each with its own ``storage.timeout_s``.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from jobs.lazy_imports import np
from jobs.objects.client import PART_BYTES, Client, DataError, Stored

if TYPE_CHECKING:
    import obstore

    Span = tuple[int, int]

_BLOCK_BYTES = 1 << 16  # of what `File` keeps: an HDF5 file describes its data sets in a few of them
_LATE_S = 1.0


class Ranges:
    """A reader of ranges of listed objects; it adds the names of objects that are not as listed to `wrong`."""

    def __init__(self, client: Client, stored: Mapping[str, Stored], wrong: set[str], concurrency: int) -> None:
        self._client, self._stored, self._wrong, self._concurrency = client, stored, wrong, concurrency
        self._digests: defaultdict[str, set[tuple[Span, bytes]]] = defaultdict(set)  # a span may come again

    def read(self, name: str, view: memoryview, offset: int) -> None:
        """Fill `view` with the object's bytes from `offset` on; errors are those of `Client.get`."""
        stored = self._stored[name]
        for part, span in _cut(view, offset):
            with self._named(name):
                self._taken(name, part, span, self._client.get(stored.key, stored, span))

    def fill(self, name: str, ranges: Iterable[tuple[memoryview, int, Callable[[], object]]]) -> None:
        """Read all ranges in parallel, limited by the engine's ``concurrency``.

        `ranges`: the memory to fill, the offset in the object, and a function to call when all ranges are read.
        """
        wanted = list(ranges)
        cuts = [each for view, offset, _ in wanted for each in _cut(view, offset)]
        with self._named(name):
            asyncio.run_coroutine_threadsafe(self._all(name, cuts), self._loop).result()
        for _, _, done in wanted:
            done()

    async def _all(self, name: str, cuts: list[tuple[memoryview, Span]]) -> None:
        tasks = [asyncio.ensure_future(self._one(name, view, span)) for view, span in cuts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, name: str, view: memoryview, span: Span) -> None:
        async with self._room:
            data = await self._client.get_async(self._stored[name].key, self._stored[name], span)
        self._taken(name, view, span, data)

    def _taken(self, name: str, view: memoryview, span: Span, data: obstore.Bytes) -> None:
        came = np.frombuffer(cast("Any", data), np.uint8)
        np.copyto(np.frombuffer(view, np.uint8), came)  # without Python's lock
        if self._client.storage["checksum"] and self._stored[name].sha256:
            self._digests[name].add((span, hashlib.sha256(data).digest()))

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        try:
            yield
        except DataError:
            self._wrong.add(name)
            raise

    def compare(self) -> None:
        """Read each object whole; compare it with its checksum, and each range read before with the same bytes of it.

        Without ``storage.checksum`` nothing is done. Names of objects that differ go to `wrong`; other errors are those
        of `Client.get`.
        """
        for name, digests in self._digests.items():
            try:
                whole = memoryview(self._client.get(self._stored[name].key, self._stored[name]))
            except DataError:
                self._wrong.add(name)
                continue
            if any(hashlib.sha256(whole[slice(*span)]).digest() != digest for span, digest in digests):
                self._wrong.add(name)

    def file(self, name: str) -> File:
        """Return an object as a readable file; raise DataError if it is missing."""
        return File(self, name, self._stored[name].size, self._client.url_of(self._stored[name].key))

    @cached_property
    def _room(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._concurrency)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="objects", daemon=True)
        self._thread.start()
        return loop

    def close(self) -> None:
        """End the event loop, if there is one."""
        if "_loop" in self.__dict__:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_LATE_S)
            if not self._thread.is_alive():
                self._loop.close()


def _cut(view: memoryview, offset: int) -> Iterator[tuple[memoryview, Span]]:
    for at in range(0, len(view), PART_BYTES):
        part = view[at : at + PART_BYTES]
        yield part, (offset + at, offset + at + len(part))


class File(io.RawIOBase):
    """A readable and seekable file of an object; short reads are served from cached blocks."""

    def __init__(self, ranges: Ranges, name: str, size: int, url: str) -> None:
        """Open the object, and read its first block."""
        super().__init__()
        self._ranges, self._name, self._size, self._url = ranges, name, size, url
        self._at, self._blocks = 0, dict[int, bytearray]()
        self._block(0)

    def __repr__(self) -> str:
        """Return the object's URL, which HDF5 uses as the file's name."""
        return self._url

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position and return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer up to the end of the object; return the number of bytes read."""
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        if len(view) >= _BLOCK_BYTES:
            self._ranges.read(self._name, view, self._at)
        else:
            self._from_blocks(view)
        self._at += len(view)
        return len(view)

    def _from_blocks(self, view: memoryview) -> None:
        at = self._at
        while view:
            number, first = divmod(at, _BLOCK_BYTES)
            part = self._block(number)[first : first + len(view)]
            view[: len(part)] = part
            view, at = view[len(part) :], at + len(part)

    def _block(self, number: int) -> bytearray:
        if number not in self._blocks:
            start = number * _BLOCK_BYTES
            block = bytearray(min(_BLOCK_BYTES, self._size - start))
            self._ranges.read(self._name, memoryview(block), start)
            self._blocks[number] = block
        return self._blocks[number]
