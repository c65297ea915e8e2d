"""Compose the points of a grid: Hydra's grammar reads the overrides, and all combinations of their values are points.

Hydra needs about 0.1 s to compose a point, and the points of a grid differ mostly in plain values. So Hydra composes
only one point for each combination of all other overrides (groups, added and deleted keys, lists and mappings). Plain
values are then set in this point with the function that Hydra uses (``OmegaConf.update``). Tests compare the result
with points that Hydra composed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from hydra.core.override_parser.types import Glob, Override, ValueType
from omegaconf import DictConfig, OmegaConf, open_dict

from campaign.config.composer import Composer, explain_errors
from campaign.config.tree import CHOICES, LISTS, convert_point, convert_value, find_declaration, require_keys
from campaign.console import iterate_with_progress
from campaign.errors import UsageError
from jobs.model.conduct import Point
from jobs.model.declared import MISSING
from jobs.model.settings import flat_items
from jobs.parser import nearest_hint

# Overrides with whole numbers: this expression parses them 50 times faster than Hydra's parser.
_WHOLE_NUMBER = re.compile(r"([a-z_][a-z0-9_.]*)=(0|-?[1-9][0-9]{0,17})")
_GROUP_PREFIXES = tuple(f"{group}." for group in CHOICES)


class Assignment(NamedTuple):
    """One value for one key or group in a point; a `plain` value is a scalar that depends on no other assignment."""

    text: str  # the override for Hydra
    key: str  # the dotted key, or the group
    value: Any = None
    plain: bool = False


Expansion = Callable[[Assignment], Sequence[Assignment]]
"""A function that replaces an assignment of the user by the assignments that Hydra reads."""
_Values = list[tuple[Assignment, ...]]
"""All values of one override of a grid; each value is a tuple of assignments for Hydra."""


def compose_points(
    composer: Composer, overrides: Sequence[str], expand: Expansion = lambda assignment: [assignment]
) -> Iterator[Point]:
    """Yield the points of a grid as plain containers, with interpolations resolved; raises UsageError.

    Points share their equal parts, so a caller must not change a point.
    """
    reader = _OverrideReader(composer, expand)
    master, fixed = _compose_unswept(composer, reader.values_of_all(overrides))
    params = OmegaConf.select(master, "hydra.sweeper.params") or {}
    values = reader.values_of_all([*(f"{key}={value}" for key, value in params.items()), *overrides])
    swept_keys = {choices[0][0].key for choices in values if len(choices) > 1}
    bases: dict[tuple[object, ...], _ComposedBase] = {}
    for assignments in iterate_with_progress(list(_combine_values(composer, values)), "composing cells"):
        plain, others = reader.split_plain(assignments)
        swept = [assignment for assignment in plain if assignment.key in swept_keys]
        constant = tuple(assignment for assignment in plain if assignment.key not in swept_keys)
        key = (others, constant, *(assignment.key for assignment in swept))
        if key not in bases:
            config = master if others == fixed and not bases else composer.compose(others)
            _set_plain_values(config, constant)
            bases[key] = _ComposedBase(config, swept)
        yield bases[key].with_values(swept)


def single_assignments(composer: Composer, overrides: Sequence[str], lists: Collection[str]) -> list[str]:
    """Return the overrides in the form for Hydra; raises UsageError if a key has several values.

    `lists` are the keys whose values are lists.
    """
    values = _OverrideReader(composer, lambda assignment: [assignment], lists).values_of_all(overrides)
    if swept_keys := [choices[0][0].key for choices in values if len(choices) != 1]:
        raise UsageError(f"{swept_keys[0]} has several values", f"give {swept_keys[0]} one value")
    return [choices[0][0].text for choices in values]


class _OverrideReader:
    """Reads overrides by Hydra's grammar."""

    def __init__(self, composer: Composer, expand: Expansion, lists: Collection[str] = LISTS) -> None:
        self._composer, self._expand, self._lists = composer, expand, lists
        self._assignment = cache(self._read_assignment)
        self._independent = cache(_is_independent)

    def values_of_all(self, words: Sequence[str]) -> list[_Values]:
        """Return the values of each override. If a key is given twice, its last value counts.

        The order is that of the first occurrence of each key.
        """
        overrides = {override.get_key_element(): override for override in map(self._composer.parse, words)}
        return [
            [tuple(self._expand(self._assignment(text))) for text in self._value_texts(override)]
            for override in overrides.values()
        ]

    def split_plain(self, assignments: Sequence[Assignment]) -> tuple[list[Assignment], tuple[str, ...]]:
        """Return the plain assignments of a point, and the texts of all other assignments, which Hydra composes."""
        others = frozenset(
            assignment.key
            for assignment in assignments
            if not assignment.plain and not self._composer.options(assignment.key)
        )
        plain = [
            assignment for assignment in assignments if assignment.plain and self._independent(assignment.key, others)
        ]
        return plain, tuple(assignment.text for assignment in assignments if assignment not in plain)

    def _value_texts(self, override: Override) -> Iterator[str]:
        """Yield one ``KEY=VALUE`` for each value of an override; raises UsageError for an endless range."""
        key = override.get_key_element()
        if override.key_or_group in self._lists and (items := _list_items(override)) is not None:
            yield f"{key}=[{','.join(items)}]"
        elif not override.is_sweep_override():
            yield f"{key}={override.get_value_element_as_str()}"
        elif override.value_type == ValueType.GLOB_CHOICE_SWEEP:
            names = cast("Glob", override.value()).filter(sorted(self._composer.options(override.key_or_group)))
            yield from (f"{key}={name}" for name in names)
        elif override.is_discrete_sweep():
            yield from (f"{key}={value}" for value in override.sweep_string_iterator())
        else:
            raise UsageError(f"{override.input_line} names no single values", f"name the values: {key}=1,2")

    def _read_assignment(self, text: str) -> Assignment:
        """Return the assignment of an override with one value."""
        if (number := _WHOLE_NUMBER.fullmatch(text)) and not self._composer.options(number[1]):
            return Assignment(text, number[1], int(number[2]), plain=True)
        override = self._composer.parse(text)
        key = override.key_or_group
        plain = _is_plain(override) and not self._composer.options(key)
        return Assignment(text, key, override.value() if plain else None, plain)


