"""Protobuf's wire format, read without protobuf (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTH = {FIXED64: 8, FIXED32: 4}
MORE = 128  # this bit of a byte says that the number goes on
MOST_BITS = 70
NUMBER = -1
CUT_OFF, TOO_LONG = "it is cut off", "a number has more than 64 bits"


class MalformedError(ValueError):
    """The bytes are no such message."""


class Columns(NamedTuple):
    """Fields of many messages: numbers by field, 0 where a message has none; parts of one field, with their owner."""

    numbers: dict[int, NDArray[np.uint64]]
    owner: Places
    start: Places
    end: Places


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, begin and end of each field of bytes; of any other one number, value and `NUMBER`."""
    while at < end:
        tag, at = varint(data, at, end)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield tag >> 3, value, NUMBER
            continue
        if kind == BYTES:
            length, at = varint(data, at, end)
        else:
            length = _width(kind)
        if length > end - at:
            raise MalformedError(CUT_OFF)
        yield (tag >> 3, at, at + length) if kind == BYTES else (tag >> 3, 0, NUMBER)
        at += length


def _width(kind: int) -> int:
    if kind not in WIDTH:
        raise MalformedError(f"a field is of the kind {kind}, which there is not")
    return WIDTH[kind]


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most 64 bits and the place behind it."""
    value = 0
    for shift in range(0, MOST_BITS, 7):
        if at >= end:
            raise MalformedError(CUT_OFF)
        byte = data[at]
        at += 1
        if byte < MORE:
            return (value | byte << shift) & (1 << 64) - 1, at
        value |= (byte & MORE - 1) << shift
    raise MalformedError(TOO_LONG)


def columns(data: NDArray[np.uint8], start: Places, end: Places, numbers: Collection[int], parts: int = 0) -> Columns:
    """Read many messages side by side: the fields of numbers that are asked for, and where those of `parts` lie.

    `data` goes on for ten bytes behind the last message. A step for each field of the longest message.
    """
    found = {number: np.zeros(len(start), np.uint64) for number in numbers}
    inside: list[tuple[Any, Any, Any]] = [(start[:0], start[:0], start[:0])]
    active = np.flatnonzero(start < end)
    at = start[active]
    while len(active):
        tag, at = _varints(data, at)
        value, behind = _varints(data, at)
        kind = tag & np.uint64(7)
        for odd in set(np.unique(kind).tolist()) - {VARINT, BYTES}:
            behind[kind == odd] = at[kind == odd] + _width(odd)
        long = kind == BYTES
        if (value[long] > np.uint64(len(data))).any():
            raise MalformedError(CUT_OFF)
        after = behind + np.where(long, value, np.uint64(0)).astype(np.int64)
        if (after > end[active]).any():
            raise MalformedError(CUT_OFF)
        for number, column in found.items():
            here = tag == number << 3 | VARINT
            column[active[here]] = value[here]
        here = tag == parts << 3 | BYTES
        inside.append((active[here], behind[here], after[here]))
        left = after < end[active]
        active, at = active[left], after[left]
    return Columns(found, *(np.concatenate(each) for each in zip(*inside, strict=True)))


def _varints(data: NDArray[np.uint8], at: Places) -> tuple[NDArray[np.uint64], Places]:
    value, goes_on = np.zeros(len(at), np.uint64), np.ones(len(at), bool)
    for shift in range(0, MOST_BITS, 7):
        byte = data[at].astype(np.uint64)
        value |= np.where(goes_on, (byte & np.uint64(MORE - 1)) << np.uint64(shift), np.uint64(0))
        at = at + goes_on
        goes_on = goes_on & (byte >= MORE)
        if not goes_on.any():
            return value, at
    return value, at  # of what may be no number at all: `columns` finds a number that goes on behind its message
