"""The types of stored values with their legal ranges; no other module declares what a number or a text may be.

A number is within 2^64, so that sums and products of such numbers fit a float; `jobs.system.untrusted` has the same
bound for numbers that no declaration names.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

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
