"""What JSON says against the shape that a TypedDict declares: the first fault, and where it is."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from jobs import shapes


class Inner(TypedDict):
    """What lies within."""

    z: int
    a: int


class Shape(TypedDict):
    """Each kind of hint."""

    name: str
    rate: float
    words: Sequence[str]
    sides: Mapping[str, int]
    inner: list[Inner]
    mode: Literal["one", "two"]
    more: NotRequired[int | None]
    anything: NotRequired[Any]


GOOD = {"name": "x", "rate": 1, "words": ["a"], "sides": {"b": 2}, "inner": [{"z": 1, "a": 2}], "mode": "two"}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, ""),
        ({"rate": 1.5, "words": [], "sides": {}, "more": None, "anything": {1}, "unknown": {}}, ""),
        ({"name": 5}, "name is 5"),
        ({"name": "x" * 50, "rate": "y" * 50}, "rate is '" + "y" * 39),
        ({"rate": True}, "rate is True"),
        ({"words": ["a", 7]}, "words[1] is 7"),
        ({"words": "ab"}, "words is 'ab'"),
        ({"sides": {"b": 2, "c": "d"}}, "sides.c is 'd'"),
        ({"sides": [2]}, "sides is [2]"),
        ({"inner": [{"z": 1, "a": 2}, {"z": 1}]}, "inner[1].a is missing"),
        ({"inner": [{}]}, "inner[0].a is missing"),
        ({"mode": "three"}, "mode is 'three'"),
        ({"mode": ["one"]}, "mode is ['one']"),
        ({"more": "x"}, "more is 'x'"),
    ],
)
def test_the_first_fault_is_told_with_its_place(changed, fault):
    assert shapes.fault({**GOOD, **changed}, Shape) == fault


@pytest.mark.parametrize("value", [None, [], "x", 5])
def test_what_is_no_mapping_has_no_shape(value):
    assert shapes.fault(value, Shape) == f"is {value!r}"
