"""Read the declarations of settings from Structs.

A field of a Struct declares the type, the range and the default of a setting. The `Setting` in the annotation of the
field declares the help text and the unit.
"""

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
"""Marks a setting that has no default: a choice, the site or the user must give a value."""


class Setting(NamedTuple):
    """The help text and other facts of a setting that the type of the field cannot express."""

    help: str  # a noun phrase in lower case; if the setting is a choice, the text explains every legal word
    unit: str = ""  # the unit of a number, for example ``seconds``
    smoke: Any = None  # the default for ``+size=smoke``; None: the normal default
    cell: bool = True  # whether the value is part of the id of a cell


class Keys(msgspec.Struct, forbid_unknown_fields=True):
    """The settings of one node of the configuration."""


@dataclass(frozen=True)
class DeclaredSetting:
    """A setting with everything that the field of its Struct declares."""

    name: str
    type: Any
    default: Any
    setting: Setting
    bounds: tuple[float, float] | None  # the smallest and the largest legal number; None if there is no range
    words: tuple[str, ...]  # the legal words of a choice; empty if the setting is not a choice
    scalar: type  # `int`, `float`, `bool` or `str`; `list`; or `dict` for nodes by name
    items: type  # the type of the items of a list; equal to `scalar` if the setting is not a list
    node: type[Keys] | None  # the type of a node, or of the nodes of a mapping; None if the setting is a plain value

    @property
    def nullable(self) -> bool:
        """Return whether null is a legal value."""
        return type(None) in get_args(self.type) or type(None) in get_args(_without_none(self.type))

    @property
    def legal_type(self) -> str:
        """Return a description of the legal type, for example "whole number"."""
        return _EXAMPLES.get(self.scalar, _KINDS[self.scalar])

    @property
    def legal(self) -> str:
        """Return a description of the legal values, for example "1 to 1,024 nodes, or null"."""
        null = ", or null" if self.nullable else ""
        if self.bounds:
            smallest, largest = map(plain_number, self.bounds)
            return f"{smallest} to {largest} {self.setting.unit}".rstrip() + null
        return (", ".join(self.words) or self.legal_type) + null

    def read(self, value: Any) -> Any:
        """Convert a value to the type of the setting: 1 becomes ``1.0`` for a float and ``"1"`` for a text.

        Raises ValueError with two arguments: what is wrong with the value, and what the user can do.
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
    """Return a number as text, with all digits and with thousands separators: 1,000,000,000, not 1e+09."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _cast(value: Any, scalar: type) -> Any:
    """Convert a value that YAML read as another type: the account 4711 becomes a text, 1 becomes true."""
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
    """Return the settings of a Struct by name, in the order of the fields of the Struct."""
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
    """Yield a type hint, the metadata of the hint (``Annotated``), and the parts of the hint with their metadata."""
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
    """Return the defaults of a Struct's settings as plain values, without the settings that have no default."""
    return {**_defaults(kind)}


def find_declared(package: str, name: str) -> list[Any]:
    """Return the values of a variable `name` from all modules of a package that define the variable.

    The values are in the order of the names of the modules.
    """
    parent = importlib.import_module(package)
    modules = [importlib.import_module(f"{package}.{info.name}") for info in pkgutil.iter_modules(parent.__path__)]
    return [getattr(module, name) for module in modules if hasattr(module, name)]
