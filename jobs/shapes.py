"""Whether what was read from JSON has the shape that a TypedDict declares."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

_SHOWN = 40  # characters of a value that is wrong
_TYPES: dict[Any, tuple[type, ...]] = {float: (int, float), list: (list,), Sequence: (list,), dict: (dict,)}
_Checker = Callable[[Any], str]


def fault(value: object, kind: Any) -> str:
    """Say which key is missing or has a value of another type; empty where all fits. Other keys do not matter."""
    return _checker(kind)(value).lstrip(".").removeprefix(" ")


@cache
def _checker(kind: Any) -> _Checker:
    """Return what checks a value: it says where below it something is wrong, as ``.key[3] is 'x'``, or nothing."""
    origin, inside = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return lambda _: ""
    if is_typeddict(kind):
        return _of_keys(kind)
    if origin in (Union, types.UnionType):
        return _any_of([_checker(each) for each in inside])
    if origin is Literal:
        return lambda value: "" if isinstance(value, str) and value in inside else _wrong(value)
    if inside:
        return _of_each(dict if origin in (dict, Mapping) else list, _checker(inside[-1]))
    legal = _TYPES.get(kind, (kind,))
    return lambda value: "" if type(value) in legal else _wrong(value)


def _wrong(value: object) -> str:
    return f" is {repr(value)[:_SHOWN]}"


def _of_keys(kind: Any) -> _Checker:
    checkers = {key: _checker(hint) for key, hint in get_type_hints(kind).items()}
    required = sorted(kind.__required_keys__)

    def check(value: Any) -> str:
        if type(value) is not dict:
            return _wrong(value)
        for key in required:
            if key not in value:
                return f".{key} is missing"
        return _first(((key, value[key], checkers[key]) for key in value if key in checkers), ".{}")

    return check


def _of_each(container: Any, checker: _Checker) -> _Checker:
    def check(value: Any) -> str:
        if type(value) is not container:
            return _wrong(value)
        if container is dict:
            return _first(((key, each, checker) for key, each in value.items()), ".{}")
        return _first(((place, each, checker) for place, each in enumerate(value)), "[{}]")

    return check


def _first(asked: Iterable[tuple[object, Any, _Checker]], place: str) -> str:
    for key, value, check in asked:
        if said := check(value):
            return place.format(key) + said
    return ""


def _any_of(checkers: Sequence[_Checker]) -> _Checker:
    def check(value: Any) -> str:
        faults = [checker(value) for checker in checkers]
        return "" if "" in faults else faults[0]

    return check
