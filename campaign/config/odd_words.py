"""Words that Hydra and OmegaConf would take for something else than was meant, or for nothing."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from campaign.config.closed import CHOICES
from campaign.config.schema import Campaign
from campaign.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROUPS = ("benchmark", "dataset", "site", "storage", "accelerator", "checkpoint", "cluster", "paper", "size")
_WORD = re.compile(r"\+{0,2}([^=]+)=(.*)", re.DOTALL)
_NO_CHOICE = re.compile(r"\s*\[|.*\$\{", re.DOTALL)  # a list or an interpolation
_NUMBER = re.compile(r"[+-]?[0-9][0-9_.]*")
_TRUE_OR_FALSE = ("0", "1")


def check(overrides: Iterable[str]) -> None:
    """Refuse a group that is no word, an empty mapping, and a number where true or false is meant."""
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
    """Name the keys that are true or false."""
    return frozenset(_switches_of("", Campaign))


def _switches_of(path: str, kind: type) -> Iterator[str]:
    for key, hint in get_type_hints(kind).items():
        if bool in (hint, *get_args(hint)):
            yield path + key
        for node in _nodes(key, hint) if kind is Campaign else ():
            yield from _switches_of(f"{path}{key}.", node)


def _nodes(key: str, hint: Any) -> tuple[type, ...]:
    return CHOICES.get(key) or ((hint,) if isinstance(hint, type) and dataclasses.is_dataclass(hint) else ())
