"""The points of the grid that a command line describes.

What a campaign's words mean is decided here: a recipe has a grid of its own, a storage that a site describes is a
choice, a size must act. Hydra composes (`campaign.config.composer`), and nothing runs inside Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from campaign.config import composer, rules
from campaign.config.command_line import SIZES, check_words, is_sized, quoted, resizing, split
from campaign.config.compose import Word, points
from campaign.config.composer import Composer
from campaign.errors import RefusalsError, UsageError, nearest
from jobs.model.conduct import Point, SiteStorage
from jobs.model.declared import declared
from jobs.model.settings import Node

_RECIPE = "+paper="
_SITE = ("site=", "site.", "+site.", "++site.")
_STORAGE = "site.storages."
_STORAGE_GROUPS = ("storage", "checkpoint")
_OF_A_FOLDER = ("/", ".", "~")  # what a path begins with
_LONGEST_NAME = 32  # of a storage (campaign.config.rules)
_SET_BY_SIZE = ("size", "trace")  # what conf/size itself sets; it makes no campaign smaller


def collect(argv: Sequence[str]) -> list[Point] | None:
    """Return the configuration of each point of the grid; None if Hydra only showed something (``--cfg``)."""
    words = split(argv)
    check_words(words.overrides)
    with Composer(words.config_dir) as composed:
        grid = _Grid(composed, words.overrides)
        if not words.shown:
            found = grid.points(grid.words)
            if found:
                _require_effect_of_size(grid, found)
            return found
        single = grid.single()
    composer.show([*words.shown, *words.flags, *single])
    return None


@cache
def choices(group: str) -> frozenset[str]:
    """Return the choices of a group that come with this project."""
    return frozenset(file.name.removesuffix(".yaml") for file in (files("conf") / group).iterdir())


class _Grid:
    """The words of a campaign, and the storages of its site."""

    def __init__(self, composed: Composer, overrides: Sequence[str]) -> None:
        self._composer = composed
        self._folders: dict[str, str] = {}  # that are storages, by the names of these
        self._storages = self._of_site(overrides)
        self.words = [self._of_storage(word) for word in overrides]

    def points(self, words: Sequence[str]) -> list[Point]:
        """Compose the points of each recipe that the words name; raises UsageError."""
        found: list[Point] = []
        try:
            for one_recipe in _recipe_by_recipe(words):
                for point in points(self._composer, one_recipe, self._meaning):
                    found.append(point)  # noqa: PERF402 - those before one that is refused are kept
        except UsageError as error:  # of the points before, what is refused is said, too
            if before := [each for point in found for each in rules.refusals(point)]:
                raise RefusalsError([*before, (error.message, error.hint)]) from error
            raise
        return found

    def single(self) -> list[str]:
        """Return the words for a Hydra that shows one configuration."""
        parsed = [self._composer.parse(word) for word in self.words]
        return [
            word.text
            for override, text in zip(parsed, self.words, strict=True)
            for word in (self._meaning(Word(text, override.key_or_group)))
        ]

    def _of_site(self, words: Sequence[str]) -> dict[str, Node]:
        """Return the storages of the site by name if a word asks for one of them; else none."""
        asked = any(word.startswith(_STORAGE) for word in words) or any(
            name not in self._composer.options(group) for word in words for group, name in _named_storages(word)
        )
        of_site = [word for word in words if word.startswith(_SITE) and not word.startswith(_STORAGE)]
        found = points(self._composer, of_site) if asked and of_site else ()
        return {name: node for point in found for name, node in point["site"]["storages"].items()}

    def _of_storage(self, word: str) -> str:
        """Return a word that sets a key of a storage of the site as Hydra needs it where the file lacks the key."""
        name, _, key = word.removeprefix(_STORAGE).partition("=")[0].partition(".")
        is_key = word.startswith(_STORAGE) and name in self._storages and key in declared(SiteStorage)
        return f"++{word}" if is_key else word

    def _meaning(self, word: Word) -> list[Word]:
        """Return what a word stands for; storages of the site and folders are choices of storage and checkpoint.

        A name that has a file in ``conf/`` or in the user's configuration folder stands for that file.
        """
        group = word.key
        if group not in _STORAGE_GROUPS or not word.text.startswith(f"{group}="):
            return [word]
        known, name = self._composer.options(group), str(self._composer.parse(word.text).value())
        if name.startswith(_OF_A_FOLDER):
            named = self._named(name)
            root = Word(f"{group}.root={quoted(name)}", f"{group}.root")
            return [word._replace(text=f"{group}=site"), Word(f"{group}.name={named}", f"{group}.name"), root]
        if name in known or not name.isidentifier():
            return [word]
        if name not in self._storages:
            raise UsageError(f"{group}: no choice '{name}'", nearest(name, {*known, *self._storages}))
        is_bucket = group == "storage" and self._storages[name].get("kind") == "s3"
        choice = f"{group}={'s3' if is_bucket else 'site'}"
        return [word._replace(text=choice), Word(f"{group}.name={name}", f"{group}.name")]

    def _named(self, folder: str) -> str:
        """Return the name of the storage in a folder: its path, of which a name has the last 32 characters."""
        paths = (Path(folder), Path(folder).absolute(), "root")
        name = next(filter(None, (re.sub(r"[^A-Za-z0-9]+", "_", str(path)).strip("_") for path in paths)))
        name = name[-_LONGEST_NAME:].lstrip("_")
        if (other := self._folders.setdefault(name, folder)) != folder:
            raise UsageError(
                f"{other} and {folder} would both be storage {name}",
                f"one after the other, with a name of your own: storage=site storage.name=… storage.root={folder}",
            )
        return name


def _named_storages(word: str) -> list[tuple[str, str]]:
    group, _, names = word.partition("=")
    return [(group, name) for name in names.split(",") if group in _STORAGE_GROUPS and name.isidentifier()]


def _require_effect_of_size(grid: _Grid, found: Sequence[Point]) -> None:
    """Refuse a size that changes no number, because the tables would show it.

    All recipes of conf/paper use it, unless words set what they size. Any other point that uses the size (a recipe of
    the user, ``benchmark=baseline``) differs with another size.
    """
    sizes = [word for word in grid.words if word.startswith(SIZES)]
    recipes = {
        name for word in grid.words if word.startswith(_RECIPE) for name in word.removeprefix(_RECIPE).split(",")
    }
    if not sizes or (recipes & choices("paper") and not any(map(is_sized, grid.words))):
        return
    other = "smoke" if found[0]["size"] == "paper" else "paper"
    resized = grid.points([*(word for word in grid.words if word not in sizes), f"+size={other}"])
    if _numbers(found) == _numbers(resized):
        raise UsageError(
            f"{sizes[-1]} changes nothing here: no number of these cells depends on a size",
            "leave it out (dataset.files=… iterations=… make a campaign small, and overrule it), or name a recipe:"
            " +paper=fig4",
        )


def _numbers(found: Sequence[Point]) -> list[Mapping[str, object]]:
    return [{key: part for key, part in point.items() if key not in _SET_BY_SIZE} for point in found]


def _recipe_by_recipe(words: Sequence[str]) -> list[list[str]]:
    """Return the words once per recipe of ``+paper=fig4,fig5``: each recipe has a grid of its own.

    A recipe has the paper's size, unless the words name another size or set a number that depends on the size.
    """
    asked = [word for word in words if word.startswith(_RECIPE)]
    if not asked:
        return [list(words)]
    rest = [word for word in words if not word.startswith(_RECIPE)]
    if not any(word.startswith(SIZES) for word in rest) and not resizing(rest):
        rest.append("+size=paper")
    names = [name for word in asked for name in word.removeprefix(_RECIPE).split(",")]
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"+paper={name} is no recipe", "name them one by one: +paper=fig4,fig5")
    return [[*rest, _RECIPE + name] for name in names]
