"""Read JSON files that other users may have made, and check them against a declared type.

A file is regular, has a limited size and depth, and its numbers are within 2^64 (`jobs.system.untrusted`). Its content
is then checked against a type: a TypedDict whose fields have ranges (`msgspec.Meta`), or any other type of `msgspec`.
The error names the key of the first fault, as in ``runs[3].threads is '8': expected `int`, got `str```. Unknown keys
are allowed and kept.

`Number` to `Nested` are the types of stored values with their legal ranges, the only ones in this project. A number is
within 2^64, so that sums and products of such numbers fit into a float; `jobs.system.untrusted` has the same limit for
undeclared numbers.
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
# Parts of a message of `msgspec`, as in "Expected `int`, got `str` - at `$.runs[3].served[...]`", "… - at `key` in
# `$`".
_AT, _OF_KEYS, _MISSING = " - at `", "key` in `", "Object missing required field "
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])")
_REPLACEMENTS = (
    (r"^Expected", "expected"),
    (r"`str` matching regex .\^\(\?!.*", "the name of a folder, without `/`"),
    (r"`str` matching regex .*", "text without control characters"),
    (r"1\.8446744073709552e\+19", "2^64"),
    (r"^Invalid enum value .*", "no word that may stand there"),
)


class NewerFileError(Exception):
    """Raised for a file of a newer version; `schema` is the number of its schema."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"schema {schema}")
        self.schema = schema


def read_json(path: Path, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Return the content of a JSON file with this type and, if a schema is given, at most this schema.

    Raises UntrustedError if the file is too large, not regular, not JSON or has another type; NewerFileError if its
    schema is larger than `schema`; OSError if it is missing or unreadable.
    """
    return check_value(load_json(path), kind, schema)


def load_json(path: Path) -> Any:
    """Return the content of a JSON file of any type; errors are those of `read_json`."""
    return untrusted.json_value(untrusted.read_bounded(path, MOST_BYTES_OF_JSON))


def check_value(value: Any, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Return a JSON value if it has this type and schema; errors are those of `read_json` without OSError."""
    if schema is not None:
        _check_schema(value, schema)
    if difference := type_fault(value, kind):
        raise UntrustedError(difference)
    checked_value: _Kind = value
    return checked_value


def type_fault(value: object, kind: Any) -> str:
    """Return where and how a value differs from a type, as text; empty if it has the type."""
    try:
        refusal = _refusal(value, kind)
        return _explain_refusal(refusal, value, kind) if refusal else ""
    except UnicodeEncodeError as error:  # msgspec raises it for a lone surrogate where no text is expected
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
    """Return a message of `msgspec` with all keys, and with the value at fault."""
    fault_text, _, location = message.partition(_AT)
    is_key = location.startswith(_OF_KEYS)
    path, node = _find_node(location.removeprefix(_OF_KEYS).strip("`").removeprefix("$"), value, kind, of_key=is_key)
    if fault_text.startswith(_MISSING):
        return f"{path}.{fault_text.removeprefix(_MISSING).strip('`')} is missing".removeprefix(".")
    for pattern, replacement in _REPLACEMENTS:
        fault_text = re.sub(pattern, replacement, fault_text)
    return f"{path.removeprefix('.') or 'it'} is {reprlib.repr(node)}: {fault_text}"


def _find_node(path: str, value: Any, kind: Any, *, of_key: bool) -> tuple[str, Any]:
    """Return the full path of a path of `msgspec`, which leaves out keys, and the value at its end."""
    keys: list[Any] = []
    node = value
    for field, index, unnamed in _STEP.findall(path + "[...]" * of_key):
        key = field or (int(index) if index else _first_wrong_key(value, keys, node, kind))
        if unnamed:  # the other keys must not be found again
            value = _replace_node(value, keys, {key: node[key]})
        keys.append(key)
        node = node[key]
    full_path = "".join(map(_format_key, keys[: len(keys) - of_key]))
    return (f"a key of {full_path.lstrip('.')}", keys[-1]) if of_key else (full_path, node)


def _format_key(key: Any) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else reprlib.repr(key)}"


def _first_wrong_key(value: Any, keys: Sequence[Any], node: Mapping[str, Any], kind: Any) -> str:
    """Return the first key of a mapping in a value for which the value does not have the type."""
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
    """Return a copy of a value with another node at the path of these keys."""
    if not keys:
        return node
    copy = value.copy()
    copy[keys[0]] = _replace_node(value[keys[0]], keys[1:], node)
    return copy


MOST = 2.0**64
LONGEST = 1000
"""Longest text in characters that fits a table or the name of a file; the name of a host has at most 255."""
# Control characters, line separators, characters that turn or hide text, and surrogates.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"

Number = Annotated[float, Meta(gt=-MOST, lt=MOST)]
Amount = Annotated[float, Meta(ge=0, lt=MOST)]
"""Seconds, bytes, a rate or a share; it is not negative."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Word = Annotated[str, Meta(max_length=LONGEST)]
"""Text that fits a table."""
Line = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^[^{_CONTROL}]*$(?!\n)")]
"""Text that also fits one line and a name. Not in a union with a list or a mapping: msgspec 0.22 crashes on that."""
Name = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^(?!\.)[^/{_CONTROL}]+$(?!\n)")]
"""Text that names a folder within another one."""

_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b"\\"))
"""The bytes of JSON whose texts are all printable; other texts have other bytes."""

if TYPE_CHECKING:
    Nested = dict[str, Any]
    Facts = dict[str, Any]
else:
    Facts = dict[Word, bool | Number | Word | None]
    _Value = bool | Number | Word | None
    for _ in range(5):  # deeper than the settings of a cell
        _Value = bool | Number | Word | list[_Value] | dict[Word, _Value] | None
    Nested = dict[Word, _Value]
"""Values by their names, nested to a bounded depth."""


def first_unprintable(value: Any) -> str | None:
    """Return the first text of a JSON value, or of its keys, that is not printable; None if all texts are printable."""
    with suppress(UnicodeEncodeError, OverflowError):  # a lone surrogate; a number that msgspec cannot write
        if not msgspec.json.encode(value).translate(None, _PLAIN):
            return None
    return _unprintable(value)


def _unprintable(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isprintable() else value
    children = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((text for child in children if (text := _unprintable(child)) is not None), None)
