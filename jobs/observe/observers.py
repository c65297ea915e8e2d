"""All observers of a run: those of the modules of this package that have an ``OBSERVER``."""

from __future__ import annotations

from functools import lru_cache

from jobs.observe.observer import Observer
from jobs.system.modules import declared


@lru_cache(maxsize=1)
def observers() -> list[type[Observer]]:
    """Return the observers in the order in which they start."""
    found: list[type[Observer]] = declared("jobs.observe", "OBSERVER")
    owners = {key: owner for owner in found for key in owner.gives}
    for owner in found:
        if others := [key for key in owner.gives if owners[key] is not owner]:
            raise TypeError(f"{owner.__name__} and {owners[others[0]].__name__} both give {others[0]}")
    return sorted(found, key=lambda each: each.place)
