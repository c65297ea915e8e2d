"""Read content that another user may have made (bytes, JSON, arrays, folders), with limits; raise `UntrustedError`.

Users copy results folders, share storages and send profiles by mail. So this module never executes such content, never
follows a link out of its folder, and never waits for a pipe. It does not trust a size that the content states. Only
this module reads such content: ruff's banned-api finds every other module that opens, unpacks or decompresses
such content.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NewType

import msgspec

from jobs.system import files

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES_OF_JSON = 1 << 26  # five times the size of a record with 1,000 runs
DEEPEST_JSON = 64
MOST_NAMES = 5_000_000  # in one folder tree; a large published dataset of images has 1.3 million files
_LARGEST_NUMBER = 1 << 64
# Nearly every JSON file of this project has at most this number of nested levels. The decoder has 2 to the power of
# this number of types, because msgspec has no recursive types.
_USUAL_DEPTH = 8
_SHOWN_DIGITS, _SHOWN_PATH = 20, 80


class UntrustedError(ValueError):
    """Raised for invalid content. The message says what is wrong, but does not name the file."""


def open_bounded(path: Path, most_bytes: int) -> BinaryIO:
    """Open a regular file of at most `most_bytes` bytes for reading.

    If the user named the path, the caller resolves the path first (`jobs.system.files.resolve_user_path`). Raises
    UntrustedError for a link, a pipe, a device, a folder or a larger file. Raises OSError for a missing or unreadable
    file.
    """
    try:
        file = os.fdopen(files.open_file(path), "rb")
    except files.OddFileError as error:
        raise UntrustedError(error.strerror) from error
    if os.fstat(file.fileno()).st_size > most_bytes:
        file.close()
        raise UntrustedError(f"the file has more than {most_bytes} bytes")
    return file


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes` bytes. Raises the errors of `open_bounded`."""
    try:
        return files.read_file(path, most_bytes)
    except files.OddFileError as error:
        raise UntrustedError(error.strerror) from error


def json_value(text: bytes | bytearray, *, any_number: bool = False) -> Any:
    """Return the value of a JSON text.

    Raises UntrustedError for invalid JSON, for more than `DEEPEST_JSON` nested levels, and for a number that is too
    large. With `any_number`, large numbers are accepted, and the caller checks the numbers.
    """
    # The fast decoder refuses some valid texts, too. The code below decides whether a refused text is valid.
    with suppress(ValueError, RecursionError):
        return _decoder().decode(text)
    value = _parse_json(text)
    level, depth = [value], 0
    while level:
        numbers = [item for item in level if type(item) is float or type(item) is int]
        if (
            not any_number
            and not _are_small(numbers)
            and (invalid := [number for number in numbers if _is_too_large(number)])
        ):
            raise UntrustedError(
                f"the JSON has the invalid number {str(invalid[0])[:_SHOWN_DIGITS]}{_path_in_value(value, invalid[0])}"
            )
        nodes = [item for item in level if type(item) is dict or type(item) is list]
        if nodes and depth == DEEPEST_JSON:
            raise UntrustedError("the JSON is nested too deep")
        level = list(chain.from_iterable(node.values() if type(node) is dict else node for node in nodes))
        depth += 1
    return value


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Return a fast decoder that accepts only JSON with valid numbers and at most `_USUAL_DEPTH` nested levels."""
    whole, real = msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1), msgspec.Meta(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)
    value: Any = bool | Annotated[int, whole] | Annotated[float, real] | str | None
    for _ in range(_USUAL_DEPTH):
        # A NewType is hashed by its identity. Without NewType, each hash would visit all nested levels.
        inner: Any = NewType("inner", value)  # type: ignore[misc, valid-newtype]
        value = bool | Annotated[int, whole] | Annotated[float, real] | str | list[inner] | dict[str, inner] | None
    return msgspec.json.Decoder(value)


def _parse_json(text: bytes | bytearray) -> Any:
    with suppress(ValueError, RecursionError):  # msgspec refuses lone surrogates, but file names may contain surrogates
        return msgspec.json.decode(text)
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        fault = "JSON is nested too deep" if isinstance(error, RecursionError) else f"text is not valid JSON ({error})"
        raise UntrustedError(f"the {fault}") from error


def _path_in_value(value: Any, searched: Any) -> str:
    """Return the keys that lead to the object `searched` in a JSON value, as the end of an error message.

    The object is searched level by level. The result is "" if the object is the whole value.
    """
    level = [("", value)]
    while level:
        for path, item in level:
            if item is searched:
                return f", at {path.lstrip('.')[:_SHOWN_PATH]!r}" if path else ""
        nodes = ((path, item) for path, item in level if type(item) in (dict, list))
        level = [
            (f"{path}.{key}" if type(node) is dict else f"{path}[{key}]", child)
            for path, node in nodes
            for key, child in (node.items() if type(node) is dict else enumerate(node))
        ]
    return ""


def _are_small(numbers: list[float]) -> bool:
    """Return whether the sum of the numbers' absolute values is within the limit; then each number is, too."""
    with suppress(OverflowError):
        return sum(map(abs, numbers)) <= _LARGEST_NUMBER
    return False


