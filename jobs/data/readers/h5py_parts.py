"""Reads parts of an HDF5 file by the library, whose lock allows only one call at a time in a process.

A file made by others may refer to any file of the reader's. So a data set is found without leaving its file: only hard
links and soft links are followed, by ourselves, one component of a path after the other. A data set whose bytes lie in
other files is refused before anything asks for its shape or contents, for which HDF5 may open them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jobs.data.readers.part import Driver, Part
from jobs.errors import DatasetError
from jobs.lazy_imports import h5py, np
from jobs.system import files

if TYPE_CHECKING:
    from jobs.objects.source import Source


MOST_SOFT_LINKS = 16  # as in HDF5 (H5L_NUM_LINKS)
_NAMED, _NAMED_CHARACTERS = 8, 80
_CURE = "copy what is meant into this file, or leave the file out"


class File(NamedTuple):
    """An open HDF5 file with its real name; HDF5 itself uses another name."""

    name: str
    root: h5py.Group


def data_set(file: File, path: str) -> h5py.Dataset:
    """Return the data set at a path of a file; raise DatasetError if it is missing or outside of the file."""
    node, trail, ahead, links = file.root.id, list[str](), _components(path), 0
    while ahead:
        name = ahead.pop(0)
        code = name.encode(errors="surrogateescape")
        if not isinstance(node, h5py.h5g.GroupID) or not node.links.exists(code):
            raise _missing(file, path, node, trail)
        kind = node.links.get_info(code).type
        if kind == h5py.h5l.TYPE_HARD:
            node = h5py.h5o.open(node, code)
            trail.append(name)
        elif kind == h5py.h5l.TYPE_SOFT and links < MOST_SOFT_LINKS:
            leads = node.links.get_val(code).decode(errors="surrogateescape")
            links, ahead = links + 1, _components(leads) + ahead
            if leads.startswith("/"):
                node, trail = file.root.id, []
        else:
            loops = kind == h5py.h5l.TYPE_SOFT
            what = f"leads through more than {links} links" if loops else "is a link to another file"
            raise DatasetError(f"{file.name}: {_shown([*trail, name])} {what}, and is not followed", _CURE)
    if not isinstance(node, h5py.h5d.DatasetID):
        raise _missing(file, path, node, trail)
    data = h5py.Dataset(node, readonly=True)
    if data.is_virtual or data.external:
        what = "is virtual: it is made of others" if data.is_virtual else "lies in other files"
        raise DatasetError(f"{file.name}: {_shown(trail)} {what}, and is not read", _CURE)
    return data


def _components(path: str) -> list[str]:
    return [each for each in path.split("/") if each not in ("", ".")]


def _shown(trail: list[str]) -> str:
    return "/".join(trail)[-_NAMED_CHARACTERS:]


def _missing(file: File, path: str, node: object, trail: list[str]) -> DatasetError:
    names = islice(node, _NAMED) if isinstance(node, h5py.h5g.GroupID) else ()
    there = ", ".join(_shown([*trail, name.decode(errors="replace")]) for name in names)
    return DatasetError(f"{file.name} has no data set {path!r}", f"it has: {there or 'nothing there'}")


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_ALIGNED = 64  # bytes: TensorFlow takes such an array as it is and copies any other (EIGEN_MAX_ALIGN_BYTES)
_NUMBERS = "biufc"  # kinds of dtype
_MOST_BYTES, _MOST_DEFLATED = 1 << 30, 1032  # of a part; for each byte of a large file (deflate makes no more)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Raise a DatasetError that names the file, for any error in the block."""
    try:
        yield
    except (OSError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        why = getattr(error, "strerror", None) or str(error) or "it has more than there is memory"
        away = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
        hint = "name a file that is there, and that you may read" if away else "see what `h5ls` says of it"
        hint = "move it out of the dataset" if isinstance(error, files.OddFileError) else hint
        raise DatasetError(f"{name} cannot be read as HDF5: {why}", hint) from error


@contextmanager
def file_of(path: str | os.PathLike[str], driver: Driver = "sec2", source: Source | None = None) -> Iterator[File]:
    """Yield an HDF5 file opened for reading; with ``core`` the whole file is read into memory at once.

    With a `source` it is an object, read by ranges with any driver. Raises DatasetError if it is no HDF5 file, or
    cannot be read.
    """
    name = os.fspath(path)
    with named(name), ExitStack() as stack:
        if source:
            file = h5py.File(source.ranges.file(name), "r")
        else:
            how = {"backing_store": False} if driver == "core" else {}
            with files.followed(name) as descriptor:  # what has its name by now may be a pipe
                file = h5py.File(f"/proc/self/fd/{descriptor}", "r", locking=False, driver=driver, **how)
        yield File(file.filename if source else name, stack.enter_context(file))


def data_set_of(file: File, part: Part) -> h5py.Dataset:
    """Return the data set of a part; raise DatasetError if this file has none, or one without numbers."""
    each = data_set(file, part.name)
    if each.dtype.kind not in _NUMBERS or each.shape is None:
        raise DatasetError(f"{file.name}: {part.name} holds no numbers but {each.dtype}", "name another data set")
    try:
        shape = part.shape(each.shape)
    except ValueError as error:
        raise DatasetError(f"{file.name}: {error}", "name rows that it has") from error
    size = max(math.prod(shape), math.prod(each.chunks or ())) * each.dtype.itemsize
    if size > max(_MOST_BYTES, _MOST_DEFLATED * each.file.id.get_filesize()):
        raise DatasetError(f"{file.name}: {part.name} would be {size:,} bytes, of so small a file", "leave it out")
    return each


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array, aligned so that TensorFlow takes it without a copy."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size].view(dtype).reshape(shape)


def load(  # noqa: PLR0913 - what differs from reader to reader
    path: str | os.PathLike[str],
    parts: Sequence[Part],
    driver: Driver = "sec2",
    note: Callable[[str], AbstractContextManager[Any]] = lambda _: nullcontext(SimpleNamespace()),
    room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty,
    *,
    source: Source | None = None,
) -> list[Array]:
    """Return parts of a file as arrays that `room` makes; `note` makes the log event of an action (`open`, `read`)."""
    with ExitStack() as stack:
        with note("open"):
            file = stack.enter_context(file_of(path, driver, source))
        with note("read") as event:
            arrays = [read_part(data_set_of(file, part), part, room) for part in parts]
            event.size_bytes = sum(array.nbytes for array in arrays)
        return arrays


def read_part(data: h5py.Dataset, part: Part, room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty) -> Array:
    """Return the array of a part, read from the file."""
    array = room(part.shape(data.shape), data.dtype)
    if not data.shape:
        array[()] = data[()]
    elif array.size:
        for place, row, number in part.runs(data.shape[0]):
            data.read_direct(array, np.s_[row : row + number], np.s_[place : place + number])
    return array


def size(path: str | os.PathLike[str], parts: Sequence[Part], source: Source | None = None) -> int:
    """Return the bytes that the parts of a file need in memory, each part aligned to 64 bytes."""
    with file_of(path, source=source) as file:
        shapes = [(part.shape(data.shape), data.dtype.itemsize) for part in parts if (data := data_set_of(file, part))]
        return sum(-(-int(np.prod(shape)) * width // _ALIGNED) * _ALIGNED for shape, width in shapes)
