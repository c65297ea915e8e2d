"""The points of a grid: its words are read by Hydra's grammar, multiplied, and composed.

Hydra composes a point in about 0.1 s, and the points of a grid differ mostly in plain values. So Hydra composes one
point for each combination of all other words (groups, added and deleted keys, lists and mappings), and plain values
are then set on it with the call that Hydra makes (``OmegaConf.update``). Tests compare the result with Hydra's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from hydra.core.override_parser.types import Glob, Override, ValueType
from omegaconf import DictConfig, OmegaConf, open_dict

from campaign.config.composer import Composer
from campaign.config.explain import explained
from campaign.config.tree import CHOICES, LISTS, known_of, require_keys, typed, typed_value
from campaign.console import counting
from campaign.errors import UsageError, nearest
from jobs.model.conduct import Point
from jobs.model.declared import MISSING
from jobs.model.settings import flat

# Parsed 50 times faster than Hydra does.
_WHOLE_NUMBER = re.compile(r"([a-z_][a-z0-9_.]*)=(0|-?[1-9][0-9]{0,17})")
_OF_CHOICES = tuple(f"{group}." for group in CHOICES)


class Word(NamedTuple):
    """A word of one point; a `plain` word sets a key to a scalar, independently of the other words."""

    text: str  # as Hydra reads it
    key: str  # or group
    value: Any = None
    plain: bool = False


Meaning = Callable[[Word], Sequence[Word]]
"""What a word stands for: the words that Hydra reads in its place."""
_Values = list[tuple[Word, ...]]
"""The values of one word of a grid, each as the words that it stands for."""


def points(composer: Composer, texts: Sequence[str], meaning: Meaning = lambda word: [word]) -> Iterator[Point]:
    """Yield the points of a grid as plain containers, with interpolations resolved; raises UsageError.

    Points share the parts that they have in common, so they must not be changed.
    """
    read = _Reader(composer, meaning)
    master, fixed = _master(composer, read.values(texts))
    params = OmegaConf.select(master, "hydra.sweeper.params") or {}
    grid = _fitted(composer, read.values([*(f"{key}={value}" for key, value in params.items()), *texts]))
    bases: dict[tuple[object, ...], _Base] = {}
    for words in counting(list(grid), "composing cells"):
        plain, others = read.divided(words)
        key = (others, *(word.key for word in plain))
        if key not in bases:
            config = master if others == fixed and not bases else composer.compose(others)
            bases[key] = _Base(config, plain)
        yield bases[key].point(plain)


def single(composer: Composer, texts: Sequence[str], lists: Collection[str]) -> list[str]:
    """Return words as Hydra reads them where there is no grid; `lists` are the keys of lists. Raises UsageError."""
    values = _Reader(composer, lambda word: [word], lists).values(texts)
    if several := [each[0][0].key for each in values if len(each) != 1]:
        raise UsageError(f"{several[0]} has several values", f"give {several[0]} one value")
    return [each[0][0].text for each in values]


class _Reader:
    """Reads words by Hydra's grammar."""

    def __init__(self, composer: Composer, meaning: Meaning, lists: Collection[str] = LISTS) -> None:
        self._composer, self._meaning, self._lists = composer, meaning, lists
        self._word = cache(self._read)
        self._alone = cache(_alone)

    def values(self, texts: Sequence[str]) -> list[_Values]:
        """Return the values of each word; of a key that is given twice the last word counts, at the first place."""
        overrides = {override.get_key_element(): override for override in map(self._composer.parse, texts)}
        return [
            [tuple(self._meaning(self._word(text))) for text in self._texts(override)]
            for override in overrides.values()
        ]

    def divided(self, words: Sequence[Word]) -> tuple[list[Word], tuple[str, ...]]:
        """Return the plain words of a point, and the texts of the others, which Hydra composes."""
        others = frozenset(word.key for word in words if not word.plain and not self._composer.options(word.key))
        plain = [word for word in words if word.plain and self._alone(word.key, others)]
        return plain, tuple(word.text for word in words if word not in plain)

    def _texts(self, override: Override) -> Iterator[str]:
        key = override.get_key_element()
        if override.key_or_group in self._lists and (items := _items(override)) is not None:
            yield f"{key}=[{','.join(items)}]"
        elif not override.is_sweep_override():
            yield f"{key}={override.get_value_element_as_str()}"
        elif override.value_type == ValueType.GLOB_CHOICE_SWEEP:
            names = cast("Glob", override.value()).filter(sorted(self._composer.options(override.key_or_group)))
            yield from (f"{key}={name}" for name in names)
        elif override.is_discrete_sweep():
            yield from (f"{key}={value}" for value in override.sweep_string_iterator())
        else:
            raise UsageError(f"{override.input_line} names no single values", f"name them: {key}=1,2")

    def _read(self, text: str) -> Word:
        if (number := _WHOLE_NUMBER.fullmatch(text)) and not self._composer.options(number[1]):
            return Word(text, number[1], int(number[2]), plain=True)
        override = self._composer.parse(text)
        key = override.key_or_group
        plain = _is_plain(override) and not self._composer.options(key)
        return Word(text, key, override.value() if plain else None, plain)


