"""Parts of records of which equal ones are one object in each process: most runs have the same keys and checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

Part = TypeVar("Part")


class Parts(tuple[Part, ...]):
    """A tuple of which equal ones are one object: it is found in a dictionary by what it is, not by what is in it."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay the one object in another process, too."""
        return parts, (tuple(self),)


class Words(dict[str, Any]):
    """A mapping that stays as it is, of which those that are written alike are one object."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Stay the one object in another process, too."""
        return words, (dict(self),)


def parts(values: Iterable[Part]) -> Parts[Part]:
    """Return the one tuple of these values."""
    key = tuple(values)
    return _PARTS.get(key) or _PARTS.setdefault(key, Parts(key))


def words(facts: Mapping[str, Any]) -> Words:
    """Return the one mapping of these facts."""
    text = repr(facts)
    return _WORDS.get(text) or _WORDS.setdefault(text, Words(facts))


_PARTS: dict[tuple[Any, ...], Parts[Any]] = {}
_WORDS: dict[str, Words] = {}
