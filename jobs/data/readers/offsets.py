"""The reader ``offsets``: the HDF5 library is called once for the offsets of a file's data; reads bypass the library.

The bytes of a contiguous data set, or of a chunk without a filter, are one contiguous piece of the file. A read of such
a piece needs neither the HDF5 library's lock nor Python's global lock.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jobs.data.readers.h5py_parts import Array, aligned_array, data_set_of, file_of, name_in_errors, read_part
from jobs.data.readers.part import At, Note, Part, Reader
from jobs.errors import DatasetError
from jobs.lazy_imports import h5py
from jobs.system import files

if TYPE_CHECKING:
    from jobs.objects.run_objects import RunObjects

Read = Callable[[memoryview, int], None]  # reads a file from an offset into memory
Fill = Callable[[Iterable["FileRange"]], None]  # reads ranges of a file

_PIECE = 16 << 20  # bytes; several threads read a longer range in parallel
_CURE = "use reader=h5py_pool, which can read this data set"


class Piece(NamedTuple):
    """Neighbouring rows of a part whose bytes are one contiguous piece of the file."""

    offset: int  # offset of the piece in the file, in bytes
    place: int  # index of the first row in the part
    rows: int  # number of rows
    region: tuple[slice, ...] | None  # slices of the axes after the first axis; None: the rows are complete
    shape: tuple[int, ...]  # shape of a row in the file; a chunk at the edge of the data set is larger than its region


@dataclass(frozen=True)
class PartLayout:
    """The shape and type of a part, and the pieces of the file that contain the part's data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: tuple[Piece, ...]
    fill_value: Any = None  # value of the cells that were never written; None: all cells were written
    held: Array | None = None  # the whole contents, if HDF5 stores them in the metadata of the file or they are empty


class FileRange(NamedTuple):
    """A range of a file to read: the memory to fill, the offset in the file, and a function to call after the read."""

    view: memoryview
    offset: int
    done: Callable[[], object] = lambda: None


def part_layouts(path: str, parts: Sequence[Part], source: RunObjects | None = None) -> list[PartLayout]:
    """Return the layout of each part of a file; raise DatasetError for a part that only the HDF5 library can read."""
    with file_of(path, source=source) as file:
        return [_layout(file.name, data_set_of(file, part), part) for part in parts]


def _layout(name: str, data: h5py.Dataset, part: Part) -> PartLayout:
    properties, shape, h5d = data.id.get_create_plist(), part.shape(data.shape), h5py.h5d
    kind = properties.get_layout()
    filters = [properties.get_filter(number)[3].decode(errors="replace") for number in range(properties.get_nfilters())]
    if filters:
        fault = f"has the filter {', '.join(filters)}, which changes the stored bytes"
        raise DatasetError(f"{name}: {part.name} {fault}", _CURE)
    if kind == h5d.COMPACT or not data.size:
        return PartLayout(shape, data.dtype, (), held=read_part(data, part))
    pieces = tuple(_chunks(data, part) if kind == h5d.CHUNKED else _contiguous(data, part))
    rows = sum(piece.rows * _cells(piece, shape[1:]) for piece in pieces)
    is_complete = rows == int(np.prod(shape))
    return PartLayout(shape, data.dtype, pieces, None if is_complete else data.fillvalue)


def _cells(piece: Piece, row: tuple[int, ...]) -> int:
    sides = row if piece.region is None else [part.stop - part.start for part in piece.region]
    return int(np.prod(sides))


def _contiguous(data: h5py.Dataset, part: Part) -> Iterator[Piece]:
    start = data.id.get_offset()
    # If the file has a user block, HDF5 returns a number even for a missing offset. So the storage size is needed, too.
    if start is None or not data.id.get_storage_size():
        return  # no data were ever written
    row = data.shape[1:]
    size = int(np.prod(row)) * data.dtype.itemsize
    for index, first, count in part.runs(data.shape[0] if data.shape else 1):
        yield Piece(start + first * size, index, count, None, row)


