"""Fast composition of the points of a grid.

Hydra composes a point in about 0.1 s, twice in a sweep. The points of a grid differ mostly in plain values. So Hydra
composes one point for each combination of all other words (groups, added and deleted keys, lists and mappings), and
plain values are then set on it with the call that Hydra makes (``OmegaConf.update``). If none of the other words is
swept, this point is the configuration of the sweep, which is already composed. Tests compare the result with Hydra's.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from campaign.config.tree import CHOICES, known_of, typed, typed_value
from campaign.console import counting
from campaign.errors import UsageError, nearest
from jobs.model.conduct import Point
from jobs.model.settings import flat

# Parsed 50 times faster than Hydra does.
_WHOLE_NUMBER = re.compile(r"(?!hydra\b)([a-z_][a-z0-9_.]*)=(0|-?[1-9][0-9]{0,17})")


class _Word(NamedTuple):
    """A parsed word; a `plain` word sets a key to a scalar, independently of the other words."""

    key: str
    value: Any
    plain: bool


def compose_all(loader: ConfigLoader, master: DictConfig, grid: Sequence[Sequence[str]]) -> Iterator[Point]:
    """Yield the point of each list of overrides in `grid` as plain containers, with interpolations resolved.

    Points share the parts that they have in common, so they must not be changed.
    """
    words_of = _reader(loader)
    fixed = set(cast("list[str]", OmegaConf.to_container(master.hydra.overrides.task, resolve=False)))
    bases: dict[tuple[object, ...], _Base] = {}
    for texts in counting(list(_fitted(loader, master, grid)), "composing cells"):
        words = words_of(texts)
        plain = [word for word in words if word.plain]
        others = [text for text, word in zip(texts, words, strict=True) if not word.plain]
        key = (*others, "", *sorted(word.key for word in plain))
        if key not in bases:
            composed = _with(master, plain) if fixed.issuperset(others) else None
            composed = composed or loader.load_sweep_config(master, list(texts))
            bases[key] = _Base(composed, {word.key for word in plain})
        yield bases[key].point(plain)


def _with(master: DictConfig, words: Iterable[_Word]) -> DictConfig | None:
    """Return the configuration of the sweep with a point's values; None if Hydra must explain what is wrong."""
    config = copy.deepcopy(master)
    try:
        for word in words:
            OmegaConf.update(config, word.key, word.value, merge=True)
    except OmegaConfBaseException:
        return None
    return config


class _Base:
    """A composed configuration for all points that differ from it only in the plain values of `keys`."""

    def __init__(self, config: DictConfig, keys: set[str]) -> None:
        self._config = config
        with open_dict(config):
            config.pop("hydra", None)
        # Interpolations are resolved once for all points, unless one of them may depend on one of the keys.
        self._resolved = None if _may_depend(config, keys) else typed(_container(config))
        self._typed = lru_cache(maxsize=None, typed=True)(self._typed_value)  # 1, 1.0 and True are three values

    def point(self, words: Sequence[_Word]) -> dict[str, Any]:
        """Return the configuration with these values."""
        if self._resolved is None:
            for word in words:
                OmegaConf.update(self._config, word.key, word.value, merge=True)
            return typed(_container(self._config))
        point = dict(self._resolved)
        for word in words:
            node, (*path, last) = point, word.key.split(".")
            for part in path:
                node[part] = node = dict(node[part])
            node[last] = self._typed(word.key, word.value)
        return point

    def _typed_value(self, key: str, value: Any) -> Any:
        known = known_of(cast("dict[str, Any]", self._resolved), key)
        return typed_value(value, known, key) if known else value


def _may_depend(config: DictConfig, keys: Iterable[str]) -> bool:
    parts = {part for key in keys for part in key.split(".")}
    values = (str(value) for _, value in flat(_container(config, resolve=False)))
    texts = [text for text in values if "${" in text]
    return any(part in text for part in parts for text in texts)


def _reader(loader: ConfigLoader) -> Any:
    parser = OverridesParser.create(config_loader=loader)
    is_group = lru_cache(maxsize=None)(lambda key: bool(loader.get_group_options(key)))

    @cache
    def parsed(text: str) -> _Word:
        if (number := _WHOLE_NUMBER.fullmatch(text)) and not is_group(number[1]):
            return _Word(number[1], int(number[2]), plain=True)
        override = parser.parse_override(text)
        key = override.key_or_group
        plain = _is_plain(override) and not is_group(key)
        return _Word(key, override.value() if plain else None, plain)

    @cache
    def alone(key: str, others: frozenset[str]) -> bool:
        """Return whether no other word sets this key, a key below it or one above it."""
        return not any(f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.") for other in others)

    def read(texts: Sequence[str]) -> list[_Word]:
        words = [parsed(text) for text in texts]
        others = frozenset(word.key for word in words if not word.plain and not is_group(word.key))
        return [word._replace(plain=False) if word.plain and not alone(word.key, others) else word for word in words]

    return read


def _fitted(loader: ConfigLoader, master: DictConfig, grid: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Yield the words of each point without keys that its choices do not have.

    In ``checkpoint=none,hdd checkpoint.every=10`` the second word is for ``hdd`` only.
    """
    every = {word for words in grid for word in words}
    of_others: dict[str, set[str]] = {}
    for group in CHOICES:
        choices = {word for word in every if word.startswith(f"{group}=")}
        said = {word: word.partition("=")[0] for word in every if word.startswith(f"{group}.")}
        if len(choices) < 2 or not said:  # noqa: PLR2004 - one choice is no sweep
            continue
        keys = {choice: _keys(loader.load_sweep_config(master, [choice]), group) for choice in choices}
        if unknown := set(said.values()).difference(*keys.values()):
            raise UsageError(f"unknown key '{min(unknown)}'", nearest(min(unknown), set().union(*keys.values())))
        of_others |= {choice: {word for word, key in said.items() if key not in keys[choice]} for choice in choices}
    for words in grid:
        left_out = set().union(*(of_others.get(word, ()) for word in words))
        yield [word for word in words if word not in left_out]


def _keys(config: DictConfig, group: str) -> set[str]:
    """Return the dotted keys of a choice of a group; empty for a choice that has only a name."""
    node = _container(config[group], resolve=False)
    found = {f"{group}.{key}" for key in node} | {key for key, _ in flat(node, f"{group}.")}
    return found if len(node) > 1 else set()


def _is_plain(override: Override) -> bool:
    """Return whether an override sets one key of ours to a scalar that depends on no other key."""
    if override.is_delete() or override.is_add() or override.is_force_add() or override.is_hydra_override():
        return False
    value = override.value()
    return not isinstance(value, (dict, list)) and not (isinstance(value, str) and ("${" in value or value == "???"))


def _container(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    found = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=resolve)
    return cast("dict[str, Any]", found)
