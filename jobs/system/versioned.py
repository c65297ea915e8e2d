"""JSON files that carry the number of their schema: one way to read them, bounded in size."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast

from jobs import shapes
from jobs.system import untrusted
from jobs.system.untrusted import MOST_BYTES_OF_JSON, UntrustedError

_Shape = TypeVar("_Shape")


class NewerFileError(Exception):
    """The file was written by a newer version; `schema` is what it says of itself."""

    def __init__(self, schema: object) -> None:
        super().__init__(f"schema {schema!r}")
        self.schema = schema


def read(
    path: Path, schema: int, keys: Collection[str] = (), *, most_bytes: int = MOST_BYTES_OF_JSON
) -> dict[str, Any]:
    """Read a JSON object with a key ``schema`` and the `keys`.

    Raises UntrustedError: it is too large, no regular file, no JSON object, or lacks a key; NewerFileError: its
    schema is not one of 1 to `schema`; OSError: it is missing, or cannot be read.
    """
    return checked(load(path, most_bytes), schema, keys)


def checked(value: Any, schema: int, keys: Collection[str] = ()) -> dict[str, Any]:
    """Return what JSON says that did not come from a file; errors are those of `read`."""
    if not isinstance(value, dict):
        raise UntrustedError("it is no mapping")
    found = _number(value)
    if not 1 <= found <= schema:
        raise NewerFileError(value["schema"])
    if missing := [key for key in keys if key not in value]:
        raise UntrustedError(f"{missing[0]!r} is missing")
    return value


def read_as(path: Path, shape: type[_Shape], schema: int | None = None) -> _Shape:
    """Return what a JSON file says, which has the shape of a TypedDict; errors are those of `read`."""
    value = load(path) if schema is None else read(path, schema)
    if fault := shapes.fault(value, shape):
        raise UntrustedError(fault)
    return cast("_Shape", value)


def load(path: Path, most_bytes: int = MOST_BYTES_OF_JSON) -> Any:
    """Return what a JSON file without a schema says; errors are those of `read`."""
    return untrusted.json_value(untrusted.content(path, most_bytes))


def _number(value: dict[str, Any]) -> int:
    try:
        return int(value["schema"])
    except KeyError:
        raise UntrustedError("'schema' is missing") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise UntrustedError(f"'schema' is {value['schema']!r}") from error
