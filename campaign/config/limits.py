"""What values a configuration may take, beyond their types."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from functools import cache
from typing import Any

from campaign.cells.cell import flat
from campaign.config.closed import check_keys, fields_of, fitting
from campaign.config.keys import accelerator, benchmark, checkpoint, dataset, runs, site, slurm, storage
from campaign.config.schema import Campaign
from campaign.errors import UsageError, nearest
from jobs.model.conduct import Flat, Point
from jobs.model.settings import ranges

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}")  # stands in cell ids, file names and scripts
_NAMED = (*checkpoint.STORAGES, "benchmark", "dataset", "storage", "accelerator", "cluster", "site")
_PATHS = (
    "campaign_dir",
    "storage.root",
    "storage.node_root",
    "storage.device",
    "dataset.path",
    *(f"{key}.root" for key in checkpoint.STORAGES),
)
_GROUPS = (runs, benchmark, checkpoint, dataset, accelerator, storage, slurm, site)  # whose values must fit together
_CHOICES = (
    ("benchmark.name", benchmark.KEYS),
    ("cluster.name", (*slurm.HERE, *slurm.ON_SLURM)),
    ("accelerator.name", accelerator.NAMES),
)


@cache
def _own_ranges(kind: type, path: str) -> dict[str, tuple[float, float]]:
    return {f"{path}{key}": bounds for key, bounds in ranges(kind).items()}


def ranges_of(kind: type, node: Mapping[str, Any], path: str = "") -> dict[str, tuple[float, float]]:
    """Return the least and the greatest legal value of every number of a composed node, by its dotted key."""
    found = dict(_own_ranges(kind, path))
    for key, (how, kinds) in fields_of(kind)[1].items():
        if how == "one":
            found |= ranges_of(fitting(node[key], kinds), node[key], f"{path}{key}.")
    return found


_OF_A_STORAGE = ranges(storage.SiteStorage)


def check(point: Point) -> None:
    """Refuse a composed configuration whose keys or values cannot be meant."""
    check_keys(point)
    values = dict(flat(point))
    of_site = {f"site.storages.{name}": name for name in point["site"]["storages"]}
    of_storages = {f"{path}.{key}": limits for path in of_site for key, limits in _OF_A_STORAGE.items()}
    check_numbers(values, ranges_of(Campaign, point) | of_storages)
    _texts(
        values,
        {**{f"{key}.name": values[f"{key}.name"] for key in _NAMED if f"{key}.name" in values}, **of_site},
        (*_PATHS, *(f"{path}.root" for path in of_site)),
    )
    for key, legal in _CHOICES:
        if values[key] not in legal:
            raise UsageError(f"{key}={values[key]} is no {key.partition('.')[0]}", nearest(values[key], legal))
    slurm.check_words(point)
    for group in _GROUPS:
        group.check(values)


def check_numbers(
    values: Flat, ranges: Mapping[str, tuple[float, float]], nullable: Container[str] = frozenset()
) -> None:
    """Refuse a number out of its range; a key may be without a value, too, which is said of those in `nullable`."""
    for key, (least, most) in ranges.items():
        value = values.get(key)
        if value is not None and not least <= value <= most:
            null = ", or null" if key in nullable else ""
            raise UsageError(f"{key}={value} is out of range", f"legal: {least:g} to {most:g}{null}")


def _texts(values: Flat, names: Flat, paths: Iterable[str]) -> None:
    for key, name in names.items():
        if not _NAME.fullmatch(str(name)):
            raise UsageError(f"{key}={name!r} is not a valid name", "letters, digits and '_', at most 32")
    for key in paths:
        text = values.get(key)
        if text is not None and (not text.strip() or not text.isprintable()):
            raise UsageError(f"{key}={text!r} is no path", "name a folder, without line breaks")
