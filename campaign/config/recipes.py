"""Choose the recipes that reproduce a whole paper on the storages of a site."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from omegaconf import OmegaConf

from jobs.benchmarks import registry
from jobs.model.declared import declared_settings

_FIRST = "table1"  # the recipe of the baselines, measured first, because other recipes are judged by the baselines
PAPERS = {"chien2018": "fig", "tfdarshan": "tfdarshan_"}
"""The papers that can be reproduced, each with the prefix of the names of its recipes."""
_DEFAULT_BENCHMARK = "micro"  # benchmark of a recipe that names no benchmark
_IMAGE_KEYS = ("batch_size", "cache", "iterations", "prefetch")  # keys that act only if a benchmark reads images
_LOCAL = "local"  # the storage that is used if the site has no storages
_BUFFER, _SIDES = "burst_buffer", ("optane", "hdd")  # the storages that conf/checkpoint/burst_buffer.yaml names
_CHOICE = re.compile(r"storage=(\w+(?:,\w+)*)(?<!=site)")


@dataclass(frozen=True)
class Recipe:
    """A recipe of conf/paper: its benchmark, and the storages that it names."""

    name: str
    benchmark: str
    storage: str | None  # storage of the images; None if the recipe measures all storages of the site
    targets: tuple[str, ...]  # checkpoint targets; empty if the recipe saves no checkpoints

    def accepted_overrides(self, overrides: Sequence[str]) -> list[str]:
        """Return the overrides that affect this recipe.

        For example, ``accelerator=…`` does not affect a baseline, and ``checkpoint.…`` affects only recipes that save.
        """
        return [override for override in overrides if self._accepts(*_group_and_key(override))]

    def _accepts(self, group: str, key: str) -> bool:
        if group == "benchmark":
            return key in _benchmark_keys(self.benchmark)
        if group == "checkpoint":
            return bool(self.targets)
        benchmark = registry.benchmarks()[_read_benchmark(self.benchmark)["name"]]
        return benchmark.computes if group == "accelerator" else group not in _IMAGE_KEYS or benchmark.data == "images"


def list_recipes(papers: Collection[str] = ("chien2018",)) -> list[Recipe]:
    """Return the recipes of these papers: first the baseline, which all papers need, then the figures in order."""
    recipes = [_read_recipe(file) for file in (files("conf") / "paper").iterdir() if file.name.endswith(".yaml")]
    of_papers = [
        recipe
        for recipe in recipes
        if recipe.name == _FIRST or recipe.name.startswith(tuple(PAPERS[name] for name in papers))
    ]
    return sorted(
        of_papers,
        key=lambda recipe: (recipe.name != _FIRST, recipe.name.partition("fig")[0], len(recipe.name), recipe.name),
    )


def _read_recipe(file: Traversable) -> Recipe:
    """Read a recipe from its file."""
    node = _read_with_bases("paper", file.name.removesuffix(".yaml"))
    choices = {key: value for entry in node.defaults if not isinstance(entry, str) for key, value in entry.items()}
    targets = str(OmegaConf.select(node, "hydra.sweeper.params.checkpoint", default=""))
    return Recipe(
        file.name.removesuffix(".yaml"),
        choices.get("override /benchmark", _DEFAULT_BENCHMARK),
        choices.get("override /storage"),
        tuple(filter(None, targets.split(","))),
    )


def _read_with_bases(group: str, name: str) -> Any:
    """Read a file of conf/, merged over its bases: the files of the same group that its defaults list names."""
    node: Any = OmegaConf.create((files("conf") / group / f"{name}.yaml").read_text(encoding="utf-8"))
    bases = [entry for entry in node.defaults if isinstance(entry, str) and entry != "_self_" and "/" not in entry]
    for base in bases:
        base_node = _read_with_bases(group, base)
        node = OmegaConf.merge(base_node, node, {"defaults": [*base_node.defaults, *node.defaults]})
    return node


@lru_cache
def _read_benchmark(benchmark: str) -> Any:
    """Read the file of a choice in conf/benchmark, merged over its bases."""
    return _read_with_bases("benchmark", benchmark)


def _benchmark_keys(benchmark: str) -> frozenset[str]:
    """Return the names of the keys that only this benchmark has."""
    return frozenset(declared_settings(registry.benchmarks()[_read_benchmark(benchmark)["name"]].keys))


@dataclass(frozen=True)
class SiteStorages:
    """The storages of a site, and the storages that the user chose to read from."""

    site: tuple[str, ...]  # names of all storages of the site; snapshots may be saved to each storage
    chosen: tuple[str, ...] = ()  # names on the command line; if empty, images are read from all storages

    @property
    def read(self) -> tuple[str, ...]:
        """Return the names of the storages from which images are read."""
        return self.chosen or self.site or (_LOCAL,)


def take_storage_choice(overrides: Sequence[str], site: Sequence[str]) -> tuple[list[str], SiteStorages]:
    """Take ``storage=hdd,ssd`` out of the user's overrides; return the other overrides, and the storages of the site.

    If there are several overrides of the storage, all overrides are returned unchanged.
    """
    choices = [override for override in overrides if _group_and_key(override)[0] == "storage"]
    if len(choices) != 1 or not (match := _CHOICE.fullmatch(choices[0])):
        return list(overrides), SiteStorages(tuple(site))
    return [override for override in overrides if override not in choices], SiteStorages(
        tuple(site), tuple(match[1].split(","))
    )


def recipe_overrides(recipe: Recipe, overrides: Sequence[str], site_storages: SiteStorages) -> list[str]:
    """Return the overrides that compose a recipe on the storages of a site.

    A storage or a checkpoint target in the user's own `overrides` takes precedence.
    """
    groups = {_group_and_key(override)[0] for override in overrides}
    read_storages = [] if "storage" in groups else _storages_to_read(recipe, site_storages)
    targets = [] if "checkpoint" in groups else _available_targets(recipe, site_storages.site)
    return [
        f"+paper={recipe.name}",
        *_choice_overrides("storage", read_storages),
        *_choice_overrides("checkpoint", targets),
    ]


def replacing_storage(recipe: Recipe, overrides: Sequence[str], site_storages: SiteStorages) -> str | None:
    """Return the storage that is read in place of the storage that a recipe names; None if nothing is replaced."""
    if recipe.storage is None or any(_group_and_key(override)[0] == "storage" for override in overrides):
        return None
    return next(iter(_storages_to_read(recipe, site_storages)), None)


def missing_targets(recipe: Recipe, overrides: Sequence[str], site_storages: SiteStorages) -> list[str]:
    """Return the checkpoint targets that a recipe names and the site does not have."""
    available = (
        []
        if any(_group_and_key(override)[0] == "checkpoint" for override in overrides)
        else _available_targets(recipe, site_storages.site)
    )
    return [target for target in recipe.targets if target not in available] if available else []


def _choice_overrides(group: str, names: Sequence[str]) -> list[str]:
    """Return a list with ``GROUP=NAME,NAME``, or an empty list if there are no names."""
    return [f"{group}={','.join(names)}"] if names else []


def _group_and_key(word: str) -> tuple[str, str]:
    """Return the group and the key of an override, such as ``storage`` and ``root`` of ``+storage.root=/x``."""
    group, _, key = word.lstrip("+~").partition("=")[0].partition(".")
    return group, key


def _storages_to_read(recipe: Recipe, site_storages: SiteStorages) -> Sequence[str]:
    """Return the storages that the command for a recipe must name.

    The list is empty if the recipe names a storage that is available. If that storage is not available, another storage
    replaces it. If the recipe names no storage, the list has all storages to read from.
    """
    if recipe.storage in site_storages.read:
        return []
    return site_storages.read if recipe.storage is None else site_storages.read[:1]


def _available_targets(recipe: Recipe, storages: Sequence[str]) -> list[str]:
    """Return the checkpoint targets that replace the recipe's targets, or an empty list if the site has all targets."""
    has_buffer = all(side in storages for side in _SIDES)
    targets = [
        target for target in recipe.targets if target in ("none", *storages) or (target == _BUFFER and has_buffer)
    ]
    if targets == list(recipe.targets):
        return []
    return targets if set(targets) - {"none"} else [*targets, *(storages or [_LOCAL])]
