"""Read JSON files that other users may have made, and check them against a declared type.

`jobs.system.untrusted` first checks that the file is a regular file, that its size and nesting depth are limited, and
that all numbers are within 2^64. This module then checks the content against a type of `msgspec`, for example a
TypedDict whose fields have ranges (`msgspec.Meta`). The error message names the key of the first wrong value, as in
``runs[3].threads is '8': expected `int`, got `str```. Unknown keys are allowed and stay in the value.

The types `Number` to `Nested` below are the types of all values that this project stores. The limit of 2^64 makes sure
that sums and products of two stored numbers fit into a float. `jobs.system.untrusted` applies this limit also to
numbers that have no declared type.
"""

from __future__ import annotations

import bisect
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from jobs.system import untrusted
from jobs.system.untrusted import MOST_BYTES_OF_JSON, UntrustedError

_Kind = TypeVar("_Kind")
# Parts of an error message of `msgspec`. Two examples of such messages: "Expected `int`, got `str` - at
# `$.runs[3].served[...]`" and "… - at `key` in `$`".
_AT, _OF_KEYS, _MISSING = " - at `", "key` in `", "Object missing required field "
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_REPLACEMENTS = (
    (r"^Expected", "expected"),
    (r"`str` matching regex .\^\(\?!.*", "the name of a folder, without `/`"),
    (r"`str` matching regex .*", "text without control characters"),
    (r"1\.8446744073709552e\+19", "2^64"),
    (r"^Invalid enum value .*", "expected one of the legal words"),
)


class NewerFileError(Exception):
    """Raised for a file that a newer version of this program wrote; `schema` is the schema number of the file."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"schema {schema}")
        self.schema = schema


def read_json(path: Path, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Return the content of a JSON file, and check that the content has the type `kind`.

    If `schema` is given, the schema number in the file must not be larger. Raises UntrustedError if the file is too
    large, is not a regular file, is not JSON or has another type. Raises NewerFileError if the schema number in the
    file is larger than `schema`. Raises OSError if the file is missing or unreadable.
    """
    return check_value(load_json(path), kind, schema)


def load_json(path: Path) -> Any:
    """Return the content of a JSON file without checking its type. Raises the same errors as `read_json`."""
    return untrusted.json_value(untrusted.read_bounded(path, MOST_BYTES_OF_JSON))


def check_value(value: Any, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Check that a JSON value has the type `kind` and an allowed schema number, and return the unchanged value.

    Raises UntrustedError or NewerFileError under the same conditions as `read_json`.
    """
    if schema is not None:
        _check_schema(value, schema)
    if difference := type_fault(value, kind):
        raise UntrustedError(difference)
    checked_value: _Kind = value
    return checked_value


def type_fault(value: object, kind: Any) -> str:
    """Return a text that says where and how a value differs from a type, or "" if the value has the type."""
    try:
        refusal = _refusal(value, kind)
        return _explain_refusal(refusal, value, kind) if refusal else ""
    except UnicodeEncodeError as error:  # msgspec raises this error for a lone surrogate where it expects no text
        return f"it has {reprlib.repr(error.object)}, which is no valid text"


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


def _explain_refusal(message: str, value: Any, kind: Any) -> str:
    """Return an error message of `msgspec`, extended by the full path of keys and by the wrong value."""
    fault_text, _, location = message.partition(_AT)
    is_key = location.startswith(_OF_KEYS)
    path, node = _find_node(location.removeprefix(_OF_KEYS).strip("`").removeprefix("$"), value, kind, of_key=is_key)
    if fault_text.startswith(_MISSING):
        return f"{path}.{fault_text.removeprefix(_MISSING).strip('`')} is missing".removeprefix(".")
    for pattern, replacement in _REPLACEMENTS:
        fault_text = re.sub(pattern, replacement, fault_text)
    return f"{path.removeprefix('.') or 'it'} is {reprlib.repr(node)}: {fault_text}"


def _find_node(path: str, value: Any, kind: Any, *, of_key: bool) -> tuple[str, Any]:
    """Return the full path to the wrong value, and the wrong value.

    The `path` in a message of `msgspec` has [...] in place of the keys of mappings; this function finds the keys.
    """
    keys: list[Any] = []
    node = value
    for field, index, unnamed in _STEP.findall(path + "[...]" * of_key):
        key = field or (int(index) if index else _first_wrong_key(value, keys, node, kind))
        if unnamed:  # remove all other keys, so that the next search finds only faults below this key
            value = _replace_node(value, keys, {key: node[key]})
        keys.append(key)
        node = node[key]
    full_path = "".join(map(_format_key, keys[: len(keys) - of_key]))
    return (f"a key of {full_path.lstrip('.')}", keys[-1]) if of_key else (full_path, node)


def _format_key(key: Any) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else reprlib.repr(key)}"


def _first_wrong_key(value: Any, keys: Sequence[Any], node: Mapping[str, Any], kind: Any) -> str:
    """Return the first key of the mapping `node` at which `value` does not have the type `kind`."""
    names, message = list(node), _refusal(value, kind)

    def is_refused(count: int) -> bool:
        return _refusal(_replace_node(value, keys, {name: node[name] for name in names[:count]}), kind) == message

    return names[bisect.bisect_left(range(1, len(names)), True, key=is_refused)]  # noqa: FBT003 - the searched value


def _refusal(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _replace_node(value: Any, keys: Sequence[Any], node: Any) -> Any:
    """Return a copy of `value` in which `node` replaces the value at the path `keys`."""
    if not keys:
        return node
    copy = value.copy()
    copy[keys[0]] = _replace_node(value[keys[0]], keys[1:], node)
    return copy


MOST = 2.0**64
LONGEST = 1000
"""Largest number of characters of a stored text. Host names and file names are shorter (at most 255 characters)."""
# Control characters, line separators, surrogates, and characters that hide text or change the direction of text.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"

Number = Annotated[float, Meta(gt=-MOST, lt=MOST)]
Amount = Annotated[float, Meta(ge=0, lt=MOST)]
"""A number that is not negative: seconds, bytes, a rate or a share."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Word = Annotated[str, Meta(max_length=LONGEST)]
"""Text of limited length."""
Line = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^[^{_CONTROL}]*$(?!\n)")]
"""Text of limited length without control characters and line breaks.

Do not use `Line` in a union with a list or a mapping, because msgspec 0.22 crashes on such a union.
"""
Name = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^(?!\.)[^/{_CONTROL}]+$(?!\n)")]
"""Text that is a valid name of a sub-folder."""

_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b"\\"))
"""The bytes of printable ASCII without the backslash. JSON that has only these bytes has only printable texts."""

if TYPE_CHECKING:
    Nested = dict[str, Any]
    Facts = dict[str, Any]
else:
    Facts = dict[Word, bool | Number | Word | None]
    _Value = bool | Number | Word | None
    for _ in range(5):  # five levels are more than the settings of a cell have
        _Value = bool | Number | Word | list[_Value] | dict[Word, _Value] | None
    Nested = dict[Word, _Value]
"""A mapping of names to values, which may be lists and mappings down to a limited depth."""


def first_unprintable(value: Any) -> str | None:
    """Return the first unprintable text among the texts and keys of a JSON value, or None if all are printable."""
    with suppress(UnicodeEncodeError, OverflowError):  # lone surrogate; number beyond msgspec's range
        if not msgspec.json.encode(value).translate(None, _PLAIN):
            return None
    return _unprintable(value)


def _unprintable(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isprintable() else value
    children = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((text for child in children if (text := _unprintable(child)) is not None), None)
