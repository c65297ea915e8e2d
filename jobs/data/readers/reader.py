"""Open a reader by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from jobs.data.readers import h5py_parts, offsets, processes
from jobs.data.readers.h5py_parts import Array
from jobs.data.readers.offsets import Fill
from jobs.data.readers.part import READERS, At, Driver, Note, Part, Reader, event_maker
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.objects.run_objects import RunObjects


class _Threads(Reader):
    """A reader that calls the library in the caller's threads; these wait for the library's lock."""

    def __init__(self, parts: Sequence[Part], driver: Driver, note: Note, source: RunObjects | None) -> None:
        self._parts, self._driver, self._note, self._source = parts, driver, note, source

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Array]:
        name = os.fspath(path)
        note = partial(self._note, name, at)
        return h5py_parts.load_parts(name, self._parts, self._driver, note, source=self._source)


def _ranges(
    source: RunObjects | None, helpers: ThreadPoolExecutor | None
) -> Callable[[str], AbstractContextManager[Fill]]:
    """Return a function that opens a file for ``offsets``; an object needs no opening: its engine reads the ranges."""
    if source is None:
        return partial(offsets.opened_file, helpers)
    if source.engine["engine"] == "async":
        return lambda name: nullcontext(partial(source.ranges.fill, name))
    return lambda name: nullcontext(partial(offsets.read_ranges, partial(source.ranges.read, name), helpers))


@contextmanager
def open_reader(  # noqa: PLR0913 - the differences between readers
    name: str,
    parts: Sequence[Part],
    paths: Sequence[str | os.PathLike[str]],
    *,
    readers: int = 4,
    driver: Driver = "sec2",
    log: TimeLog | None = None,
    source: RunObjects | None = None,
) -> Iterator[Reader]:
    """Yield a reader that is ready: its processes, memory and offsets exist before the first file is read.

    `readers` is the number of processes of ``h5py_pool`` and ``h5py_shared``, or of threads with which ``offsets``
    reads a large piece. `driver` is the library's; ``core`` reads the whole file into memory; ``offsets`` has none.
    Opening and reading a file are logged in `log`, by processes in logs beside it. With a `source` the files are
    objects, which processes cannot read.

    Raises DatasetError, now or in a later read, if there is no such reader, or a file is not HDF5, lacks a part, or has
    bytes that ``offsets`` cannot read.
    """
    if name not in READERS:
        raise DatasetError(f"there is no reader {name!r}", f"take one of: {', '.join(READERS)}")
    if name == "h5py_threads":
        yield _Threads(parts, driver, event_maker(log), source)
    elif name == "offsets":
        layouts = partial(offsets.part_layouts, parts=parts, source=source)
        layouts_of = {os.fspath(path): layouts(os.fspath(path)) for path in paths}
        with ThreadPoolExecutor(readers) as helpers:
            ranges = _ranges(source, helpers if readers > 1 else None)
            yield offsets.OffsetReader(layouts, layouts_of, ranges, event_maker(log))
    else:
        slot_bytes = (
            max(map(partial(h5py_parts.parts_bytes, parts=parts), paths), default=0) if name == "h5py_shared" else None
        )
        with processes.start_pool(parts, readers, driver, log, slot_bytes) as pool:
            yield pool