def _list_items(override: Override) -> list[str] | None:
    """Return the items of a list that is typed without brackets, such as ``gcc,cuda``; None for any other value."""
    if override.value_type == ValueType.SIMPLE_CHOICE_SWEEP:
        is_sweep = any(value is None or isinstance(value, list) for value in override.sweep_iterator())
        return None if is_sweep else [*override.sweep_string_iterator()]
    plain = override.value_type == ValueType.ELEMENT and isinstance(override.value(), str | int | float)
    return [override.get_value_element_as_str()] if plain else None


def _is_independent(key: str, other_keys: frozenset[str]) -> bool:
    """Return whether none of the other keys is equal to this key, below this key or above this key."""
    return not any(f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.") for other in other_keys)


def _is_plain(override: Override) -> bool:
    """Return whether an override sets one key to a scalar that depends on no other key."""
    if override.is_delete() or override.is_add() or override.is_force_add() or override.package is not None:
        return False
    value = override.value()
    return not isinstance(value, (dict, list)) and not (isinstance(value, str) and ("${" in value or value == MISSING))


def _compose_unswept(composer: Composer, values: Sequence[_Values]) -> tuple[DictConfig, tuple[str, ...]]:
    """Compose the overrides that have one value, such as a recipe; return the configuration and the texts for Hydra.

    Overrides like ``checkpoint.every=10`` are left out, because ``checkpoint`` may have several choices, and a choice
    may lack the key.
    """
    fixed = [
        choices[0] for choices in values if len(choices) == 1 and not choices[0][0].text.startswith(_GROUP_PREFIXES)
    ]
    assignments = _order_assignments(fixed)
    others = tuple(assignment.text for assignment in assignments if not assignment.plain)
    master = composer.compose(others)
    _set_plain_values(master, assignments)
    return master, others


def _combine_values(composer: Composer, values: Sequence[_Values]) -> Iterator[tuple[Assignment, ...]]:
    """Yield the assignments of each grid point; leave out keys that the choices of the point do not have.

    For example, in ``checkpoint=none,hdd checkpoint.every=10`` the second override only affects ``hdd``.
    """
    all_assignments = {assignment for choices in values for choice in choices for assignment in choice}
    without_effect: dict[Assignment, set[Assignment]] = {}  # for each choice, the assignments whose key it lacks
    for group in CHOICES:
        choices = {assignment for assignment in all_assignments if assignment.text.startswith(f"{group}=")}
        of_keys = {assignment for assignment in all_assignments if assignment.text.startswith(f"{group}.")}
        if len(choices) < 2 or not of_keys:  # noqa: PLR2004 - one choice is no sweep
            continue
        keys = {choice: _keys_of_choice(composer.compose([choice.text]), group) for choice in choices}
        if unknown := {assignment.key for assignment in of_keys}.difference(*keys.values()):
            raise UsageError(f"unknown key '{min(unknown)}'", nearest_hint(min(unknown), set().union(*keys.values())))
        without_effect |= {
            choice: {assignment for assignment in of_keys if assignment.key not in keys[choice]} for choice in choices
        }
    for combination in itertools.product(*values):
        assignments = _order_assignments(combination)
        if without_effect:
            left_out = set().union(*(without_effect.get(assignment, ()) for assignment in assignments))
            assignments = tuple(assignment for assignment in assignments if assignment not in left_out)
        yield assignments


def _order_assignments(combination: Sequence[tuple[Assignment, ...]]) -> tuple[Assignment, ...]:
    """Return the assignments of a point: first implied assignments, then the user's own, which take precedence."""
    implied = tuple(assignment for choice in combination for assignment in choice[1:])
    return implied + tuple(choice[0] for choice in combination)


def _keys_of_choice(config: DictConfig, group: str) -> set[str]:
    """Return the dotted keys of a choice of a group, or an empty set if the choice has only a name."""
    node = _to_container(config[group], resolve=False)
    keys = {f"{group}.{key}" for key in node} | {key for key, _ in flat_items(node, f"{group}.")}
    return keys if len(node) > 1 else set()


class _ComposedBase:
    """A composed configuration for all points that differ from it only in the plain values of the same keys."""

    def __init__(self, config: DictConfig, plain_assignments: Sequence[Assignment]) -> None:
        with open_dict(config):
            config.pop("hydra", None)
        self._config = config
        _set_plain_values(config, plain_assignments)
        # Interpolations are resolved once for all points, unless an interpolation may depend on a plain key.
        raw = _to_container(config, resolve=False)
        require_keys(raw)
        depends = _depends_on_keys(raw, [assignment.key for assignment in plain_assignments])
        self._resolved = None if depends else self._typed_container()
        self._typed = lru_cache(maxsize=None, typed=True)(self._typed_value)  # 1, 1.0 and True are three values

    def with_values(self, assignments: Sequence[Assignment]) -> Point:
        """Return the configuration with the values of these plain assignments."""
        if self._resolved is None:
            _set_plain_values(self._config, assignments)
            return self._typed_container()
        point = dict(self._resolved)
        for assignment in assignments:
            node, (*path, last) = point, assignment.key.split(".")
            for part in path:
                node[part] = node = dict(node[part])
            node[last] = self._typed(assignment.key, assignment.value)
        return point

    def _typed_container(self) -> Point:
        with explain_errors():
            return convert_point(_to_container(self._config))

    def _typed_value(self, key: str, value: Any) -> Any:
        declaration = find_declaration(cast("dict[str, Any]", self._resolved), key)
        return convert_value(value, declaration, key) if declaration else value


def _set_plain_values(config: DictConfig, assignments: Iterable[Assignment]) -> None:
    """Set the scalars of the plain assignments (`Assignment.plain`) in a configuration."""
    with explain_errors():
        for assignment in assignments:
            if assignment.plain:
                OmegaConf.update(config, assignment.key, assignment.value, merge=True)


def _depends_on_keys(raw: Point, keys: Iterable[str]) -> bool:
    """Return whether an interpolation contains a part of a key, so that its value may depend on the key."""
    parts = {part for key in keys for part in key.split(".")}
    texts = [text for _, value in flat_items(raw) if "${" in (text := str(value))]
    return any(part in text for part in parts for text in texts)


def _to_container(config: DictConfig, *, resolve: bool = True) -> dict[str, Any]:
    """Return a configuration as plain dictionaries and lists."""
    container = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=resolve)
    return cast("dict[str, Any]", container)
