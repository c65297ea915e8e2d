"""Read parts of an HDF5 file with the HDF5 library, whose global lock allows only one call at a time in a process.

An HDF5 file of another user may contain links to any file that this process may read. So this module never follows a
link to another file: it follows hard links and soft links only, one component of a path after the other. A data set
whose bytes are in other files is refused before this module requests its shape or contents, because HDF5 could then
open the other files.
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
    from jobs.objects.run_objects import RunObjects


MOST_SOFT_LINKS = 16  # largest number of soft links in one path; equal to HDF5's H5L_NUM_LINKS
_NAMED, _NAMED_CHARACTERS = 8, 80
_CURE = "copy the data set into this file, or move this file out of the dataset"


class NamedHdf5File(NamedTuple):
    """An open HDF5 file with its real name, because HDF5 knows only the path `/proc/self/fd/N`."""

    name: str
    root: h5py.Group


def data_set(file: NamedHdf5File, path: str) -> h5py.Dataset:
    """Return the data set at a path in an HDF5 file; raise DatasetError if the data set is not in this file."""
    node, trail, remaining, links = file.root.id, list[str](), _components(path), 0
    while remaining:
        name = remaining.pop(0)
        code = name.encode(errors="surrogateescape")
        if not isinstance(node, h5py.h5g.GroupID) or not node.links.exists(code):
            raise _missing(file, path, node, trail)
        link_type = node.links.get_info(code).type
        if link_type == h5py.h5l.TYPE_HARD:
            node = h5py.h5o.open(node, code)
            trail.append(name)
        elif link_type == h5py.h5l.TYPE_SOFT and links < MOST_SOFT_LINKS:
            target = node.links.get_val(code).decode(errors="surrogateescape")
            links, remaining = links + 1, _components(target) + remaining
            if target.startswith("/"):
                node, trail = file.root.id, []
        else:
            is_loop = link_type == h5py.h5l.TYPE_SOFT
            fault = f"leads through more than {links} links" if is_loop else "is a link to another file"
            raise DatasetError(f"{file.name}: {_path_text([*trail, name])} {fault}, and is not followed", _CURE)
    if not isinstance(node, h5py.h5d.DatasetID):
        raise _missing(file, path, node, trail)
    data = h5py.Dataset(node, readonly=True)
    if data.is_virtual or data.external:
        fault = "is virtual: its bytes are in other data sets" if data.is_virtual else "lies in other files"
        raise DatasetError(f"{file.name}: {_path_text(trail)} {fault}, and is not read", _CURE)
    return data


def _components(path: str) -> list[str]:
    return [component for component in path.split("/") if component not in ("", ".")]


def _path_text(trail: list[str]) -> str:
    return "/".join(trail)[-_NAMED_CHARACTERS:]


def _missing(file: NamedHdf5File, path: str, node: object, trail: list[str]) -> DatasetError:
    names = islice(node, _NAMED) if isinstance(node, h5py.h5g.GroupID) else ()
    listing = ", ".join(_path_text([*trail, name.decode(errors="replace")]) for name in names)
    return DatasetError(f"{file.name} has no data set {path!r}", f"the file has: {listing or 'nothing'}")


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
_ALIGNED = 64  # bytes; TensorFlow copies an array that is not aligned to 64 bytes (EIGEN_MAX_ALIGN_BYTES)
_NUMBERS = "biufc"  # numpy's codes for the kinds of numeric dtypes
# A part may have at most _MOST_BYTES, or _MOST_DEFLATED times the size of the file: deflate compresses by at most 1032.
_MOST_BYTES, _MOST_DEFLATED = 1 << 30, 1032


@contextmanager
def name_in_errors(name: str) -> Iterator[None]:
    """Raise a DatasetError with the name of the file if the `with` block raises an error."""
    try:
        yield
    except (OSError, LookupError, RuntimeError, TypeError, ValueError, ArithmeticError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error) or "the data set does not fit into memory"
        is_inaccessible = isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError)
        hint = "name an existing file that you may read" if is_inaccessible else "inspect the file with `h5ls`"
        hint = f"move {name} out of the dataset" if isinstance(error, files.OddFileError) else hint
        raise DatasetError(f"{name} cannot be read as HDF5: {reason}", hint) from error


@contextmanager
def file_of(
    path: str | os.PathLike[str], driver: Driver = "sec2", source: RunObjects | None = None
) -> Iterator[NamedHdf5File]:
    """Open an HDF5 file for reading, and yield it; the driver ``core`` reads the whole file into memory at once.

    If the data are in an object store, `source` gives the file as an object, and every driver reads ranges of the
    object. Raises DatasetError if the file is unreadable or is not HDF5.
    """
    name = os.fspath(path)
    with name_in_errors(name), ExitStack() as stack:
        if source:
            file = h5py.File(source.ranges.file(name), "r")
        else:
            options = {"backing_store": False} if driver == "core" else {}
            # HDF5 opens the file by its descriptor, because another process may have replaced the file of this name.
            with files.open_through_links(name) as descriptor:
                file = h5py.File(f"/proc/self/fd/{descriptor}", "r", locking=False, driver=driver, **options)
        yield NamedHdf5File(file.filename if source else name, stack.enter_context(file))


def data_set_of(file: NamedHdf5File, part: Part) -> h5py.Dataset:
    """Return the data set of a part; raise DatasetError if the data set is missing, too large or not numeric."""
    data = data_set(file, part.name)
    if data.dtype.kind not in _NUMBERS or data.shape is None:
        raise DatasetError(f"{file.name}: {part.name} has no numbers but {data.dtype}", "name another data set")
    try:
        shape = part.shape(data.shape)
    except ValueError as error:
        raise DatasetError(f"{file.name}: {error}", "name existing rows") from error
    size = max(math.prod(shape), math.prod(data.chunks or ())) * data.dtype.itemsize
    if size > max(_MOST_BYTES, _MOST_DEFLATED * data.file.id.get_filesize()):
        raise DatasetError(
            f"{file.name}: {part.name} would have {size:,} bytes, which is too much for the size of the file",
            "move this file out of the dataset",
        )
    return data


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array whose memory is aligned, so that TensorFlow uses the array without a copy."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start : start + size].view(dtype).reshape(shape)


def load_parts(  # noqa: PLR0913 - the differences between readers
    path: str | os.PathLike[str],
    parts: Sequence[Part],
    driver: Driver = "sec2",
    note: Callable[[str], AbstractContextManager[Any]] = lambda _: nullcontext(SimpleNamespace()),
    room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = aligned_array,
    *,
    source: RunObjects | None = None,
) -> list[Array]:
    """Read parts of a file, and return one array for each part.

    `room` makes an empty array for a part. `note` returns a log event for the action ``open`` or ``read``.
    """
    with ExitStack() as stack:
        with note("open"):
            file = stack.enter_context(file_of(path, driver, source))
        with note("read") as event:
            arrays = [read_part(data_set_of(file, part), part, room) for part in parts]
            event.size_bytes = sum(array.nbytes for array in arrays)
        return arrays


def read_part(
    data: h5py.Dataset, part: Part, room: Callable[[tuple[int, ...], np.dtype[Any]], Array] = aligned_array
) -> Array:
    """Read a part of a data set, and return it as an array; `room` makes the empty array."""
    array = room(part.shape(data.shape), data.dtype)
    if not data.shape:
        array[()] = data[()]
    elif array.size:
        for index, row, count in part.runs(data.shape[0]):
            data.read_direct(array, np.s_[row : row + count], np.s_[index : index + count])
    return array


def rows_of(path: str | os.PathLike[str], name: str) -> dict[str, float]:
    """Return the number of ``rows`` of a data set, and ``file_share``: the share of the file's bytes that it takes."""
    with file_of(path) as file:
        data = data_set_of(file, Part(name))
        share = data.id.get_storage_size() / data.file.id.get_filesize()
        return {"rows": data.shape[0] if data.shape else 1, "file_share": share}


def parts_bytes(path: str | os.PathLike[str], parts: Sequence[Part], source: RunObjects | None = None) -> int:
    """Return the number of bytes that the parts of a file need in memory, with each part aligned to 64 bytes."""
    with file_of(path, source=source) as file:
        shapes = [(part.shape(data.shape), data.dtype.itemsize) for part in parts if (data := data_set_of(file, part))]
        return sum(-(-int(np.prod(shape)) * width // _ALIGNED) * _ALIGNED for shape, width in shapes)
