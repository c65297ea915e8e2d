"""What a record says of a storage that was emulated: how fast it was at most, and the model that served it, if any."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BOUNDS = {
    "read_mb_per_s": "MB/s read",
    "write_mb_per_s": "MB/s written",
    "read_iops": "reads/s",
    "write_iops": "writes/s",
}
KIND = "kind"


def mark(facts: Mapping[str, Any]) -> str | bool:
    """Return what tells an emulated storage from others: its model in words; True where it is bounded, and no more."""
    model = facts.get("model")
    if not isinstance(model, dict) or not isinstance(model.get(KIND), str):
        return True
    told = (f"{name} {_word(it)}" for name, it in sorted(model.items()) if name != KIND and _is_plain(it))
    return ", ".join([f"{facts.get('name', '')} is a {model[KIND]} model", *bounds(facts), *told])


def bounds(facts: Mapping[str, Any]) -> list[str]:
    """Return in words how fast an emulated storage is at most."""
    return [f"{_word(facts[each])} {unit}" for each, unit in BOUNDS.items() if _is_number(facts.get(each))]


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or _is_number(value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
