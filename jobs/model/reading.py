"""The one reader of JSON files that others may have made: it checks them against a declared type.

A file is regular, of bounded size and depth, and its numbers are within 2^64 (`jobs.system.untrusted`). Its
content is then checked against a type: a TypedDict whose fields have ranges (`msgspec.Meta`), or any other type of
`msgspec`. The error names the key of the first fault, as in ``runs[3].threads is '8': expected `int`, got `str```.
Keys that the type does not have are ignored and kept.
"""

from __future__ import annotations

import bisect
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jobs.system import untrusted
from jobs.system.untrusted import MOST_BYTES_OF_JSON, UntrustedError

_Kind = TypeVar("_Kind")
# Of a message of `msgspec`, as in "Expected `int`, got `str` - at `$.runs[3].served[...]`", or "… - at `key` in `$`".
_AT, _OF_KEYS, _MISSING = " - at `", "key` in `", "Object missing required field "
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_WORDS = (
    (r"^Expected", "expected"),
    (r"`str` matching regex .\^\(\?!.*", "the name of a folder, without `/`"),
    (r"`str` matching regex .*", "text without control characters"),
    (r"1\.8446744073709552e\+19", "2^64"),
    (r"^Invalid enum value .*", "no word that may stand there"),
)


class NewerFileError(Exception):
    """The file was written by a newer version; `schema` is the number of its schema."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"schema {schema}")
        self.schema = schema


def read(path: Path, kind: type[_Kind], schema: int | None = None, *, most_bytes: int | None = None) -> _Kind:
    """Return the content of a JSON file of this type and, if a schema is given, of at most this schema.

    Raises UntrustedError: it is too large, no regular file, no JSON, or of another kind; NewerFileError: its schema is
    larger than `schema`; OSError: it is missing, or cannot be read.
    """
    return checked(load(path, most_bytes), kind, schema)


def load(path: Path, most_bytes: int | None = None) -> Any:
    """Return the content of a JSON file of any type; errors are those of `read`."""
    return untrusted.json_value(untrusted.content(path, MOST_BYTES_OF_JSON if most_bytes is None else most_bytes))


def checked(value: Any, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Return a JSON value if it is of this type and schema; errors are those of `read` without OSError."""
    if schema is not None:
        _check_schema(value, schema)
    if wrong := fault(value, kind):
        raise UntrustedError(wrong)
    checked_value: _Kind = value
    return checked_value


def fault(value: object, kind: Any) -> str:
    """Return where and how a value differs from a type, in words; empty if it does not."""
    try:
        refusal = _refusal(value, kind)
        return _worded(refusal, value, kind) if refusal else ""
    except UnicodeEncodeError as error:  # of msgspec, for half a pair of surrogates where no text is expected
        return f"it has {reprlib.repr(error.object)}, which is no whole text"


def _check_schema(value: Any, schema: int) -> None:
    if not isinstance(value, dict):
        raise UntrustedError("it is no mapping")
    if "schema" not in value:
        raise UntrustedError("schema is missing")
    number = value["schema"]
    if type(number) is not int or number < 1:
        raise UntrustedError(f"schema is {reprlib.repr(number)}: expected a whole number from 1")
    if number > schema:
        raise NewerFileError(number)


def _worded(message: str, value: Any, kind: Any) -> str:
    """Return a message of `msgspec` with the names of all keys, and with what stands there."""
    what, _, where = message.partition(_AT)
    of_key = where.startswith(_OF_KEYS)
    place, node = _place(where.removeprefix(_OF_KEYS).strip("`").removeprefix("$"), value, kind, of_key=of_key)
    if what.startswith(_MISSING):
        return f"{place}.{what.removeprefix(_MISSING).strip('`')} is missing".removeprefix(".")
    for theirs, ours in _WORDS:
        what = re.sub(theirs, ours, what)
    return f"{place.removeprefix('.') or 'it'} is {reprlib.repr(node)}: {what}"


def _place(path: str, value: Any, kind: Any, *, of_key: bool) -> tuple[str, Any]:
    """Return the place that a path of `msgspec` names, with the keys that the path leaves out, and the value there."""
    keys: list[Any] = []
    node = value
    for field, index, unnamed in _STEP.findall(path + "[...]" * of_key):
        key = field or (int(index) if index else _first_wrong(value, keys, node, kind))
        if unnamed:  # what comes before and behind it is not to be met again
            value = _replaced(value, keys, {key: node[key]})
        keys.append(key)
        node = node[key]
    shown = "".join(map(_shown, keys[: len(keys) - of_key]))
    return (f"a key of {shown.lstrip('.')}", keys[-1]) if of_key else (shown, node)


def _shown(key: Any) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else reprlib.repr(key)}"


def _first_wrong(value: Any, keys: Sequence[Any], node: Mapping[str, Any], kind: Any) -> str:
    """Return the first key of a mapping within a value for which the value is not of the kind."""
    names, message = list(node), _refusal(value, kind)

    def is_refused(many: int) -> bool:
        return _refusal(_replaced(value, keys, {name: node[name] for name in names[:many]}), kind) == message

    return names[bisect.bisect_left(range(1, len(names)), True, key=is_refused)]  # noqa: FBT003 - what is looked for


def _refusal(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _replaced(value: Any, keys: Sequence[Any], node: Any) -> Any:
    """Return a copy of a value with another node at the end of these keys."""
    if not keys:
        return node
    copied = value.copy()
    copied[keys[0]] = _replaced(value[keys[0]], keys[1:], node)
    return copied
