"""TensorFlow's traces (XSpace in ``*.xplane.pb``): the one place that knows their messages; needs protobuf alone."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from jobs.profiler.hook_library import ProfilerError
from jobs.system import files

_SIZED = 2  # wire type of messages and text
_NAME = 2 << 3 | _SIZED  # tag of XPlane.name; before it stands the plane's number, if it is not 0
_MOST_BEFORE_NAME = 11
_MOST_PARTS = 10_000
_VARINT_BITS = 63


@lru_cache(maxsize=1)
def messages() -> Any:
    """Return TensorFlow's own ``xplane_pb2``, loaded by its path: TensorFlow is not imported (0.04 s for 8 s)."""
    tensorflow = importlib.util.find_spec("tensorflow")
    folders = tensorflow.submodule_search_locations if tensorflow else None
    if not folders:
        raise ProfilerError("the messages of TensorFlow's traces are missing", "install tensorflow")
    path = Path(folders[0], "tsl", "profiler", "protobuf", "xplane_pb2.py")
    spec = importlib.util.spec_from_file_location("xplane_pb2", path)
    assert spec is not None  # noqa: S101 - of a path there always is one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plane(path: Path, name: str, largest_bytes: int) -> Any | None:
    """Return the plane of this name from a trace; None where there is none. The others are not read.

    Raises OSError: it is no regular file; ValueError: it is no trace, or that plane is larger.
    """
    wanted = bytes((_NAME, len(name))) + name.encode()
    with os.fdopen(files.opened(path), "rb") as file:
        end = os.fstat(file.fileno()).st_size
        for _ in range(_MOST_PARTS):
            start, size = _part(file, end)
            if size is None:
                return None
            if wanted in file.read(min(size, len(wanted) + _MOST_BEFORE_NAME)):
                if size > largest_bytes:
                    raise ValueError(f"the plane {name} has {size} bytes")
                file.seek(start)
                return parsed("XPlane", file.read(size))
            file.seek(start + size)
    raise ValueError("it has too many parts")


def parsed(message: str, data: bytes) -> Any:
    """Return a message of this name; raises ValueError for bytes that are none."""
    kind = getattr(messages(), message)
    try:
        return kind.FromString(data)
    except Exception as error:  # protobuf's DecodeError, which is of no common base
        raise ValueError(f"it is damaged: {error}") from error


def _part(file: BinaryIO, end: int) -> tuple[int, int | None]:
    """Return where the next part of an XSpace begins, and its bytes: all its fields are messages or text."""
    if file.tell() >= end:
        return end, None
    tag, size = _varint(file), _varint(file)
    start = file.tell()
    if tag & 7 != _SIZED or size > end - start:
        raise ValueError("it is no trace of TensorFlow's")
    return start, size


def _varint(file: BinaryIO) -> int:
    value = shift = 0
    while shift < _VARINT_BITS:
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:  # noqa: PLR2004 - the last byte of a number has no high bit
            return value
        shift += 7
    raise ValueError("it is no trace of TensorFlow's")
