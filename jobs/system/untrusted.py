"""Read what somebody else may have made (bytes, JSON, arrays, folders), in bounds and with one error.

A results folder is copied between people, a storage is shared, a profile comes by mail: none of it is run, waited for,
followed out of its folder, or believed about its own size. Whatever reads such a thing reads it through here;
``tests/test_one_door.py`` finds any other module that opens, unpacks or decompresses one.
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
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec

from jobs.system import files

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_BYTES_OF_JSON = 1 << 26  # of a record with 1,000 runs it is a fifth
DEEPEST_JSON = 64
MOST_NAMES = 5_000_000  # in one tree; the largest published data set of this kind has 1.3 million files
_LARGEST_NUMBER = 1 << 64
# Nearly every file of ours is no deeper. The decoder has as many types as 2 to this power, for msgspec knows no type
# within itself.
_USUAL_DEPTH = 8
_SHOWN_DIGITS, _SHOWN_PLACE = 20, 80


class UntrustedError(ValueError):
    """Raised for content that is not what it should be; the message says what it is, and not where."""


def opened(path: Path, most_bytes: int) -> BinaryIO:
    """Open a regular file of at most `most_bytes`; a path that the user names is given resolved (`files`).

    Raises UntrustedError: it is a link, a pipe, a device or a folder, or is larger; OSError: it is missing, or cannot
    be read.
    """
    try:
        file = os.fdopen(files.opened(path), "rb")
    except files.OddFileError as error:
        raise UntrustedError(error.strerror) from error
    if os.fstat(file.fileno()).st_size > most_bytes:
        file.close()
        raise UntrustedError(f"it has more than {most_bytes} bytes")
    return file


def content(path: Path, most_bytes: int) -> bytes:
    """Return the bytes of a regular file of at most `most_bytes`; errors are those of `opened`."""
    try:
        return files.read(path, most_bytes)
    except files.OddFileError as error:
        raise UntrustedError(error.strerror) from error


def json_value(text: bytes | bytearray, *, any_number: bool = False) -> Any:
    """Return a JSON value; raises UntrustedError for no JSON, deep nesting, or a number beyond any use.

    With `any_number` the caller looks at the numbers itself, and can say where they stand.
    """
    with suppress(ValueError, RecursionError):  # whatever is not usual is looked at by steps, which say what is wrong
        return _decoder().decode(text)
    value = _parse_json(text)
    level, depth = [value], 0
    while level:
        numbers = [each for each in level if type(each) is float or type(each) is int]
        if not any_number and not _are_small(numbers) and (odd := [each for each in numbers if _is_beyond_use(each)]):
            raise UntrustedError(f"it has {str(odd[0])[:_SHOWN_DIGITS]} for a number{_place_in_value(value, odd[0])}")
        nodes = [each for each in level if type(each) is dict or type(each) is list]
        if nodes and depth == DEEPEST_JSON:
            raise UntrustedError("it is nested too deep")
        level = list(chain.from_iterable(each.values() if type(each) is dict else each for each in nodes))
        depth += 1
    return value


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Return a decoder of JSON of the usual depth with numbers within use, which refuses anything else, in C."""
    whole, real = msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1), msgspec.Meta(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)
    value: Any = bool | Annotated[int, whole] | Annotated[float, real] | str | None
    for _ in range(_USUAL_DEPTH):
        value = bool | Annotated[int, whole] | Annotated[float, real] | str | list[value] | dict[str, value] | None
    return msgspec.json.Decoder(value)


def _parse_json(text: bytes | bytearray) -> Any:
    with suppress(ValueError, RecursionError):  # msgspec refuses half a pair of surrogates, which names of files have
        return msgspec.json.decode(text)
    try:
        return json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "is nested too deep" if isinstance(error, RecursionError) else f"is not whole JSON ({error})"
        raise UntrustedError(f"it {why}") from error


def _place_in_value(value: Any, wanted: Any) -> str:
    """Return where in a value an object is, by keys, as the end of a sentence; searched level by level."""
    level = [("", value)]
    while level:
        for place, each in level:
            if each is wanted:
                return f", at {place.lstrip('.')[:_SHOWN_PLACE]!r}" if place else ""
        inside = ((place, each) for place, each in level if type(each) in (dict, list))
        level = [
            (f"{place}.{key}" if type(each) is dict else f"{place}[{key}]", one)
            for place, each in inside
            for key, one in (each.items() if type(each) is dict else enumerate(each))
        ]
    return ""


def _are_small(numbers: list[float]) -> bool:
    """Return whether all numbers together are within use, so that none needs a look by itself."""
    with suppress(OverflowError):
        return sum(map(abs, numbers)) <= _LARGEST_NUMBER
    return False


def _is_beyond_use(value: float) -> bool:
    return not abs(value) <= _LARGEST_NUMBER  # nor is NaN


def arrays(file: BinaryIO, most_bytes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz by name, of at most `most_bytes` unpacked; no object is unpickled.

    A member's own head is not believed: its shape and the bytes that follow must agree before memory is taken.
    Raises UntrustedError.
    """
    try:
        with zipfile.ZipFile(file) as members:
            if sum(each.file_size for each in members.infolist()) > most_bytes:
                raise UntrustedError(f"it would unpack to more than {most_bytes} bytes")  # noqa: TRY301
            return {name.removesuffix(".npy"): _array(members.read(name)) for name in members.namelist()}
    except UntrustedError:
        raise
    except (OSError, ValueError, EOFError, LookupError, MemoryError, NotImplementedError, RuntimeError, TypeError,
            zipfile.BadZipFile, zlib.error) as error:  # MemoryError: of Python's parser, for a nested head  # fmt: skip
        raise UntrustedError(f"it is no archive of arrays ({error})") from error


def _array(data: bytes) -> NDArray[Any]:
    import numpy as np  # noqa: PLC0415 - not on the way to --help

    member = io.BytesIO(data)
    version = np.lib.format.read_magic(member)
    head = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, kind = head[version](member)
    if kind.hasobject or not kind.itemsize or math.prod(shape) * kind.itemsize != len(data) - member.tell():
        raise UntrustedError("it has an array whose bytes are not those of its shape")
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def below(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every file below a folder, sorted within each folder, with the status of the target of a link.

    Each folder is entered once, however many links lead to it; names that begin with a dot are left out. A link that
    leads nowhere comes with its own status.
    Raises UntrustedError: folders lie too deep in each other, or there are too many names; OSError, with the name of
    the folder that cannot be read.
    """
    entered: set[tuple[int, int]] = set()
    waiting, names = [(folder, folder.stat(), 0)], 0
    while waiting:
        here, status, depth = waiting.pop()
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        with os.scandir(here) as entries:
            visible = sorted((each for each in entries if not each.name.startswith(".")), key=lambda each: each.name)
        names += len(visible)
        if depth > files.DEEPEST or names > MOST_NAMES:
            what = f"{files.DEEPEST} folders in each other" if depth > files.DEEPEST else f"{MOST_NAMES:,} names"
            raise UntrustedError(f"it has more than {what}, at {here}")
        folders = []
        for entry in visible:
            status = _status(entry)
            if stat.S_ISDIR(status.st_mode):
                folders.append((here / entry.name, status, depth + 1))
            else:
                yield here / entry.name, status
        waiting += reversed(folders)


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:  # a link that leads nowhere, or to itself
        return entry.stat(follow_symlinks=False)