def _is_too_large(value: float) -> bool:
    return not abs(value) <= _LARGEST_NUMBER  # True for NaN, too


def read_arrays(file: BinaryIO, most_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file by name; no Python object is unpickled.

    The header of an array is not trusted: before memory is allocated, the shape in the header must match the number of
    bytes of the array. Raises UntrustedError for an invalid file, or if the arrays have more than `most_bytes` bytes.
    """
    try:
        with zipfile.ZipFile(file) as members:
            if sum(member.file_size for member in members.infolist()) > most_bytes:
                raise UntrustedError(f"the archive would unpack to more than {most_bytes} bytes")  # noqa: TRY301
            return {name.removesuffix(".npy"): _read_array(members.read(name)) for name in members.namelist()}
    except UntrustedError:
        raise
    except (OSError, ValueError, EOFError, LookupError, MemoryError, NotImplementedError, RuntimeError, TypeError,
            zipfile.BadZipFile, zlib.error) as error:  # MemoryError: Python's parser, for a nested header  # fmt: skip
        raise UntrustedError(f"the file is no archive of arrays ({error})") from error


def _read_array(data: bytes) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415 - the import is slow, and --help does not need it

    member = io.BytesIO(data)
    version = np.lib.format.read_magic(member)
    head = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, kind = head[version](member)
    if kind.hasobject or not kind.itemsize or math.prod(shape) * kind.itemsize != len(data) - member.tell():
        raise UntrustedError("the archive has an array whose bytes do not match its shape")
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def files_below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the path and the status of each file below a folder; the files of each sub-folder are sorted by name.

    For a link, the status is the status of the link's target. A link without a target has the status of the link. Each
    folder is read once, even if several links lead to the folder. Names that begin with a dot are names like others.

    Raises UntrustedError for too many nested folders or too many names. Raises OSError, with the name of the folder, if
    a folder cannot be read.
    """
    entered: set[tuple[int, int]] = set()
    queue, name_count = [(folder, folder.stat(), 0)], 0
    while queue:
        current, status, depth = queue.pop()
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        with os.scandir(current) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        name_count += len(found)
        if depth > files.DEEPEST or name_count > MOST_NAMES:
            limit = f"{files.DEEPEST} nested folders" if depth > files.DEEPEST else f"{MOST_NAMES:,} names"
            raise UntrustedError(f"the folder has more than {limit}, at {current}")
        folders = []
        for entry in found:
            status = _status(entry)
            if stat.S_ISDIR(status.st_mode):
                folders.append((current / entry.name, status, depth + 1))
            else:
                yield current / entry.name, status
        queue += reversed(folders)


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # a link without a target, or to itself
        return entry.stat(follow_symlinks=False)
