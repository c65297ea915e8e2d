"""Modules that declare something, found in their package: a new one needs no list."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def declared(package: str, name: str) -> list[Any]:
    """Return what each module of a package has under a name, in the order of the modules' names."""
    found = importlib.import_module(package)
    modules = [importlib.import_module(f"{package}.{each.name}") for each in pkgutil.iter_modules(found.__path__)]
    return [getattr(module, name) for module in modules if hasattr(module, name)]
