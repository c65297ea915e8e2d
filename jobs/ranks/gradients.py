"""Gradients as bytes between ranks, and their sums: float32, in the order of the ranks, so that they repeat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jobs.lazy_imports import np

Shapes = Sequence[tuple[int, ...]]


def packed(tensors: Sequence[Any]) -> tuple[Any, Shapes]:
    """Return tensors one after the other as one array of float32, and their shapes."""
    arrays = [np.asarray(each, np.float32) for each in tensors]
    flat = np.concatenate([each.ravel() for each in arrays]) if arrays else np.empty(0, np.float32)
    return flat, [each.shape for each in arrays]


def added(payloads: Sequence[memoryview]) -> Any:
    """Return the sum of arrays of float32, the first one's plus the second one's and so on; all have one length."""
    total = np.array(np.frombuffer(payloads[0], np.float32))
    for each in payloads[1:]:
        total += np.frombuffer(each, np.float32)
    return total


def unpacked(payload: memoryview, shapes: Shapes) -> list[Any]:
    """Return the arrays of these shapes that `packed` put one after the other."""
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=np.int64)
    parts = np.split(np.frombuffer(payload, np.float32), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)] if shapes else []
