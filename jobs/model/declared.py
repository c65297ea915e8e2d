"""Declarations of settings: a field of a Struct has type, range and default, its `Setting` has the texts."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

MISSING: Any = "???"
"""The default of a setting without a default: a choice, the site or the user must give a value."""


class Setting(NamedTuple):
    """The texts of a setting; its field has the type, the range (``msgspec.Meta``) and the default."""

    help: str  # a noun phrase in lower case; for a choice with the meaning of each word
    unit: str = ""  # of a number, for example ``seconds``
    smoke: Any = None  # the default with ``+size=smoke``; None: the same default
    cell: bool = True  # whether it is part of a cell's id


class Keys(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of one node."""


@dataclass(frozen=True)
class DeclaredSetting:
    """A setting as its Struct declares it."""

    name: str
    type: Any
    default: Any
    setting: Setting
    bounds: tuple[float, float] | None  # the smallest and the largest legal number
    words: tuple[str, ...]  # the legal words; empty if the setting is no choice
    scalar: type  # `int`, `float`, `bool` or `str`; `list`, or `dict` of nodes by name
    items: type  # the type of the items of a list; else as `scalar`
    node: type[Keys] | None  # the type of a node, or of the nodes of a mapping; None for a value

    @property
    def nullable(self) -> bool:
        """Return whether null is a legal value."""
        return type(None) in get_args(self.type) or type(None) in get_args(_without_none(self.type))

    @property
    def legal_type(self) -> str:
        """Return the legal type of a value as text."""
        return _EXAMPLES.get(self.scalar, _KINDS[self.scalar])

    @property
    def legal(self) -> str:
        """Return the legal values as text, a range with its unit."""
        null = ", or null" if self.nullable else ""
        if self.bounds:
            smallest, largest = map(plain_number, self.bounds)
            return f"{smallest} to {largest} {self.setting.unit}".rstrip() + null
        return (", ".join(self.words) or self.legal_type) + null

    def read(self, value: Any) -> Any:
        """Return a value in the type of the setting: 1 becomes ``1.0`` for a float and ``"1"`` for a text.

        Raises ValueError with two arguments: what is wrong with the value, and the cure.
        """
        try:
            return msgspec.to_builtins(msgspec.convert(self._cast(value), self.type))
        except msgspec.ValidationError:
            pass
        if self.bounds and isinstance(self._cast(value), int | float) and not isinstance(value, bool):
            raise ValueError("is out of range", f"legal: {self.legal}")
        if self.words:
            similar = difflib.get_close_matches(str(value), self.words, n=1)
            cure = f"did you mean '{similar[0]}'?" if similar else f"legal: {self.legal}"
            raise ValueError(f"is none of {', '.join(self.words)}", cure)
        fault = "is neither true nor false" if self.scalar is bool else f"is no {_KINDS[self.scalar]}"
        raise ValueError(fault, f"legal: {self.legal}")

    def _cast(self, value: Any) -> Any:
        if self.scalar is list and isinstance(value, list):
            return [_cast(item, self.items) for item in value]
        return _cast(value, self.scalar)


_KINDS = {int: "whole number", float: "number", bool: "true or false", str: "text", list: "list", dict: "mapping"}
_EXAMPLES = {list: "list, as in one,other", dict: "mapping, as in {key: value}"}


def plain_number(value: float) -> str:
    """Return a number in full, with a comma after every three digits: 1,000,000,000, not 1e+09."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _cast(value: Any, scalar: type) -> Any:
    """Return a value in the declared type if YAML read it as another type: an account 4711 is a text, 1 is true."""
    if scalar is str and type(value) in (int, float):
        return str(value)
    if scalar is bool and type(value) is int and value in (0, 1):
        return bool(value)
    if scalar is int and type(value) is float and value.is_integer():
        return int(value)
    if scalar in (int, float) and type(value) is str:
        try:
            return scalar(value)
        except ValueError:
            return value
    return value


@cache
def declared_settings(kind: type[msgspec.Struct]) -> Mapping[str, DeclaredSetting]:
    """Return the settings of a Struct by name, in its order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _declare_field(field, hints[field.name]) for field in msgspec.structs.fields(kind)}


def _declare_field(field: msgspec.structs.FieldInfo, hint: Any) -> DeclaredSetting:
    factory = field.default_factory
    default = field.default if factory is msgspec.NODEFAULT else factory()
    parts = [*_parts_of_hint(hint)]
    setting = next((part for part in parts if isinstance(part, Setting)), Setting(""))
    meta = next((part for part in parts if isinstance(part, msgspec.Meta)), None)
    bounds = (float(meta.ge), float(meta.le)) if meta and meta.ge is not None and meta.le is not None else None
    words = next((get_args(part) for part in parts if get_origin(part) is Literal), ())
    node = next((part for part in parts if isinstance(part, type) and issubclass(part, Keys)), None)
    kinds = [get_origin(part) or part for part in parts]
    scalar = (
        str
        if words
        else next((scalar_type for scalar_type in (dict, list, bool, int, float, str) if scalar_type in kinds), dict)
    )
    items = next((item_type for item_type in (bool, int, float, str) if item_type in kinds), scalar)
    return DeclaredSetting(field.name, hint, default, setting, bounds, words, scalar, items, node)


def _parts_of_hint(hint: Any) -> Iterator[Any]:
    """Yield a type hint, its metadata (``Annotated``), and those of its parts."""
    yield hint
    yield from getattr(hint, "__metadata__", ())
    if get_origin(hint) is not Literal:
        for part in (_without_none(hint),) if hasattr(hint, "__metadata__") else get_args(hint):
            yield from _parts_of_hint(part)


def _without_none(hint: Any) -> Any:
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        name: msgspec.to_builtins(setting.default)
        for name, setting in declared_settings(kind).items()
        if setting.default != MISSING
    }


def declared_defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of a Struct's settings as plain values; a setting without a default is left out."""
    return {**_defaults(kind)}


def find_declared(package: str, name: str) -> list[Any]:
    """Return the value of a name in each module of a package that has it, in the order of the modules' names."""
    parent = importlib.import_module(package)
    modules = [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(parent.__path__)]
    return [getattr(module, name) for module in modules if hasattr(module, name)]
