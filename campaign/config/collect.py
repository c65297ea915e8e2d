"""Collect the points of the grid that a command line describes, and make a cell from each point.

A point is a composed configuration. This module gives each recipe its own grid, and refuses a size that changes no
setting. It also resolves storages: ``storage=`` and ``checkpoint=`` take a file of ``conf/``, a storage of the site, or
a folder (``storage=/scratch/me`` is short for ``storage=site storage.name=scratch_me storage.root=/scratch/me``). Hydra
only composes configurations (`campaign.config.composer`); no campaign runs inside Hydra.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from campaign import console
from campaign.cells.cell import Cell, make_cell
from campaign.config import composer, rules
from campaign.config.command_line import (
    SIZES,
    check_overrides,
    depends_on_size,
    parse_command_line,
    quote_for_hydra,
    resizing_overrides,
)
from campaign.config.compose import Assignment, compose_points
from campaign.config.composer import Composer
from campaign.errors import RefusalsError, UsageError, raise_if_refused
from campaign.storage.roots import missing_root, mounted_folder
from jobs.model.conduct import Conduct, Point, SiteStorage
from jobs.model.declared import declared_settings
from jobs.model.settings import EVERY, Node, flat_items
from jobs.parser import nearest_hint
from jobs.system.device import mounts
from jobs.system.files import user_name

_SITE = ("site=", "site.", "+site.", "++site.")
_SITE_STORAGES = "site.storages."
_GROUPS = ("storage", "checkpoint")
_PATH_STARTS = ("/", ".", "~")
_LONGEST_NAME = 32  # characters of a storage name (campaign.config.rules)
_RECIPE = "+paper="
_KEYS_SET_BY_SIZE = ("size", "trace")  # keys that the files of conf/size set; they change no number of a recipe


class StorageChoices:
    """Resolves the storages that the overrides (``KEY=VALUE``) of one command line name."""

    def __init__(self, composer: Composer, overrides: Sequence[str]) -> None:
        self._composer = composer
        self._folder_of_name: dict[str, str] = {}
        self._site_storages = self._read_site_storages(overrides)

    def force_site_key(self, override: str) -> str:
        """Put ``++`` before an override that sets a key of a site's storage, because the site's file may lack the key.

        Other overrides are returned unchanged.
        """
        name, _, key = override.removeprefix(_SITE_STORAGES).partition("=")[0].partition(".")
        is_of_site = override.startswith(_SITE_STORAGES) and name in self._site_storages
        return f"++{override}" if is_of_site and key in declared_settings(SiteStorage) else override

    def expand(self, assignment: Assignment) -> list[Assignment]:
        """Return the assignments for Hydra that replace an assignment of a storage of the site, or of a folder.

        A name with a file in ``conf/`` or in the user's configuration folder means that file, so its assignment is
        returned unchanged. Raises UsageError for an unknown name.
        """
        group = assignment.key
        if group not in _GROUPS or not assignment.text.startswith(f"{group}="):
            return [assignment]
        file_names, choice = self._composer.options(group), str(self._composer.parse(assignment.text).value())
        if choice.startswith(_PATH_STARTS):
            name = Assignment(f"{group}.name={self._name_folder(choice)}", f"{group}.name")
            root = Assignment(f"{group}.root={quote_for_hydra(choice)}", f"{group}.root")
            return [assignment._replace(text=f"{group}=site"), name, root]
        if choice in file_names or not choice.isidentifier():
            return [assignment]
        if choice not in self._site_storages:
            raise UsageError(
                f"{group}: no choice '{choice}'", nearest_hint(choice, {*file_names, *self._site_storages})
            )
        is_bucket = group == "storage" and self._site_storages[choice].get("kind") == "s3"
        name = Assignment(f"{group}.name={choice}", f"{group}.name")
        return [assignment._replace(text=f"{group}={'s3' if is_bucket else 'site'}"), name]

    def _read_site_storages(self, overrides: Sequence[str]) -> dict[str, Node]:
        """Return the storages of the site by name, or an empty dictionary if no override may name such a storage."""
        is_needed = any(override.startswith(_SITE_STORAGES) for override in overrides) or any(
            name not in self._composer.options(group) for text in overrides for group, name in _storage_names(text)
        )
        site_overrides = [text for text in overrides if text.startswith(_SITE) and not text.startswith(_SITE_STORAGES)]
        points = compose_points(self._composer, site_overrides) if is_needed and site_overrides else ()
        return {name: node for point in points for name, node in point["site"]["storages"].items()}

    def _name_folder(self, folder: str) -> str:
        """Return a name for the storage in a folder: the last 32 characters of its path.

        Raises UsageError if another folder has already got the same name.
        """
        paths = (Path(folder), Path(folder).absolute(), "root")
        name = next(filter(None, (re.sub(r"[^A-Za-z0-9]+", "_", str(path)).strip("_") for path in paths)))
        name = name[-_LONGEST_NAME:].lstrip("_")
        if (other := self._folder_of_name.setdefault(name, folder)) != folder:
            raise UsageError(
                f"{other} and {folder} would both be storage {name}",
                "use a campaign for each folder, or choose another name:"
                f" storage=site storage.name=… storage.root={folder}",
            )
        return name


def _storage_names(override: str) -> list[tuple[str, str]]:
    """Return group and name of each storage that an override names: ``storage=hdd,ssd`` names two."""
    group, _, names = override.partition("=")
    return [(group, name) for name in names.split(",") if group in _GROUPS and name.isidentifier()]


def collect_points(argv: Sequence[str]) -> list[Point] | None:
    """Return the configuration of each point of the grid, or None if Hydra only prints a configuration (``--cfg``).

    `argv` are the arguments of the command line without a verb. Raises UsageError for one wrong setting, RefusalsError
    for several wrong settings.
    """
    arguments = parse_command_line(argv)
    check_overrides(arguments.overrides)
    with Composer(arguments.config_dir) as composing:
        grid = _Grid(composing, arguments.overrides)
        if not arguments.hydra_flags:
            points = grid.compose_points(grid.overrides)
            if points:
                _require_effect_of_size(grid, points)
            return points
        overrides = grid.expand_overrides()
    composer.show_with_hydra([*arguments.hydra_flags, *arguments.config_dir_flags, *overrides])
    return None


@cache
def shipped_choices(group: str) -> frozenset[str]:
    """Return the names of the choices of a group that are part of this project (files in ``conf/``)."""
    return frozenset(file.name.removesuffix(".yaml") for file in (files("conf") / group).iterdir())


class _Grid:
    """Composes the overrides of a command line, in which the storages of the site can be chosen by name."""

    def __init__(self, composing: Composer, overrides: Sequence[str]) -> None:
        self._composer = composing
        self._storages = StorageChoices(composing, overrides)
        self.overrides = [self._storages.force_site_key(override) for override in overrides]

    def compose_points(self, overrides: Sequence[str]) -> list[Point]:
        """Return the points of each recipe that the overrides name; raises UsageError."""
        points: list[Point] = []
        try:
            for recipe_overrides in _split_by_recipe(overrides):
                for point in compose_points(self._composer, recipe_overrides, self._storages.expand):
                    points.append(point)  # noqa: PERF402 - an error must not lose earlier points
        except UsageError as error:  # the message also has the refusals of earlier points
            if earlier_refusals := [refusal for point in points for refusal in rules.collect_refusals(point)]:
                raise RefusalsError([*earlier_refusals, (error.message, error.hint)]) from error
            raise
        return points

    def expand_overrides(self) -> list[str]:
        """Return the overrides in the form that Hydra needs to print one configuration."""
        keys = [self._composer.parse(override).key_or_group for override in self.overrides]
        assignments = [Assignment(text, key) for text, key in zip(self.overrides, keys, strict=True)]
        return [expanded.text for assignment in assignments for expanded in self._storages.expand(assignment)]


def _require_effect_of_size(grid: _Grid, points: Sequence[Point]) -> None:
    """Raise UsageError if the size changes no number of the campaign, because tables would show a meaningless size.

    A recipe of conf/paper depends on the size, unless overrides set its numbers. Other points (a recipe of the user,
    ``benchmark=baseline``) are composed again with another size and compared.
    """
    sizes = [override for override in grid.overrides if override.startswith(SIZES)]
    recipes = set(_recipe_names(grid.overrides))
    if not sizes or (recipes & shipped_choices("paper") and not any(map(depends_on_size, grid.overrides))):
        return
    other = "smoke" if points[0]["size"] == "paper" else "paper"
    resized = grid.compose_points([*(text for text in grid.overrides if text not in sizes), f"+size={other}"])
    if _without_size(points) == _without_size(resized):
        raise UsageError(
            f"{sizes[-1]} changes nothing here: no number of these cells depends on a size",
            "leave the size out (dataset.files=… iterations=… make a campaign small, and overrule it),"
            " or name a recipe: +paper=fig4",
        )


def _without_size(points: Sequence[Point]) -> list[Mapping[str, object]]:
    """Return the points without the keys that the files of conf/size set."""
    return [{key: part for key, part in point.items() if key not in _KEYS_SET_BY_SIZE} for point in points]


def _recipe_names(overrides: Sequence[str]) -> list[str]:
    """Return the names of the recipes that the overrides name, in order."""
    return [name for text in overrides if text.startswith(_RECIPE) for name in text.removeprefix(_RECIPE).split(",")]


def _split_by_recipe(overrides: Sequence[str]) -> list[list[str]]:
    """Return one list of overrides for each recipe of ``+paper=fig4,fig5``, because each recipe has its own grid.

    A recipe gets ``+size=paper``, unless an override names a size or sets a number that depends on the size.
    """
    names = _recipe_names(overrides)
    if not names:
        return [list(overrides)]
    others = [override for override in overrides if not override.startswith(_RECIPE)]
    if not any(override.startswith(SIZES) for override in others) and not resizing_overrides(others):
        others.append("+size=paper")
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"+paper={name} is no recipe", "name them one by one: +paper=fig4,fig5")
    return [[*others, _RECIPE + name] for name in names]


def make_cells(points: Sequence[Point], *, to_run: bool = True) -> tuple[list[Cell], Conduct]:
    """Return each cell of the points once, in order, and the settings that say how to run the campaign.

    Raises UsageError if a point cannot be a cell, RefusalsError if several points cannot be cells. A cell whose storage
    has no root here cannot run, but it can be planned with ``to_run=False``.
    """
    if not points:
        raise UsageError("the grid has no points", "does a glob() match nothing? name the values one by one")
    cells: dict[str, Cell] = {}
    points = _fill_mounted_roots(points)
    refusals = rules.collect_refusals(points[0])
    conduct = _conduct_of(points[0])
    values_of = _PointFlattener()
    for point in console.iterate_with_progress(points, "checking cells"):
        try:
            refusals += (point_refusals := rules.collect_refusals(point, values_of(point)))
            if point_refusals:
                continue
            if _conduct_of(point) != conduct:
                raise _swept_conduct_error(conduct, _conduct_of(point))
            cell = make_cell(point)
        except UsageError as error:
            if refusals:  # earlier points were refused, too
                raise RefusalsError([*refusals, (error.message, error.hint)]) from error
            raise
        cells.setdefault(cell.id, cell)
    raise_if_refused(refusals)
    if to_run and (refusal := missing_root(cells.values())):
        raise refusal
    return list(cells.values()), conduct


def _fill_mounted_roots(points: Sequence[Point]) -> Sequence[Point]:
    """Return the points, with the user's folder on a mounted Lustre as the root of a storage ``lustre`` without one."""
    if not any(point["storage"]["name"] == "lustre" and point["storage"].get("root", "") is None for point in points):
        return points
    folder = mounted_folder("lustre", mounts(), user_name(os.geteuid()))
    if folder is None:
        return points
    console.say(f"storage=lustre: storage.root={folder}, your only folder on a mounted Lustre")
    return [
        cast("Point", {**point, "storage": {**point["storage"], "root": str(folder)}})
        if point["storage"]["name"] == "lustre" and point["storage"].get("root", "") is None
        else point
        for point in points
    ]


