"""Whether JSON has the shape that a reader needs: checks that are built of each other, and refuse by key."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], None]

# Beyond any figure of a campaign, and far from where sums and products of such figures leave a float.
MOST = 2.0**64
NUMBERS = frozenset({int, float})
# Letters of a name; a path has at most 4,096 bytes, and no host's name more than 255.
LONGEST = 1000
MISSING = object()


class MisfitError(Exception):
    """A value is not what belongs there; `place` is its key as in ``runs[3].checks[0].rule``, made on the way up."""

    def __init__(self, value: Any, wanted: str) -> None:
        super().__init__(value, wanted)
        self.place = ""

    def within(self, place: str) -> MisfitError:
        """Return the same below a key or a place in a list."""
        self.place = place + self.place
        return self

    def __str__(self) -> str:
        """Return what is wrong, as it follows the name of a file."""
        value, wanted = self.args
        place = self.place.lstrip(".") or "its top"
        if value is MISSING:
            return f"lacks the key {place}"
        return f"has {reprlib.repr(value)} at {place}, where {wanted} belongs"


def text(value: Any) -> None:
    """Take text."""
    if type(value) is not str:
        raise MisfitError(value, "text")


def short(value: Any) -> None:
    """Take text that a figure can show: of at most `LONGEST` letters."""
    text(value)
    if len(value) > LONGEST:
        raise MisfitError(value, f"text of at most {LONGEST} letters")


def line(value: Any) -> None:
    """Take text that can stand in a name: as `short` does, without line ends and control characters."""
    if type(value) is not str or not value.isprintable():
        raise MisfitError(value, "printable text")
    short(value)


def unless_text(inner: Check) -> Check:
    """Take short text in the place of something else, too."""

    def check(value: Any) -> None:
        (short if type(value) is str else inner)(value)

    return check


def flag(value: Any) -> None:
    """Take true and false."""
    if type(value) is not bool:
        raise MisfitError(value, "true or false")


def number(value: Any) -> None:
    """Take a number that can be reckoned with: finite, and below `MOST`."""
    if type(value) not in NUMBERS or not -MOST < value < MOST:
        raise MisfitError(value, "a number within 2^64")


def amount(value: Any) -> None:
    """Take a number of seconds, bytes or images a second: none is below 0."""
    if type(value) not in NUMBERS or not 0 <= value < MOST:
        raise MisfitError(value, "a number from 0 to 2^64")


def count(value: Any) -> None:
    """Take a whole number from 0."""
    if type(value) is not int or not 0 <= value < MOST:
        raise MisfitError(value, "a whole number from 0 to 2^64")


def sound(value: Any) -> None:
    """Take any value whose numbers can be reckoned with."""
    if type(value) in NUMBERS:
        number(value)
    elif type(value) is dict:
        each_key(sound)(value)
    elif type(value) is list:
        each_of(sound)(value)


def named(value: Any) -> None:
    """Take any value as `sound` does, whose texts and keys can stand in names."""
    if type(value) is str:
        line(value)
    elif type(value) is dict:
        each_key(named)(value)
        each_of(line)(list(value))
    elif type(value) is list:
        each_of(named)(value)
    else:
        sound(value)


def flat(value: Any) -> None:
    """Take any value that is no list or object, and numbers that can be reckoned with; the others nobody reads."""
    if type(value) in NUMBERS and not -MOST < value < MOST:
        raise MisfitError(value, "a number within 2^64")


def bare(value: Any) -> None:
    """Take text that can stand in a line, or a number."""
    (line if type(value) is str else number)(value)


def one_of(*words: str) -> Check:
    """Take one of these words."""

    def check(value: Any) -> None:
        if type(value) is not str or value not in words:
            raise MisfitError(value, f"one of {', '.join(words)}")

    return check


def maybe(inner: Check) -> Check:
    """Take null, too."""

    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def each_of(inner: Check) -> Check:
    """Take a list of such values."""

    def check(value: Any) -> None:
        if type(value) is not list:
            raise MisfitError(value, "a list")
        place = 0
        try:
            for place, each in enumerate(value):  # noqa: B007 - the error is of the last one
                inner(each)
        except MisfitError as error:
            raise error.within(f"[{place}]") from None

    return check


def each_key(inner: Check) -> Check:
    """Take an object of such values."""
    return _object({}, inner, frozenset(), frozenset())


def keyed(needed: Mapping[str, Check], known: Mapping[str, Check] | None = None, others: Check | None = None) -> Check:
    """Take an object with all keys that are needed; those that are merely known may be missing or null."""
    return _object({**needed, **(known or {})}, others, frozenset(needed), frozenset(known or ()))


def _object(
    checks: Mapping[str, Check], others: Check | None, needed: frozenset[str], optional: frozenset[str]
) -> Check:
    check_of = checks.get

    def check(value: Any) -> None:  # called some 50 times a record: each key is looked up once, none is tried by itself
        if type(value) is not dict:
            raise MisfitError(value, "an object")
        if not needed <= value.keys():
            raise MisfitError(MISSING, "").within(f".{min(needed.difference(value))}")
        key = ""
        try:
            for key, each in value.items():
                inner = check_of(key, others)
                if inner and (each is not None or key not in optional):
                    inner(each)
        except MisfitError as error:
            raise error.within(f".{key}") from None

    return check