def _chunks(data: h5py.Dataset, part: Part) -> Iterator[Piece]:
    chunk: tuple[int, ...] = data.chunks
    size = int(np.prod(chunk[1:])) * data.dtype.itemsize
    begins: dict[int, list[Any]] = {}
    # `chunk_iter` goes through the index of chunks only once. Every call of `get_chunk_info(i)` would start at chunk 0.
    data.id.chunk_iter(lambda info: begins.setdefault(info.chunk_offset[0], []).append(info))
    for index, first, count in part.runs(data.shape[0]):
        for begin in range(first - first % chunk[0], first + count, chunk[0]):
            low, high = max(begin, first), min(begin + chunk[0], first + count)
            for info in begins.get(begin, []):
                ends = zip(info.chunk_offset[1:], chunk[1:], data.shape[1:], strict=True)
                region = tuple(slice(start, min(start + side, end)) for start, side, end in ends)
                is_whole_row = chunk[1:] == data.shape[1:]
                offset = info.byte_offset + (low - begin) * size
                yield Piece(offset, index + low - first, high - low, None if is_whole_row else region, chunk[1:])


@dataclass
class OffsetReader(Reader):
    """A reader that reads the bytes of a file at the offsets in the file's layouts; thread safe."""

    layouts: Callable[[str], list[PartLayout]]  # returns the layouts of a file that is not in `known`
    known: dict[str, list[PartLayout]]  # layouts of the parts of each file, by path
    opened: Callable[[str], AbstractContextManager[Fill]]  # opens a file, and yields a function that reads ranges
    note: Note

    def read(self, path: str | os.PathLike[str], at: At | None = None) -> list[Array]:
        """Return the parts of a file, one array per part."""
        name = os.fspath(path)
        file_layouts = self.known[name] if name in self.known else self.known.setdefault(name, self.layouts(name))
        arrays = [aligned_array(layout.shape, layout.dtype) for layout in file_layouts]
        with ExitStack() as stack:
            with self.note(name, at, "open"):
                fill = stack.enter_context(self.opened(name))
            with self.note(name, at, "read") as event:
                fill(itertools.chain.from_iterable(map(_ranges, file_layouts, arrays)))
                event.size_bytes = sum(array.nbytes for array in arrays)
        return arrays


def _ranges(layout: PartLayout, array: Array) -> Iterator[FileRange]:
    """Yield the ranges of a file to read into an array; first set the values that are not in any range."""
    if layout.held is not None:
        array[...] = layout.held
    elif layout.fill_value is not None:
        array[...] = layout.fill_value
    rows = array.reshape(-1) if not array.shape else array
    for piece in layout.pieces:
        target = rows[piece.place : piece.place + piece.rows]
        if piece.region is None:
            yield FileRange(target.reshape(-1).view(np.uint8).data, piece.offset)
        else:
            chunk = np.empty((piece.rows, *piece.shape), array.dtype)
            yield FileRange(
                chunk.reshape(-1).view(np.uint8).data, piece.offset, partial(_copy_region, chunk, target, piece.region)
            )


def _copy_region(chunk: Array, target: Array, region: tuple[slice, ...]) -> None:
    inner = tuple(slice(0, part.stop - part.start) for part in region)
    target[(slice(None), *region)] = chunk[(slice(None), *inner)]


def read_ranges(read: Read, helpers: ThreadPoolExecutor | None, ranges: Iterable[FileRange]) -> None:
    """Read the ranges of a file in order; the threads `helpers`, if any, read a long range in parallel."""
    for view, offset, done in ranges:
        if helpers is None or len(view) <= _PIECE:
            read(view, offset)
        else:
            starts = range(0, len(view), _PIECE)
            list(
                helpers.map(
                    read, [view[start : start + _PIECE] for start in starts], [offset + start for start in starts]
                )
            )
        done()


@contextmanager
def opened_file(helpers: ThreadPoolExecutor | None, name: str) -> Iterator[Fill]:
    """Open a file, and yield a function that reads ranges of the file."""
    with name_in_errors(name), files.open_through_links(name) as file:
        yield partial(read_ranges, partial(_read, file, name), helpers)


def _read(file: int, name: str, view: memoryview, offset: int) -> None:
    while view:
        count = os.preadv(file, [view], offset)
        if not count:
            raise DatasetError(f"{name} is shorter than its metadata say", "copy the file again, or make it again")
        view, offset = view[count:], offset + count
