"""Which grids make the whole paper, on the storages that a site has."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.resources.abc import Traversable

BASELINE = "table1"  # measured first: it is what the others are judged by
_LOCAL = "local"  # of a site that says nothing of its storages
_BUFFER, _SIDES = "burst_buffer", ("optane", "hdd")  # the storages that conf/checkpoint/burst_buffer.yaml names
_OVERRIDES = re.compile(r"(storage|checkpoint)([=.].*)")


@dataclass(frozen=True)
class Recipe:
    """What a file of conf/paper asks of the storages.

    Attributes
    ----------
    storage
        Where its images are to lie; None where any will do, so that all are measured.
    targets
        Of its checkpoints; empty where it saves none.
    """

    name: str
    storage: str | None
    targets: tuple[str, ...]


def recipes() -> list[Recipe]:
    """Read conf/paper: the baseline first, then the figures in their order."""
    found = [_read(file) for file in (files("conf") / "paper").iterdir() if file.name.endswith(".yaml")]
    return sorted(found, key=lambda one: (one.name != BASELINE, len(one.name), one.name))


def _read(file: Traversable) -> Recipe:
    node: Any = OmegaConf.create(file.read_text(encoding="utf-8"))
    storages = [each["override /storage"] for each in node.defaults if "override /storage" in each]
    targets = str(OmegaConf.select(node, "hydra.sweeper.params.checkpoint", default=""))
    return Recipe(file.name.removesuffix(".yaml"), next(iter(storages), None), tuple(filter(None, targets.split(","))))


def grids(recipe: Recipe, words: Sequence[str], have: Sequence[str]) -> list[list[str]]:
    """Return what is to be asked of Hydra for a recipe: each storage that the site has, where it does not name its own.

    Parameters
    ----------
    words
        The user's own, which decide where they name a storage or a target.
    have
        Storages of the site, by name.
    """
    named = {match[1] for word in words if (match := _OVERRIDES.fullmatch(word.lstrip("+")))}
    reads = [] if "storage" in named else _storages(recipe, have)
    saves = [[]] if "checkpoint" in named or not recipe.targets else _targets(recipe, have)
    return [[f"+paper={recipe.name}", *reads, *target] for target in saves]


def lacking(recipe: Recipe, words: Sequence[str], have: Sequence[str]) -> list[str]:
    """Name what a recipe asks for and the site has not."""
    asked = {word for grid in grids(recipe, words, have) for word in grid if word.startswith("checkpoint=")}
    if not asked:
        return []
    kept = {name for word in asked for name in word.partition("=")[2].split(",")}
    return [target for target in recipe.targets if target not in kept]


def _storages(recipe: Recipe, have: Sequence[str]) -> list[str]:
    """Say which storage the images lie on: the recipe's own, or else another one; all, where it names none."""
    if recipe.storage in have:
        return []
    if not have:
        return [f"storage={_LOCAL}"]
    return ["storage=site", f"storage.name={','.join(have) if recipe.storage is None else have[0]}"]


def _targets(recipe: Recipe, have: Sequence[str]) -> list[list[str]]:
    """Say where snapshots go: to those of the recipe's targets that are here, or else to what the site has."""
    buffered = all(side in have for side in _SIDES)
    kept = [each for each in recipe.targets if each in ("none", *have) or (each == _BUFFER and buffered)]
    if kept == list(recipe.targets):
        return [[]]
    if not set(kept) - {"none"} and not have:
        kept.append(_LOCAL)
    grids = [[f"checkpoint={','.join(kept)}"]] if kept else []
    if not set(kept) - {"none"}:
        grids.append(["checkpoint=site", f"checkpoint.name={','.join(have)}"])
    return grids
