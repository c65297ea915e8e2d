"""JSON files that carry the number of their schema: one way to read them, bounded in size."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast

from jobs import shapes
from jobs.system import files

_MOST_BYTES = 1 << 26  # of a record with 1,000 runs it is a fifth
_LARGEST_NUMBER = 1 << 64
_Shape = TypeVar("_Shape")


class DamagedFileError(ValueError):
    """The file is there and is not what it should be; the message names the key, not the file."""


class NewerFileError(Exception):
    """The file was written by a newer version; `schema` is what it says of itself."""

    def __init__(self, schema: object) -> None:
        super().__init__(f"schema {schema!r}")
        self.schema = schema


def read(path: Path, schema: int, keys: Collection[str] = (), *, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
    """Read a JSON object with a key ``schema`` and the `keys`.

    Raises DamagedFileError: it is too large, no regular file, no JSON object, or lacks a key; NewerFileError: its
    schema is not one of 1 to `schema`; OSError: it is missing, or cannot be read.
    """
    return checked(load(path, most_bytes), schema, keys)


def checked(value: Any, schema: int, keys: Collection[str] = ()) -> dict[str, Any]:
    """Return what JSON says that did not come from a file; errors are those of `read`."""
    if not isinstance(value, dict):
        raise DamagedFileError("it is no mapping")
    found = _number(value)
    if not 1 <= found <= schema:
        raise NewerFileError(value["schema"])
    if missing := [key for key in keys if key not in value]:
        raise DamagedFileError(f"{missing[0]!r} is missing")
    return value


def read_as(path: Path, shape: type[_Shape], schema: int | None = None) -> _Shape:
    """Return what a JSON file says, which has the shape of a TypedDict; errors are those of `read`."""
    value = load(path) if schema is None else read(path, schema)
    if fault := shapes.fault(value, shape):
        raise DamagedFileError(fault)
    return cast("_Shape", value)


def load(path: Path, most_bytes: int = _MOST_BYTES) -> Any:
    """Return what a JSON file without a schema says; errors are those of `read`."""
    try:
        return parsed(files.read(path, most_bytes))
    except files.OddFileError as error:
        raise DamagedFileError(error.strerror) from error


def parsed(data: bytes) -> Any:
    """Return what JSON says; raises DamagedFileError for what is none, and for depth and numbers beyond any use."""
    try:
        return json.loads(data.decode("utf-8"), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(str(error)) from error


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) > _LARGEST_NUMBER:
        raise ValueError("a number is out of range")
    return number


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _number(value: dict[str, Any]) -> int:
    try:
        return int(value["schema"])
    except KeyError:
        raise DamagedFileError("'schema' is missing") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise DamagedFileError(f"'schema' is {value['schema']!r}") from error
