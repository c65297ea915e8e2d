"""Make a cell of a point of the grid: its settings, and an id that never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import OUTSIDE
from jobs.model.conduct import Point
from jobs.model.record import Access
from jobs.model.settings import Settings, flat
from jobs.objects.address import canonical, split

_HASH_DIGITS = 10
_ADDRESSES = ("storage.endpoint", "checkpoint.slow.root")  # each has several spellings
_SHORT_KEYS = {"checkpoint.name": "checkpoint"}  # as a command line has it


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    id: str  # readable prefix and a hash of the settings; equal settings, equal id
    benchmark: str
    version: int  # of what the benchmark's figures mean
    settings: Settings  # every setting that can change the result, as in the record; read only
    # How jobs are kept apart on the storage (``shared``, ``exclusive``, ``license``) and where its ``device`` is seen.
    # It cannot change a result, so it is no part of what a cell is.
    access: Access = field(default_factory=Access, compare=False)


def make_cell(point: Point) -> Cell:
    """Return the cell of a composed configuration: the settings that can change its result, and their id."""
    benchmark = registry.of(point)
    settings = benchmark.acting(point)
    if settings.get("sync") == "allreduce" and point["site"]["trusted_network"]:
        settings["sync"] = "ring"  # by servers that ask for no secret: nobody else reaches the nodes
    if "path" in settings.get("dataset", {}) and "kind" not in settings["storage"]:
        # The same folder is the same dataset from wherever it is named; a key of an object store is what it is.
        places = {key: settings["dataset"].get(key) for key in ("path", "list")}
        settings["dataset"] = {
            **settings["dataset"],
            **{key: str(Path(place).expanduser().resolve()) for key, place in places.items() if isinstance(place, str)},
        }
    access = cast("Access", {key: point["storage"][key] for key in OUTSIDE["storage"] if key in point["storage"]})
    slow = settings.get("checkpoint", {}).get("slow", {})
    if "://" in (slow.get("root") or ""):  # of a bucket, whose device is no part of a cell either
        root, access["slow_device"] = split(slow["root"])
        settings["checkpoint"] = {**settings["checkpoint"], "slow": {**slow, "root": root}}
    values = dict(flat(settings))
    values |= {key: canonical(str(values[key])) for key in _ADDRESSES if "://" in str(values.get(key))}
    text = json.dumps({"version": benchmark.version, **values}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return Cell(f"{_readable_name(settings)}-{digest}", benchmark.name, benchmark.version, settings, access)


def _readable_name(settings: Settings) -> str:
    """Return the settings that people vary most as the readable part of an id."""
    words = registry.of(settings).words(settings["benchmark"])
    words += [settings[key]["name"] for key in ("dataset", "storage") if key in settings]
    words += [settings["staging"]] if "staging" in settings else []
    numbers = {"threads": "t", "batch_size": "b", "prefetch": "p", "nodes": "n"}
    counts = [f"{sign}{settings[key]}" for key, sign in numbers.items() if key in settings]
    return "-".join([*words, *(each for each in counts if each != "n1")])


def distinguishing_settings(cells: Sequence[Cell]) -> dict[str, str]:
    """Return by id the settings that tell a cell from others whose ids differ in the hash alone.

    Of storages their names alone, where these differ. Empty for a cell whose id is enough.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.id.rpartition("-")[0], []).append(cell)
    return {
        cell.id: words for alike in groups.values() if len(alike) > 1 for cell, words in _settings_that_differ(alike)
    }


def _settings_that_differ(cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    """Yield each cell with the settings in which some of the cells differ."""
    settings_of_cells = [dict(flat(cell.settings)) for cell in cells]
    keys_of_all = dict.fromkeys(key for settings in settings_of_cells for key in settings)
    values_of_key = {key: [settings[key] for settings in settings_of_cells if key in settings] for key in keys_of_all}
    names = {
        key for key in values_of_key if key.endswith(".name") and len(values_of_key[key]) < len(cells)
    }  # not all have that
    keys = [key for key, values in values_of_key.items() if key in names or any(value != values[0] for value in values)]
    keys = [key for key in keys if not (key.endswith(".root") and f"{key.removesuffix('root')}name" in keys)]
    for cell, settings in zip(cells, settings_of_cells, strict=True):
        yield (
            cell,
            " ".join(f"{_SHORT_KEYS.get(key, key)}={_format_value(settings[key])}" for key in keys if key in settings),
        )


def _format_value(value: object) -> str:
    """Return a value as a user types it: ``null`` and ``true``, not ``None`` and ``True``."""
    return value if isinstance(value, str) else json.dumps(value)
