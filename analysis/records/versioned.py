"""Read files that may be another person's: regular ones of bounded size, and of JSON those of a schema that is known.

What is wrong is said with a cure. Nothing waits for a pipe, and no link leads out of the folder that was named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.records.shape import Check, MisfitError
from jobs.system import untrusted

SCHEMA = 1
RUN_AGAIN = "copy the file anew from where the campaign ran, or delete its folder and run the campaign again"


class UnreadableError(Exception):
    """A file does not keep the contract; `cure` says what to do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


class AbsentError(UnreadableError):
    """There is no such file."""


def content(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file that has at most so many.

    Raises
    ------
    UnreadableError
        If it is something else (a link, a pipe, a device, a folder), has more bytes, or cannot be read.
    """
    try:
        return untrusted.content(Path(os.path.realpath(path.parent), path.name), most)
    except FileNotFoundError as error:
        raise AbsentError("is not there") from error
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "make the file readable for you") from error
    except untrusted.UntrustedError as error:
        raise _unreadable(error) from error


def _unreadable(error: untrusted.UntrustedError) -> UnreadableError:
    return UnreadableError(str(error).removeprefix("it "))


def load(path: Path, shape: Check) -> Mapping[str, Any]:
    """Return the JSON object of this shape in a file, whose schema is known.

    Raises
    ------
    UnreadableError
        If the file cannot be read, is too large, is no JSON object, or is of another schema or shape.
    """
    try:
        return checked(untrusted.json_value(content(path, untrusted.MOST_BYTES_OF_JSON), any_number=True), shape)
    except untrusted.UntrustedError as error:
        raise _unreadable(error) from error


def checked(value: Any, shape: Check) -> Mapping[str, Any]:
    """Return a JSON value if it is an object of a schema that is known, and of this shape."""
    schema = value.get("schema", 1) if isinstance(value, dict) else 1
    if type(schema) is int and schema > SCHEMA:
        why = f"is of schema {schema}; this program knows schema {SCHEMA}"
        raise UnreadableError(why, "analyse it with the newer tfio-campaign that wrote it")
    try:
        shape(value)
    except MisfitError as error:
        raise UnreadableError(str(error)) from None
    found: Mapping[str, Any] = value
    return found
