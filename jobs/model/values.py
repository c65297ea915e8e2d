"""The values that stored things are made of, with what is legal: no other module says what a number or a word may be.

A number is within 2^64, far from where sums and products of such leave a float; `jobs.system.untrusted` holds the same
against those that no declaration names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

MOST = 2.0**64
LONGEST = 1000
"""Characters of a word that a table or a file's name can show; a host's name has at most 255."""
# Control characters, what breaks lines, what turns or hides text; half of a pair.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"

Number = Annotated[float, Meta(gt=-MOST, lt=MOST)]
Amount = Annotated[float, Meta(ge=0, lt=MOST)]
"""Seconds, bytes, a rate, a share: none is below 0."""
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Word = Annotated[str, Meta(max_length=LONGEST)]
"""Text that a table can show."""
Line = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^[^{_CONTROL}]*$(?!\n)")]
"""Text that can stand in a line and in a name, too. In no union with a list or a mapping: msgspec 0.22 dies of that."""
Name = Annotated[str, Meta(max_length=LONGEST, pattern=rf"^(?!\.)[^/{_CONTROL}]+$(?!\n)")]
"""Text that names a folder within another one."""

if TYPE_CHECKING:
    Nested = dict[str, Any]
    Facts = dict[str, Any]
else:
    Facts = dict[Word, bool | Number | Word | None]
    _Value = bool | Number | Word | None
    for _ in range(5):  # as deep as the settings of a cell go, and some more
        _Value = bool | Number | Word | list[_Value] | dict[Word, _Value] | None
    Nested = dict[Word, _Value]
"""Values by their names, in each other to a bounded depth."""


def unprintable(value: Any) -> str | None:
    """Return the first text of a value, keys included, that cannot stand in a name or a line; None without one."""
    if isinstance(value, str):
        return None if value.isprintable() else value
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((odd for each in inside if (odd := unprintable(each)) is not None), None)
