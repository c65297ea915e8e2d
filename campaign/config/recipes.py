"""Choose the grids that make a whole paper, on the storages that a site has."""

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
from jobs.model.declared import declared

_FIRST = "table1"  # measured first: it is what the others are judged by
PAPERS = {"chien2018": "fig", "tfdarshan": "tfdarshan_"}
"""The papers that can be reproduced, and what the names of their recipes begin with; others have no figures."""
_PLAIN = "micro"  # the benchmark of a recipe that names none
_OF_IMAGES = ("batch_size", "cache", "iterations", "prefetch")  # groups that only benchmarks that read images take
_LOCAL = "local"  # of a site that says nothing of its storages
_BUFFER, _SIDES = "burst_buffer", ("optane", "hdd")  # the storages that conf/checkpoint/burst_buffer.yaml names
_CHOICE = re.compile(r"storage=(\w+(?:,\w+)*)(?<!=site)")


@dataclass(frozen=True)
class Recipe:
    """A file of conf/paper, and the storages that it asks for."""

    name: str
    benchmark: str
    storage: str | None  # where its images are to lie; None where any will do, so that all are measured
    targets: tuple[str, ...]  # of its checkpoints; empty where it saves none

    def accepted_overrides(self, overrides: Sequence[str]) -> list[str]:
        """Return the overrides that this recipe can use: a baseline trains nothing, and not every training saves."""
        return [override for override in overrides if self._accepts(*_group_and_key(override))]

    def _accepts(self, group: str, key: str) -> bool:
        if group == "benchmark":
            return key in _benchmark_keys(self.benchmark)
        if group == "checkpoint":
            return bool(self.targets)
        benchmark = registry.benchmarks()[_read_benchmark(self.benchmark)["name"]]
        return benchmark.computes if group == "accelerator" else group not in _OF_IMAGES or benchmark.data == "images"


def list_recipes(papers: Collection[str] = ("chien2018",)) -> list[Recipe]:
    """Return the recipes of these papers: the baseline first, which all of them share, then the figures in order."""
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
    choices = {key: value for each in node.defaults if not isinstance(each, str) for key, value in each.items()}
    targets = str(OmegaConf.select(node, "hydra.sweeper.params.checkpoint", default=""))
    return Recipe(
        file.name.removesuffix(".yaml"),
        choices.get("override /benchmark", _PLAIN),
        choices.get("override /storage"),
        tuple(filter(None, targets.split(","))),
    )


def _read_with_bases(group: str, name: str) -> Any:
    """Read a file of conf/ merged over the other files of its group that its defaults list names."""
    node: Any = OmegaConf.create((files("conf") / group / f"{name}.yaml").read_text(encoding="utf-8"))
    bases = [each for each in node.defaults if isinstance(each, str) and each != "_self_" and "/" not in each]
    for base in bases:
        base_node = _read_with_bases(group, base)
        node = OmegaConf.merge(base_node, node, {"defaults": [*base_node.defaults, *node.defaults]})
    return node


@lru_cache
def _read_benchmark(benchmark: str) -> Any:
    """Read the file of a benchmark's choice, with its bases."""
    return _read_with_bases("benchmark", benchmark)


def _benchmark_keys(benchmark: str) -> frozenset[str]:
    """Return the names of a benchmark's own keys."""
    return frozenset(declared(registry.benchmarks()[_read_benchmark(benchmark)["name"]].keys))


@dataclass(frozen=True)
class SiteStorages:
    """The storages of a site, and those of them that the user chose to read from."""

    site: tuple[str, ...]  # those of the site, by name; snapshots may go to each
    # Those that are to be read from: words of the command line, without which it is all of the site's.
    chosen: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """Return the names of the storages that images may be read from."""
        return self.chosen or self.site or (_LOCAL,)


def take_storage_choice(overrides: Sequence[str], site: Sequence[str]) -> tuple[list[str], SiteStorages]:
    """Take ``storage=hdd,ssd`` out of the user's overrides; return the others, and the storages of the site.

    Overrides that say more of the storage stay as they are. A recipe that names its own storage keeps it, if it is
    there.
    """
    choices = [override for override in overrides if _group_and_key(override)[0] == "storage"]
    if len(choices) != 1 or not (match := _CHOICE.fullmatch(choices[0])):
        return list(overrides), SiteStorages(tuple(site))
    return [override for override in overrides if override not in choices], SiteStorages(
        tuple(site), tuple(match[1].split(","))
    )


def recipe_overrides(recipe: Recipe, overrides: Sequence[str], here: SiteStorages) -> list[str]:
    """Return the overrides that compose a recipe; `words`, the user's own, decide where they name a storage."""
    groups = {_group_and_key(override)[0] for override in overrides}
    reads = [] if "storage" in groups else _storages_to_read(recipe, here)
    saves = [] if "checkpoint" in groups else _available_targets(recipe, here.site)
    return [f"+paper={recipe.name}", *_choice_overrides("storage", reads), *_choice_overrides("checkpoint", saves)]


def missing_targets(recipe: Recipe, overrides: Sequence[str], here: SiteStorages) -> list[str]:
    """Return the checkpoint targets that a recipe asks for and the site does not have."""
    saves = (
        []
        if any(_group_and_key(override)[0] == "checkpoint" for override in overrides)
        else _available_targets(recipe, here.site)
    )
    return [target for target in recipe.targets if target not in saves] if saves else []


def _choice_overrides(group: str, names: Sequence[str]) -> list[str]:
    """Return ``GROUP=NAME,NAME`` in a list; an empty list for no names."""
    return [f"{group}={','.join(names)}"] if names else []


def _group_and_key(word: str) -> tuple[str, str]:
    """Return group and key of an override: ``storage`` and ``root`` for ``+storage.root=/x``."""
    group, _, key = word.lstrip("+~").partition("=")[0].partition(".")
    return group, key


def _storages_to_read(recipe: Recipe, here: SiteStorages) -> Sequence[str]:
    """Return the storages to read from; none where the recipe's own is there, one in place of it, or all."""
    if recipe.storage in here.read:
        return []
    return here.read if recipe.storage is None else here.read[:1]


def _available_targets(recipe: Recipe, storages: Sequence[str]) -> list[str]:
    """Return the checkpoint targets to use instead of the recipe's; none where all of the recipe's are there."""
    buffered = all(side in storages for side in _SIDES)
    targets = [each for each in recipe.targets if each in ("none", *storages) or (each == _BUFFER and buffered)]
    if targets == list(recipe.targets):
        return []
    return targets if set(targets) - {"none"} else [*targets, *(storages or [_LOCAL])]
