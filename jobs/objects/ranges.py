"""Read ranges of objects: one range at a time, or many ranges in parallel with an event loop.

Several requests read a range that is longer than `PART_BYTES`. Every request has its own ``storage.timeout_s``.
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

_BLOCK_BYTES = 1 << 16  # bytes per cached block of `ObjectFile`; the metadata of an HDF5 file are in a few blocks
_CLOSE_S = 1.0  # seconds that `close` waits for the end of the event loop's thread


class RangeReader:
    """A reader of ranges of the objects `stored`; it adds to `wrong` the names of objects that differ from `stored`."""

    def __init__(self, client: Client, stored: Mapping[str, StoredObject], wrong: set[str], concurrency: int) -> None:
        self._client, self._stored, self._wrong, self._concurrency = client, stored, wrong, concurrency
        # The spans that were read, with the SHA-256 of their bytes, by name of the object.
        self._digests: defaultdict[str, set[tuple[Span, bytes]]] = defaultdict(set)

    def read(self, name: str, view: memoryview, offset: int) -> None:
        """Fill `view` with the bytes of an object, starting at `offset`. Raises the errors of `Client.get`."""
        stored = self._stored[name]
        for part, span in _split(view, offset):
            with self._noting_errors(name):
                self._store(name, part, span, self._client.get(stored.key, stored, span))

    def fill(self, name: str, ranges: Iterable[tuple[memoryview, int, Callable[[], object]]]) -> None:
        """Read ranges of an object in parallel, with at most ``concurrency`` requests at a time.

        A range consists of the memory to fill, the offset in the object, and a function that is called after all
        ranges are read.
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
        np.copyto(np.frombuffer(view, np.uint8), source)  # numpy copies without Python's global lock
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
        """Check every object of which ranges were read; add the names of wrong objects to `wrong`.

        For the check, the whole object is read again and compared with its checksum. The bytes of the earlier ranges
        are compared with the whole object. Without ``storage.checksum`` nothing is checked. Raises ObjectStoreError
        like `Client.get`.
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
        """Open an object as a readable Python file; raise DataError if the object is missing."""
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
        """Stop the event loop, if it runs."""
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
    """An object as a readable and seekable Python file; short reads take their bytes from cached blocks."""

    def __init__(self, ranges: RangeReader, name: str, size: int, url: str) -> None:
        """Open the object, and read its first block into the cache."""
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
        """Set the position of the next read, and return the position."""
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
