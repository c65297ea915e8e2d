"""Open a reader of HDF5 files by the reader's name."""

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
    """A reader that calls the HDF5 library in the caller's threads, so the threads wait for the library's lock."""

    def __init__(self, parts: Sequence[Part], driver: Driver, note: Note, source: RunObjects | None) -> None:
        self._parts, self._driver, self._note, self._source = parts, driver, note, source

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Array]:
        name = os.fspath(path)
        note = partial(self._note, name, at)
        return h5py_parts.load_parts(name, self._parts, self._driver, note, source=self._source)


def _ranges(
    source: RunObjects | None, helpers: ThreadPoolExecutor | None
) -> Callable[[str], AbstractContextManager[Fill]]:
    """Return a function that opens a file or an object for the reader ``offsets``.

    The function yields a second function, which reads ranges of the file. An object needs no open: the engine of the
    `source` reads ranges of the object.
    """
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
    """Open a reader by its name, and yield it after its processes, memory and offsets are prepared.

    `readers` is the number of processes of ``h5py_pool`` and ``h5py_shared``. For ``offsets``, `readers` is the number
    of threads that read a large piece of a file. `driver` is the driver of the HDF5 library: ``sec2`` reads parts of a
    file, ``core`` reads the whole file into memory. The reader ``offsets`` uses no driver. The reader logs each open
    and each read in `log`; the processes of a reader write their own logs beside `log`. With a `source` the files are
    objects, which ``h5py_pool`` and ``h5py_shared`` cannot read.

    Raises DatasetError if no reader has this name. This function or a later read raises DatasetError if a file is not
    HDF5, lacks a part, or has bytes that ``offsets`` cannot read.
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
