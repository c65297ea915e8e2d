"""The grids that make a whole paper, on the storages that a site has."""

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
    """What a file of conf/paper asks of the storages."""

    name: str
    benchmark: str
    storage: str | None  # where its images are to lie; None where any will do, so that all are measured
    targets: tuple[str, ...]  # of its checkpoints; empty where it saves none

    def takes(self, words: Sequence[str]) -> list[str]:
        """Return the words that mean something to it: a baseline trains nothing, and not all that train save."""
        return [word for word in words if self._takes(*_parts(word))]

    def _takes(self, group: str, key: str) -> bool:
        if group == "benchmark":
            return key in _keys(self.benchmark)
        if group == "checkpoint":
            return bool(self.targets)
        benchmark = registry.benchmarks()[_read_as(self.benchmark)["name"]]
        return benchmark.computes if group == "accelerator" else group not in _OF_IMAGES or benchmark.data == "images"


def recipes(papers: Collection[str] = ("chien2018",)) -> list[Recipe]:
    """Read the recipes of these papers: the baseline first, which is of each, then the figures in their order."""
    found = [_read(file) for file in (files("conf") / "paper").iterdir() if file.name.endswith(".yaml")]
    mine = [one for one in found if one.name == _FIRST or one.name.startswith(tuple(PAPERS[name] for name in papers))]
    return sorted(mine, key=lambda one: (one.name != _FIRST, one.name.partition("fig")[0], len(one.name), one.name))


def _read(file: Traversable) -> Recipe:
    node = _with_its_base("paper", file.name.removesuffix(".yaml"))
    chosen = {key: value for each in node.defaults if not isinstance(each, str) for key, value in each.items()}
    targets = str(OmegaConf.select(node, "hydra.sweeper.params.checkpoint", default=""))
    return Recipe(
        file.name.removesuffix(".yaml"),
        chosen.get("override /benchmark", _PLAIN),
        chosen.get("override /storage"),
        tuple(filter(None, targets.split(","))),
    )


def _with_its_base(group: str, name: str) -> Any:
    """Read a file of conf/ over the other one of its group that its defaults name, if they do."""
    node: Any = OmegaConf.create((files("conf") / group / f"{name}.yaml").read_text(encoding="utf-8"))
    bases = [each for each in node.defaults if isinstance(each, str) and each != "_self_" and "/" not in each]
    for base in bases:
        under = _with_its_base(group, base)
        node = OmegaConf.merge(under, node, {"defaults": [*under.defaults, *node.defaults]})
    return node


@lru_cache
def _read_as(benchmark: str) -> Any:
    return _with_its_base("benchmark", benchmark)


def _keys(benchmark: str) -> frozenset[str]:
    return frozenset(declared(registry.benchmarks()[_read_as(benchmark)["name"]].keys))


@dataclass(frozen=True)
class Here:
    """The storages that there are."""

    site: tuple[str, ...]  # those of the site, by name; snapshots may go to each
    # Those that are to be read from: words of the command line, without which it is all of the site's.
    chosen: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[str, ...]:
        """Where the images may lie, by name."""
        return self.chosen or self.site or (_LOCAL,)


def choose(words: Sequence[str], site: Sequence[str]) -> tuple[list[str], Here]:
    """Take ``storage=hdd,ssd`` out of the user's words; where more is said of the storage, the words stay as they are.

    A recipe that names its own storage keeps it, if it is there. Returns the other words and what storages there are.
    """
    said = [word for word in words if _parts(word)[0] == "storage"]
    if len(said) != 1 or not (match := _CHOICE.fullmatch(said[0])):
        return list(words), Here(tuple(site))
    return [word for word in words if word not in said], Here(tuple(site), tuple(match[1].split(",")))


def grid(recipe: Recipe, words: Sequence[str], here: Here) -> list[str]:
    """Return the words that Hydra is to compose for a recipe; the user's own `words` decide where they name a place."""
    groups = {_parts(word)[0] for word in words}
    reads = [] if "storage" in groups else _storages(recipe, here)
    saves = [] if "checkpoint" in groups else _targets(recipe, here.site)
    return [f"+paper={recipe.name}", *_choice("storage", reads), *_choice("checkpoint", saves)]


def lacking(recipe: Recipe, words: Sequence[str], here: Here) -> list[str]:
    """Name what a recipe asks for and the site has not."""
    saves = [] if any(_parts(word)[0] == "checkpoint" for word in words) else _targets(recipe, here.site)
    return [target for target in recipe.targets if target not in saves] if saves else []


def _choice(group: str, names: Sequence[str]) -> list[str]:
    return [f"{group}={','.join(names)}"] if names else []


def _parts(word: str) -> tuple[str, str]:
    """Return group and key of a word: ``storage`` and ``root`` for ``+storage.root=/x``."""
    group, _, key = word.lstrip("+~").partition("=")[0].partition(".")
    return group, key


def _storages(recipe: Recipe, here: Here) -> Sequence[str]:
    """Return which storages the images lie on, unless on the recipe's own: another one; all, where it names none."""
    if recipe.storage in here.read:
        return []
    return here.read if recipe.storage is None else here.read[:1]


def _targets(recipe: Recipe, have: Sequence[str]) -> list[str]:
    """Return where snapshots go, where not all of the recipe's targets are here: to those, or to what the site has."""
    buffered = all(side in have for side in _SIDES)
    targets = [each for each in recipe.targets if each in ("none", *have) or (each == _BUFFER and buffered)]
    if targets == list(recipe.targets):
        return []
    return targets if set(targets) - {"none"} else [*targets, *(have or [_LOCAL])]
