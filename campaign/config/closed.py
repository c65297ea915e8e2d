"""Words are refused that Hydra would take for something else than was meant, and keys that are not the schemas'."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from campaign.config.command_line import refuse_for_hydra
from campaign.config.explain import unknown_key
from campaign.config.keys.slurm import HERE, ON_SLURM
from campaign.config.schema import CHOICES, Campaign
from campaign.errors import UsageError
from jobs.model.conduct import Point

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "size")
_WORD = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
_NUMBER = re.compile(r"[+-]?[0-9][0-9_.]*")
_TRUE_OR_FALSE = ("0", "1")


def check_words(overrides: Iterable[str]) -> None:
    """Refuse what is for Hydra, a group that is no word, an empty mapping, a number where true or false is meant."""
    overrides = list(overrides)
    refuse_for_hydra(overrides)
    for word in overrides:
        if not (parts := _WORD.fullmatch(word)):
            continue
        key, value = parts.groups()
        if key in GROUPS and _NO_CHOICE.match(value):
            raise UsageError(f"{key}={value} is no choice of a group", f"one word, or several: {key}=one,other")
        if re.fullmatch(r"\s*\{\s*\}\s*", value):
            raise UsageError(f"{word} changes nothing", f"name a key of it: {key}.…=…")
        numbers = [one for one in value.split(",") if _NUMBER.fullmatch(one) and one not in _TRUE_OR_FALSE]
        if numbers and key in _switches():
            raise UsageError(f"{key}={numbers[0]} is neither true nor false", f"{key}=true or {key}=false")


@cache
def _switches() -> frozenset[str]:
    return frozenset(keys_with(bool, Campaign))


def keys_with(value: type, kind: type, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of a schema that may have a value of that type, ``NoneType`` say."""
    for key, hint in get_type_hints(kind).items():
        if value in (hint, *get_args(hint)):
            yield path + key
        how, nodes = fields_of(kind)[1].get(key, ("", ()))
        for node in nodes if how == "one" else ():
            yield from keys_with(value, node, f"{path}{key}.")


def check_keys(point: Point) -> None:
    """Refuse keys that ``+key=value`` added (nothing would read them) and keys that ``~key`` took away."""
    check_node("", point, Campaign)
    name, of_slurm = point["cluster"]["name"], len(point["cluster"]) > 1
    if of_slurm != (name in ON_SLURM) and name in (*ON_SLURM, *HERE):
        raise UsageError(f"cluster.name={name} does not fit the other keys of cluster", f"write cluster={name}")


def check_node(path: str, node: Any, kind: type) -> None:
    """Check one node and those below it; `path` ends in a dot, or is empty at the top."""
    if not isinstance(node, dict):
        name = path.rstrip(".")
        raise UsageError(f"{name} is no choice of its group", f"see `python -m campaign --help` for {name}")
    known, nested = fields_of(kind)
    for key in node.keys() - known:
        raise unknown_key(f"{path}{key}", kind)
    for key in known - node.keys():
        raise UsageError(f"{path}{key} is missing", f"do not delete it; give it a value: {path}{key}=…")
    for key, (how, inner) in nested.items():
        if how == "each":
            for name, each in node[key].items():
                check_node(f"{path}{key}.{name}.", each, inner[0])
        else:
            check_node(f"{path}{key}.", node[key], fitting(node[key], inner))


def fitting(node: Any, kinds: tuple[type, ...]) -> type:
    """Find the schema whose keys are most like those of a node."""
    keys = set(node) if isinstance(node, dict) else set()
    return min(kinds, key=lambda kind: len(fields_of(kind)[0] ^ keys))


@cache
def fields_of(kind: type) -> tuple[set[str], dict[str, tuple[str, tuple[type, ...]]]]:
    """Name the keys of a schema, and those that are nodes themselves with their schemas."""
    hints = get_type_hints(kind)
    return set(hints), {key: nested for key, hint in hints.items() if (nested := _nested(kind, key, hint))}


def _nested(kind: type, key: str, hint: Any) -> tuple[str, tuple[type, ...]] | None:
    if kind is Campaign and key in CHOICES:
        return "one", tuple(CHOICES[key].values())
    if dataclasses.is_dataclass(hint):
        return "one", (hint,)  # type: ignore[return-value] # a type, for it is a type hint
    if get_origin(hint) is dict and dataclasses.is_dataclass(get_args(hint)[1]):
        return "each", (get_args(hint)[1],)
    return None
