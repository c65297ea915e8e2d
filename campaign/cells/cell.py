"""Make a cell from a point of the grid: the settings that can change a result, and an id that never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import KEYS_OUTSIDE_CELL_ID
from jobs.model.conduct import Point
from jobs.model.record import Access
from jobs.model.settings import Settings, flat_items
from jobs.objects.address import canonical_address, split_device
from jobs.system.files import resolve_links

_HASH_DIGITS = 10
_ADDRESSES = ("storage.endpoint", "checkpoint.slow.root")  # addresses of servers, which can be spelled in several ways
_SHORT_KEYS = {"checkpoint.name": "checkpoint"}  # keys that a user types in a shorter form


@dataclass(frozen=True)
class Cell:
    """One benchmark with all its settings, measured by several runs."""

    id: str  # readable prefix and a hash of the settings; cells with equal settings have the same id
    benchmark: str
    version: int  # version of the benchmark, raised when its metrics change their meaning
    settings: Settings  # every setting that can change the result, as in the record; must not be changed
    # Settings that decide which jobs may use the storage at the same time (``shared``, ``exclusive``, ``license``), and
    # the storage's ``device``. They cannot change a result, so they are no part of the id.
    access: Access = field(default_factory=Access, compare=False)


def make_cell(point: Point) -> Cell:
    """Return the cell of a composed configuration, with the settings that can change its result."""
    benchmark = registry.benchmark_of(point)
    settings = benchmark.effective_settings(point)
    if settings.get("sync") == "allreduce" and point["site"]["trusted_network"]:
        settings["sync"] = "ring"  # servers without a password are safe on a trusted network
    if "path" in settings.get("dataset", {}) and "kind" not in settings["storage"]:
        # Two paths of the same folder must give the same id. (An object has only one key.)
        paths = {key: settings["dataset"].get(key) for key in ("path", "list")}
        settings["dataset"] = {
            **settings["dataset"],
            **{key: str(resolve_links(path)) for key, path in paths.items() if isinstance(path, str)},
        }
    access = cast(
        "Access", {key: point["storage"][key] for key in KEYS_OUTSIDE_CELL_ID["storage"] if key in point["storage"]}
    )
    slow = settings.get("checkpoint", {}).get("slow", {})
    if "://" in (slow.get("root") or ""):  # a bucket, whose device is no part of the id
        root, access["slow_device"] = split_device(slow["root"])
        settings["checkpoint"] = {**settings["checkpoint"], "slow": {**slow, "root": root}}
    values = dict(flat_items(settings))
    values |= {key: canonical_address(str(values[key])) for key in _ADDRESSES if "://" in str(values.get(key))}
    text = json.dumps({"version": benchmark.version, **values}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return Cell(f"{_readable_name(settings)}-{digest}", benchmark.name, benchmark.version, settings, access)


def _readable_name(settings: Settings) -> str:
    """Return the readable part of an id: the settings that users vary most."""
    words = registry.benchmark_of(settings).id_words(settings["benchmark"])
    words += [settings[key]["name"] for key in ("dataset", "storage") if key in settings]
    words += [settings["staging"]] if "staging" in settings else []
    numbers = {"threads": "t", "batch_size": "b", "prefetch": "p", "nodes": "n"}
    counts = [f"{sign}{settings[key]}" for key, sign in numbers.items() if key in settings]
    return "-".join([*words, *(count for count in counts if count != "n1")])


def distinguishing_settings(cells: Sequence[Cell]) -> dict[str, str]:
    """Return, by cell id, the settings that distinguish cells whose ids differ only in the hash.

    Cells whose ids differ in their readable part are left out. The root of a storage is left out if the names of the
    storages differ.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.id.rpartition("-")[0], []).append(cell)
    return {
        cell.id: settings
        for group in groups.values()
        if len(group) > 1
        for cell, settings in _settings_that_differ(group)
    }


def _settings_that_differ(cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    """Yield each cell with the settings in which some of the cells differ."""
    settings_of_cells = [dict(flat_items(cell.settings)) for cell in cells]
    keys_of_all = dict.fromkeys(key for settings in settings_of_cells for key in settings)
    values_of_key = {key: [settings[key] for settings in settings_of_cells if key in settings] for key in keys_of_all}
    is_partial = {key for key in values_of_key if key.endswith(".name") and len(values_of_key[key]) < len(cells)}
    keys = [
        key for key, values in values_of_key.items() if key in is_partial or any(value != values[0] for value in values)
    ]
    keys = [key for key in keys if not (key.endswith(".root") and f"{key.removesuffix('root')}name" in keys)]
    for cell, settings in zip(cells, settings_of_cells, strict=True):
        yield (
            cell,
            " ".join(f"{_SHORT_KEYS.get(key, key)}={_format_value(settings[key])}" for key in keys if key in settings),
        )


def _format_value(value: object) -> str:
    """Return a value as a user types it: ``null`` and ``true``, not ``None`` and ``True``."""
    return value if isinstance(value, str) else json.dumps(value)
