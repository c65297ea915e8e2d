"""Parts of an HDF5 file, read by the library: a lock of the whole process makes its calls take turns."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, TypeAlias

from jobs import objects
from jobs.data.readers.part import Driver, Part
from jobs.errors import DatasetError
from jobs.lazy_imports import h5py, np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_ALIGNED = 64  # bytes: TensorFlow takes such an array as it is and copies any other (EIGEN_MAX_ALIGN_BYTES)
_NUMBERS = "biufc"  # kinds of dtype


@contextmanager
def file_of(path: str | os.PathLike[str], driver: Driver = "sec2") -> Iterator[h5py.File]:
    """Open an HDF5 file to read it; with ``core`` the whole file comes into memory at once.

    Of a run on an object store it is an object, read by ranges whatever the driver. Raises DatasetError where it is no
    HDF5 file, or cannot be read.
    """
    name, source = os.fspath(path), objects.here()
    try:
        if not source and not stat.S_ISREG(os.stat(name).st_mode):  # noqa: PTH116 - opening a pipe would wait for its writer
            raise DatasetError(f"{name} is no file", "move it out of the dataset")
        how = {"backing_store": False} if driver == "core" else {}
        if source:
            file = h5py.File(source.ranges.file(name), "r")
        else:
            file = h5py.File(name, "r", locking=False, driver=driver, **how)
    except OSError as error:
        why = error.strerror or str(error)
        away = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
        hint = "name a file that is there, and that you may read" if away else "see what `h5ls` says of it"
        raise DatasetError(f"{name} cannot be read as HDF5: {why}", hint) from error
    with file:
        yield file


def found(file: h5py.File, part: Part) -> h5py.Dataset:
    """Return the data set of a part; DatasetError where there is none of numbers, in this very file."""
    try:
        each = file.get(part.name)
    except (KeyError, OSError, RuntimeError):  # a link that leads nowhere
        each = None
    if not isinstance(each, h5py.Dataset):
        has: list[str] = []
        file.visititems(lambda name, node: has.append(name) if isinstance(node, h5py.Dataset) else None)
        raise DatasetError(f"{file.filename} has no data set {part.name!r}", f"it has: {', '.join(has[:8])}")
    if each.dtype.kind not in _NUMBERS or each.shape is None:
        raise DatasetError(f"{file.filename}: {part.name} holds no numbers but {each.dtype}", "name another data set")
    if each.file.filename != file.filename:
        raise DatasetError(
            f"{file.filename}: {part.name} lies in another file, {each.file.filename}", "name that file's folder"
        )
    try:
        part.shape(each.shape)
    except ValueError as error:
        raise DatasetError(f"{file.filename}: {error}", "name rows that it has") from error
    return each


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that TensorFlow takes without a copy."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size].view(dtype).reshape(shape)


def load(
    path: str | os.PathLike[str],
    parts: Sequence[Part],
    driver: Driver = "sec2",
    note: Callable[[str], AbstractContextManager[Any]] = lambda _: nullcontext(SimpleNamespace()),
    room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty,
) -> list[Array]:
    """Read parts of a file into arrays that `room` gives; `note` makes the event of an action, `open` or `read`."""
    with ExitStack() as stack:
        with note("open"):
            file = stack.enter_context(file_of(path, driver))
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


def size(path: str | os.PathLike[str], parts: Sequence[Part]) -> int:
    """Return the bytes of the parts of a file, each at a boundary of 64."""
    with file_of(path) as file:
        shapes = [(part.shape(data.shape), data.dtype.itemsize) for part in parts if (data := found(file, part))]
        return sum(-(-int(np.prod(shape)) * width // _ALIGNED) * _ALIGNED for shape, width in shapes)
