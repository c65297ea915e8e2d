"""A cell: one point of the grid, and the name it has for ever."""

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
from jobs.objects.address import split

_HASH_DIGITS = 10
_WORDS = {"checkpoint.name": "checkpoint"}  # as a command line has it


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
    """Take the settings out of a composed configuration and name them."""
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
    text = json.dumps({"version": benchmark.version, **dict(flat(settings))}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return Cell(f"{_readable(settings)}-{digest}", benchmark.name, benchmark.version, settings, access)


def _readable(settings: Settings) -> str:
    """Name what people vary."""
    words = registry.of(settings).words(settings["benchmark"])
    words += [settings[key]["name"] for key in ("dataset", "storage") if key in settings]
    words += [settings["staging"]] if "staging" in settings else []
    numbers = {"threads": "t", "batch_size": "b", "prefetch": "p", "nodes": "n"}
    counts = [f"{sign}{settings[key]}" for key, sign in numbers.items() if key in settings]
    return "-".join([*words, *(each for each in counts if each != "n1")])


def told_apart(cells: Sequence[Cell]) -> dict[str, str]:
    """Return by id the settings in which a cell differs from those whose ids differ from its own in the hash alone.

    Of storages their names alone, where these differ. Empty for a cell whose id is enough.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.id.rpartition("-")[0], []).append(cell)
    return {cell.id: words for alike in groups.values() if len(alike) > 1 for cell, words in _apart(alike)}


def _apart(cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    each = [dict(flat(cell.settings)) for cell in cells]
    every = dict.fromkeys(key for mine in each for key in mine)
    known = {key: [mine[key] for mine in each if key in mine] for key in every}
    names = {key for key in known if key.endswith(".name") and len(known[key]) < len(cells)}  # not all have that
    keys = [key for key, values in known.items() if key in names or any(value != values[0] for value in values)]
    keys = [key for key in keys if not (key.endswith(".root") and f"{key.removesuffix('root')}name" in keys)]
    for cell, mine in zip(cells, each, strict=True):
        yield cell, " ".join(f"{_WORDS.get(key, key)}={_typed(mine[key])}" for key in keys if key in mine)


def _typed(value: object) -> str:
    """Return a value as it is typed on the command line: ``null`` and ``true``, not ``None`` and ``True``."""
    return value if isinstance(value, str) else json.dumps(value)
