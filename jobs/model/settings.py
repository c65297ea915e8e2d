"""The settings of a run: their types, and how a benchmark declares those of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypedDict, get_args, get_type_hints

import msgspec

Node = dict[str, Any]
"""One node of the configuration as plain values; its keys differ by choice."""


class Settings(TypedDict, total=False):
    """The settings of a cell; a benchmark has those that act on it (`jobs.benchmarks.benchmark.Benchmark.acting`)."""

    benchmark: Node
    dataset: Node
    storage: Node
    threads: int
    batch_size: int
    prefetch: int
    iterations: int | None
    seed: int
    cache: str
    accelerator: Node
    checkpoint: Node
    profile: Node
    staging: str
    nodes: int
    sync: str
    reader: str


@dataclass(frozen=True)
class Setting:
    """What a declared setting says of itself beside its type, range (``msgspec.Meta``) and default."""

    help: str
    unit: str = ""


class Declared(NamedTuple):
    """A setting as its Struct declares it."""

    setting: Setting
    bounds: tuple[float, float] | None  # the least and the greatest legal number
    default: Any


@cache
def declared(kind: type[msgspec.Struct]) -> dict[str, Declared]:
    """Return the settings of a Struct by name, in its order."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for each in msgspec.structs.fields(kind):
        extras = [*_extras(hints[each.name])]
        setting = next((extra for extra in extras if isinstance(extra, Setting)), Setting(""))
        meta = next((extra for extra in extras if isinstance(extra, msgspec.Meta)), None)
        bounds = (meta.ge, meta.le) if meta and meta.ge is not None and meta.le is not None else None
        found[each.name] = Declared(setting, bounds, each.default)
    return found


def _extras(hint: Any) -> Iterator[Any]:
    """Yield what stands beside the types of a hint, those of its parts included."""
    yield from getattr(hint, "__metadata__", ())
    for part in (hint.__origin__,) if hasattr(hint, "__metadata__") else get_args(hint):
        yield from _extras(part)


EVERY: tuple[str, ...] = tuple(Settings.__annotations__)
"""The settings that can change the result of a benchmark that reads images."""


def key(
    default: Any, least: float | None = None, most: float | None = None, *, by_hand: str = "", flag: str = ""
) -> Any:
    """Declare a key of a benchmark as a field of a dataclass, with the range of its values.

    The default is of a run by hand; that of a campaign stands in conf/, and a test holds that they are the same.
    `by_hand` says what it does, in the help of a run by hand, which has no such option without it; `flag` names the
    option otherwise than the key.
    """
    return field(default=default, metadata={"range": (least, most), "by_hand": by_hand, "flag": flag})


def defaults(keys: type) -> Node:
    """Return the defaults of a benchmark's keys as plain values."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in vars(keys()).items()}


def ranges(keys: type) -> dict[str, tuple[float, float]]:
    """Return the ranges of those keys that have one."""
    found = {each.name: each.metadata.get("range", (None, None)) for each in fields(keys)}
    return {name: bounds for name, bounds in found.items() if None not in bounds}


def choices(each: Field[Any]) -> list[str] | None:
    """Return the words that a key may have; None where it is not one of a few."""
    return [word.value for word in type(each.default)] if isinstance(each.default, Enum) else None