class _PointFlattener:
    """Flattens points; a node that two consecutive points share is flattened only once, to save time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, dict[str, Any]]] = {}

    def __call__(self, point: Point) -> dict[str, Any]:
        """Return the settings of a point by dotted keys."""
        values: dict[str, Any] = {}
        for key, node in point.items():
            if not isinstance(node, dict):
                values[key] = node
                continue
            if key not in self._last or self._last[key][0] is not node:
                self._last[key] = node, dict(flat_items(node, f"{key}."))
            values |= self._last[key][1]
        return values


def _conduct_of(point: Point) -> Conduct:
    """Return the settings of a point that say how to run the campaign; they do not change a measured result."""
    return cast("Conduct", {key: value for key, value in point.items() if key not in EVERY})


def _swept_conduct_error(one: Conduct, other: Conduct) -> UsageError:
    """Return the error for two points with different settings of how to run the campaign."""
    one_flat, other_flat = dict(flat_items(one)), dict(flat_items(other))
    key = next(key for key in (*one_flat, *other_flat) if one_flat.get(key) != other_flat.get(key))
    return UsageError(
        f"{key} has several values ({one_flat.get(key)}, {other_flat.get(key)}), but holds for the whole campaign",
        f"give {key} one value, or start a campaign for each value",
    )
