"""Parts of an HDF5 file, read by the library: a lock of the whole process makes its calls take turns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from jobs.data.readers import within
from jobs.data.readers.part import Driver, Part
from jobs.data.readers.within import File
from jobs.errors import DatasetError
from jobs.lazy_imports import h5py, np
from jobs.system import files

if TYPE_CHECKING:
    from jobs.objects.source import Source

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_ALIGNED = 64  # bytes: TensorFlow takes such an array as it is and copies any other (EIGEN_MAX_ALIGN_BYTES)
_NUMBERS = "biufc"  # kinds of dtype
_MOST_BYTES, _MOST_DEFLATED = 1 << 30, 1032  # of a part; for each byte of a large file (deflate makes no more)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Raise what goes wrong with an HDF5 file as a DatasetError that names it."""
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
    """Open an HDF5 file to read it; with ``core`` the whole file comes into memory at once.

    Of a `source` it is an object, read by ranges whatever the driver. Raises DatasetError where it is no HDF5 file, or
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


def found(file: File, part: Part) -> h5py.Dataset:
    """Return the data set of a part; DatasetError where there is none of numbers, in this very file."""
    each = within.data_set(file, part.name)
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
    """Return an array that TensorFlow takes without a copy."""
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
    """Read parts of a file into arrays that `room` gives; `note` makes the event of an action, `open` or `read`."""
    with ExitStack() as stack:
        with note("open"):
            file = stack.enter_context(file_of(path, driver, source))
        with note("read") as event:
            arrays = [filled(found(file, part), part, room) for part in parts]
            event.size_bytes = sum(array.nbytes for array in arrays)
        return arrays


def filled(data: h5py.Dataset, part: Part, room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty) -> Array:
    """Read a part."""
    array = room(part.shape(data.shape), data.dtype)
    if not data.shape:
        array[()] = data[()]
    elif array.size:
        for place, row, number in part.runs(data.shape[0]):
            data.read_direct(array, np.s_[row : row + number], np.s_[place : place + number])
    return array


def size(path: str | os.PathLike[str], parts: Sequence[Part], source: Source | None = None) -> int:
    """Return the bytes of the parts of a file, each at a boundary of 64."""
    with file_of(path, source=source) as file:
        shapes = [(part.shape(data.shape), data.dtype.itemsize) for part in parts if (data := found(file, part))]
        return sum(-(-int(np.prod(shape)) * width // _ALIGNED) * _ALIGNED for shape, width in shapes)
