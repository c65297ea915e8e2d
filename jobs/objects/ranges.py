"""Read ranges of objects, for data within a file: one range at a time, or many with one event loop.

A range that is longer than `PART_BYTES` is read by several requests, each with its own ``storage.timeout_s``.
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
from jobs.objects.client import PART_BYTES, Client, DataError, StoredObject

if TYPE_CHECKING:
    import obstore

    Span = tuple[int, int]

_BLOCK_BYTES = 1 << 16  # bytes per cached block of `ObjectFile`; HDF5's metadata lie in a few blocks
_CLOSE_S = 1.0  # seconds to wait for the end of the thread


class RangeReader:
    """A reader of ranges of listed objects; it adds names of objects that differ from the list to `wrong`."""

    def __init__(self, client: Client, stored: Mapping[str, StoredObject], wrong: set[str], concurrency: int) -> None:
        self._client, self._stored, self._wrong, self._concurrency = client, stored, wrong, concurrency
        self._digests: defaultdict[str, set[tuple[Span, bytes]]] = defaultdict(set)  # by name: spans with their SHA-256

    def read(self, name: str, view: memoryview, offset: int) -> None:
        """Fill `view` with the object's bytes from `offset`; errors are those of `Client.get`."""
        stored = self._stored[name]
        for part, span in _split(view, offset):
            with self._noting_errors(name):
                self._store(name, part, span, self._client.get(stored.key, stored, span))

    def fill(self, name: str, ranges: Iterable[tuple[memoryview, int, Callable[[], object]]]) -> None:
        """Read all ranges in parallel, with at most the engine's ``concurrency`` requests at once.

        A range has the memory to fill, the offset in the object, and a function to call when all ranges are read.
        """
        all_ranges = list(ranges)
        parts = [part for view, offset, _ in all_ranges for part in _split(view, offset)]
        with self._noting_errors(name):
            asyncio.run_coroutine_threadsafe(self._read_all(name, parts), self._loop).result()
        for _, _, done in all_ranges:
            done()

    async def _read_all(self, name: str, parts: list[tuple[memoryview, Span]]) -> None:
        tasks = [asyncio.ensure_future(self._read_part(name, view, span)) for view, span in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _read_part(self, name: str, view: memoryview, span: Span) -> None:
        async with self._slots:
            data = await self._client.get_async(self._stored[name].key, self._stored[name], span)
        self._store(name, view, span, data)

    def _store(self, name: str, view: memoryview, span: Span, data: obstore.Bytes) -> None:
        source = np.frombuffer(cast("Any", data), np.uint8)
        np.copyto(np.frombuffer(view, np.uint8), source)  # without Python's lock
        if self._client.storage["checksum"] and self._stored[name].sha256:
            self._digests[name].add((span, hashlib.sha256(data).digest()))

    @contextmanager
    def _noting_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except DataError:
            self._wrong.add(name)
            raise

    def compare(self) -> None:
        """Read each object completely; compare it with its checksum, and the ranges that were read with its bytes.

        It does nothing without ``storage.checksum``. Names of objects that differ are added to `wrong`; other errors
        are those of `Client.get`.
        """
        for name, digests in self._digests.items():
            try:
                content = memoryview(self._client.get(self._stored[name].key, self._stored[name]))
            except DataError:
                self._wrong.add(name)
                continue
            if any(hashlib.sha256(content[slice(*span)]).digest() != digest for span, digest in digests):
                self._wrong.add(name)

    def file(self, name: str) -> ObjectFile:
        """Return an object as a readable file; raise DataError if it is missing."""
        return ObjectFile(self, name, self._stored[name].size, self._client.url_of(self._stored[name].key))

    @cached_property
    def _slots(self) -> asyncio.Semaphore:
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
            self._thread.join(_CLOSE_S)
            if not self._thread.is_alive():
                self._loop.close()


def _split(view: memoryview, offset: int) -> Iterator[tuple[memoryview, Span]]:
    for start in range(0, len(view), PART_BYTES):
        part = view[start : start + PART_BYTES]
        yield part, (offset + start, offset + start + len(part))


class ObjectFile(io.RawIOBase):
    """A readable and seekable file of an object; short reads are served from cached blocks."""

    def __init__(self, ranges: RangeReader, name: str, size: int, url: str) -> None:
        """Open the object, and read its first block."""
        super().__init__()
        self._ranges, self._name, self._size, self._url = ranges, name, size, url
        self._position, self._blocks = 0, dict[int, bytearray]()
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
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer up to the end of the object; return the number of bytes read."""
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._position)]
        if len(view) >= _BLOCK_BYTES:
            self._ranges.read(self._name, view, self._position)
        else:
            self._copy_from_blocks(view)
        self._position += len(view)
        return len(view)

    def _copy_from_blocks(self, view: memoryview) -> None:
        position = self._position
        while view:
            number, first = divmod(position, _BLOCK_BYTES)
            part = self._block(number)[first : first + len(view)]
            view[: len(part)] = part
            view, position = view[len(part) :], position + len(part)

    def _block(self, number: int) -> bytearray:
        if number not in self._blocks:
            start = number * _BLOCK_BYTES
            block = bytearray(min(_BLOCK_BYTES, self._size - start))
            self._ranges.read(self._name, memoryview(block), start)
            self._blocks[number] = block
        return self._blocks[number]