def _items(override: Override) -> list[str] | None:
    """Return the items of a list that is typed without brackets, as in ``gcc,cuda``; None for any other value."""
    if override.value_type == ValueType.SIMPLE_CHOICE_SWEEP:
        is_sweep = any(value is None or isinstance(value, list) for value in override.sweep_iterator())
        return None if is_sweep else [*override.sweep_string_iterator()]
    plain = override.value_type == ValueType.ELEMENT and isinstance(override.value(), str | int | float)
    return [override.get_value_element_as_str()] if plain else None


def _alone(key: str, others: frozenset[str]) -> bool:
    """Return whether no other word sets this key, a key below it or one above it."""
    return not any(f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.") for other in others)


def _is_plain(override: Override) -> bool:
    """Return whether an override sets one key to a scalar that depends on no other key."""
    if override.is_delete() or override.is_add() or override.is_force_add() or override.package is not None:
        return False
    value = override.value()
    return not isinstance(value, (dict, list)) and not (isinstance(value, str) and ("${" in value or value == MISSING))


def _master(composer: Composer, values: Sequence[_Values]) -> tuple[DictConfig, tuple[str, ...]]:
    """Compose what is not swept, where a recipe's grid stands; return it and its words that are not plain.

    A word like ``checkpoint.every=10`` is left out: ``checkpoint`` may be swept, and what is fixed has no such key.
    """
    fixed = [each[0] for each in values if len(each) == 1 and not each[0][0].text.startswith(_OF_CHOICES)]
    known = _in_order(fixed)
    others = tuple(word.text for word in known if not word.plain)
    master = composer.compose(others)
    _set(master, known)
    return master, others


def _fitted(composer: Composer, values: Sequence[_Values]) -> Iterator[tuple[Word, ...]]:
    """Yield the overrides of each grid point, without the keys that its choices of groups do not have.

    In ``checkpoint=none,hdd checkpoint.every=10`` the second word is for ``hdd`` only.
    """
    every = {word for each in values for words in each for word in words}
    of_others: dict[Word, set[Word]] = {}
    for group in CHOICES:
        choices = {word for word in every if word.text.startswith(f"{group}=")}
        said = {word for word in every if word.text.startswith(f"{group}.")}
        if len(choices) < 2 or not said:  # noqa: PLR2004 - one choice is no sweep
            continue
        keys = {choice: _keys(composer.compose([choice.text]), group) for choice in choices}
        if unknown := {word.key for word in said}.difference(*keys.values()):
            raise UsageError(f"unknown key '{min(unknown)}'", nearest(min(unknown), set().union(*keys.values())))
        of_others |= {choice: {word for word in said if word.key not in keys[choice]} for choice in choices}
    for combination in itertools.product(*values):
        words = _in_order(combination)
        left_out = set().union(*(of_others.get(word, ()) for word in words)) if of_others else ()
        yield tuple(word for word in words if word not in left_out) if left_out else words


def _in_order(combination: Sequence[tuple[Word, ...]]) -> tuple[Word, ...]:
    """Return the words of a point: what a word implies comes first, so that other words of the user's overrule it."""
    implied = tuple(word for each in combination for word in each[1:])
    return implied + tuple(each[0] for each in combination)


def _keys(config: DictConfig, group: str) -> set[str]:
    """Return the dotted keys of a choice of a group; empty for a choice that has only a name."""
    node = _container(config[group], resolve=False)
    found = {f"{group}.{key}" for key in node} | {key for key, _ in flat(node, f"{group}.")}
    return found if len(node) > 1 else set()


class _Base:
    """A composed configuration for all points that differ from it only in the plain values of the same keys."""

    def __init__(self, config: DictConfig, words: Sequence[Word]) -> None:
        with open_dict(config):
            config.pop("hydra", None)
        self._config = config
        _set(config, words)
        # Interpolations are resolved once for all points, unless one of them may depend on one of the keys.
        raw = _container(config, resolve=False)
        require_keys(raw)
        depends = _may_depend(raw, [word.key for word in words])
        self._resolved = None if depends else self._container()
        self._typed = lru_cache(maxsize=None, typed=True)(self._typed_value)  # 1, 1.0 and True are three values

    def point(self, words: Sequence[Word]) -> Point:
        """Return the configuration with these values."""
        if self._resolved is None:
            _set(self._config, words)
            return self._container()
        point = dict(self._resolved)
        for word in words:
            node, (*path, last) = point, word.key.split(".")
            for part in path:
                node[part] = node = dict(node[part])
            node[last] = self._typed(word.key, word.value)
        return point

    def _container(self) -> Point:
        with explained():
            return typed(_container(self._config))

    def _typed_value(self, key: str, value: Any) -> Any:
        known = known_of(cast("dict[str, Any]", self._resolved), key)
        return typed_value(value, known, key) if known else value


def _set(config: DictConfig, words: Iterable[Word]) -> None:
    """Set the values of those words that are plain."""
    with explained():
        for word in words:
            if word.plain:
                OmegaConf.update(config, word.key, word.value, merge=True)


def _may_depend(raw: Point, keys: Iterable[str]) -> bool:
    parts = {part for key in keys for part in key.split(".")}
    texts = [text for _, value in flat(raw) if "${" in (text := str(value))]
    return any(part in text for part in parts for text in texts)


def _container(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    found = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=resolve)
    return cast("dict[str, Any]", found)
