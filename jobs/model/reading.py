"""Read JSON files that others may have made, and check them against a declared type.

A file is regular, of bounded size and depth, and its numbers are within 2^64 (`jobs.system.untrusted`). Its
content is then checked against a type: a TypedDict whose fields have ranges (`msgspec.Meta`), or any other type of
`msgspec`. The error names the key of the first fault, as in ``runs[3].threads is '8': expected `int`, got `str```.
Keys that the type does not have are ignored and kept.

`Number` to `Nested` are the types of stored values with their legal ranges; no other module declares what a number or a
text may be. A number is within 2^64, so that sums and products of such numbers fit a float; `jobs.system.untrusted` has
the same bound for numbers that no declaration names.
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
    """Raised for a file of a newer version; `schema` is the number of its schema."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"schema {schema}")
        self.schema = schema


def read(path: Path, kind: type[_Kind], schema: int | None = None) -> _Kind:
    """Return the content of a JSON file of this type and, if a schema is given, of at most this schema.

    Raises UntrustedError: it is too large, no regular file, no JSON, or of another kind; NewerFileError: its schema is
    larger than `schema`; OSError: it is missing, or cannot be read.
    """
    return checked(load(path), kind, schema)


def load(path: Path) -> Any:
    """Return the content of a JSON file of any type; errors are those of `read`."""
    return untrusted.json_value(untrusted.content(path, MOST_BYTES_OF_JSON))


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
        return _word_message(refusal, value, kind) if refusal else ""
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


def _word_message(message: str, value: Any, kind: Any) -> str:
    """Return a message of `msgspec` with the names of all keys, and with what stands there."""
    what, _, where = message.partition(_AT)
    of_key = where.startswith(_OF_KEYS)
    place, node = _find_place(where.removeprefix(_OF_KEYS).strip("`").removeprefix("$"), value, kind, of_key=of_key)
    if what.startswith(_MISSING):
        return f"{place}.{what.removeprefix(_MISSING).strip('`')} is missing".removeprefix(".")
    for theirs, ours in _WORDS:
        what = re.sub(theirs, ours, what)
    return f"{place.removeprefix('.') or 'it'} is {reprlib.repr(node)}: {what}"


def _find_place(path: str, value: Any, kind: Any, *, of_key: bool) -> tuple[str, Any]:
    """Return the place that a path of `msgspec` names, with the keys that the path leaves out, and the value there."""
    keys: list[Any] = []
    node = value
    for field, index, unnamed in _STEP.findall(path + "[...]" * of_key):
        key = field or (int(index) if index else _first_wrong_key(value, keys, node, kind))
        if unnamed:  # what comes before and behind it is not to be met again
            value = _replace_node(value, keys, {key: node[key]})
        keys.append(key)
        node = node[key]
    place_text = "".join(map(_format_key, keys[: len(keys) - of_key]))
    return (f"a key of {place_text.lstrip('.')}", keys[-1]) if of_key else (place_text, node)


def _format_key(key: Any) -> str:
    return f"[{key}]" if isinstance(key, int) else f".{key if key.isprintable() else reprlib.repr(key)}"


def _first_wrong_key(value: Any, keys: Sequence[Any], node: Mapping[str, Any], kind: Any) -> str:
    """Return the first key of a mapping within a value for which the value is not of the kind."""
    names, message = list(node), _refusal(value, kind)

    def is_refused(many: int) -> bool:
        return _refusal(_replace_node(value, keys, {name: node[name] for name in names[:many]}), kind) == message

    return names[bisect.bisect_left(range(1, len(names)), True, key=is_refused)]  # noqa: FBT003 - what is looked for


def _refusal(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _replace_node(value: Any, keys: Sequence[Any], node: Any) -> Any:
    """Return a copy of a value with another node at the end of these keys."""
    if not keys:
        return node
    copied = value.copy()
    copied[keys[0]] = _replace_node(value[keys[0]], keys[1:], node)
    return copied


MOST = 2.0**64
LONGEST = 1000
"""Longest text in characters that fits a table or the name of a file; the name of a host has at most 255."""
# Control characters, what breaks lines, what turns or hides text; half of a pair.
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
"""The bytes of JSON whose texts are all printable; what is not, or is beyond ASCII, has others."""

if TYPE_CHECKING:
    Nested = dict[str, Any]
    Facts = dict[str, Any]
else:
    Facts = dict[Word, bool | Number | Word | None]
    _Value = bool | Number | Word | None
    for _ in range(5):  # as deep as the settings of a cell go, and some more
        _Value = bool | Number | Word | list[_Value] | dict[Word, _Value] | None
    Nested = dict[Word, _Value]
"""Values by their names, nested to a bounded depth."""


def unprintable(value: Any) -> str | None:
    """Return the first text of a JSON value, or of its keys, that is not printable; None if all are."""
    with suppress(UnicodeEncodeError, OverflowError):  # half a pair of surrogates; a number that msgspec cannot write
        if not msgspec.json.encode(value).translate(None, _PLAIN):
            return None
    return _unprintable(value)


def _unprintable(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isprintable() else value
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((odd for each in inside if (odd := _unprintable(each)) is not None), None)
