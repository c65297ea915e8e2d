"""Collection of the grid by Hydra: it reads the command line, and runs nothing.

A sweeper and a launcher of ours (`campaign.config.plugins`) receive the whole grid as lists of overrides and
compose it (`campaign.config.compose`); when Hydra has returned, everything else is ours. Nothing runs inside Hydra,
where an exception in a callback is a warning and one in a job wears Hydra's traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from types import ModuleType

from hydra._internal import hydra as runner
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.main import main as hydra_main
from hydra.types import RunMode
from omegaconf import DictConfig

from campaign.config import rules, schema
from campaign.config.command_line import check_words, config_folders
from campaign.config.explain import FULL_ERROR, explained
from campaign.config.tree import CHOICES
from campaign.errors import RefusalsError, UsageError
from jobs.model.conduct import Point, SiteStorage
from jobs.model.declared import declared
from jobs.model.settings import Node

_RECIPE = "+paper="
_SITE = ("site=", "site.", "+site.")
_STORAGE = "site.storages."
_STORAGE_GROUPS = ("storage", "checkpoint")
_SIZES = ("+size=", "size=")
_SET_BY_SIZE = ("size", "trace")  # what conf/size itself sets; it makes no campaign smaller
# What a size stands for.
_NUMBERS = ("iterations=", "dataset.files=", "dataset=", "benchmark.width=", "benchmark.file_mb=", "batch_size=")
_PLUGIN_MODULE = "hydra_plugins.campaign_collect"  # Hydra takes launchers from no other package (1.3)


def register() -> None:
    """Make our schemas, launcher and sweeper known to Hydra, without a ``hydra_plugins`` folder on disk."""
    schema.register()
    plugins = Plugins.instance()  # scans what is installed, so before the package is made up
    from campaign.config import plugins as grid_plugins  # noqa: PLC0415 - after the scan, see there

    if "hydra_plugins" not in sys.modules:
        sys.modules["hydra_plugins"] = ModuleType("hydra_plugins")
        sys.modules["hydra_plugins"].__path__ = []
    sys.modules[_PLUGIN_MODULE] = grid_plugins
    launcher, sweeper = grid_plugins.CollectLauncher, grid_plugins.GridSweeper
    for plugin in (launcher, sweeper):
        plugin.__module__ = _PLUGIN_MODULE
        plugins.register(plugin)
    SourcesRegistry.instance().types["pkg"] = grid_plugins.PackagedFiles
    store = ConfigStore.instance().store
    store(group="hydra/launcher", name="collect", node={"_target_": f"{_PLUGIN_MODULE}.{launcher.__name__}"})
    target = {"_target_": f"{_PLUGIN_MODULE}.{sweeper.__name__}"}
    store(group="hydra/sweeper", name="grid", node={**target, "max_batch_size": None, "params": None})


def collect(words: Sequence[str]) -> list[Point] | None:
    """Return the configuration of each point of the grid; None if Hydra only showed something (``--cfg``)."""
    check_words(words)
    register()
    storages = _storages_of_site(words)
    words = [_said_of(storages, word) for word in words]
    with _site_choices(storages):
        points = _composed(words)
        if points:
            _require_effect_of_size(words, points)
    return points


def _storages_of_site(words: Sequence[str]) -> dict[str, Node]:
    """Return the storages of the site by name if a word asks for one of them; else none."""
    unknown = any(name not in choices(group) for word in words for group, name in _named_storages(word))
    asked = unknown or any(word.startswith(_STORAGE) for word in words)
    site_words = [word for word in words if word.startswith(_SITE) and not word.startswith(_STORAGE)]
    points = _composed(["-m", *config_folders(words), *site_words]) if asked and site_words else None
    return {name: node for point in points or () for name, node in point["site"]["storages"].items()}


def _said_of(storages: Container[str], word: str) -> str:
    """Return a word that sets a key of a site's storage as Hydra needs it, even if the site's file lacks the key."""
    name, _, key = word.removeprefix(_STORAGE).partition("=")[0].partition(".")
    is_key = word.startswith(_STORAGE) and name in storages and key in declared(SiteStorage)
    return f"++{word}" if is_key else word


@contextmanager
def _site_choices(storages: Mapping[str, Node]) -> Iterator[None]:
    """Make each storage of the site a choice of ``storage`` and ``checkpoint``.

    A name that has a file in ``conf/`` or in the user's configuration folder stands for that file.
    """
    added = [(group, name) for group in _STORAGE_GROUPS for name in storages if name not in choices(group)]
    store = ConfigStore.instance()
    for group, name in added:
        base = "s3" if group == "storage" and storages[name].get("kind") == "s3" else "site"
        store.store(group=group, name=name, node={"defaults": [base, "_self_"], "name": name})
    try:
        yield
    finally:
        for group, name in added:
            store.repo[group].pop(f"{name}.yaml", None)


@cache
def choices(group: str) -> frozenset[str]:
    """Return the choices of a group that come with this project."""
    return frozenset(file.name.removesuffix(".yaml") for file in (files("conf") / group).iterdir())


def _named_storages(word: str) -> Iterator[tuple[str, str]]:
    group, _, names = word.partition("=")
    if group in _STORAGE_GROUPS:
        yield from ((group, name) for name in names.split(",") if name.isidentifier())


def _require_effect_of_size(words: Sequence[str], points: Sequence[Point]) -> None:
    """Refuse a size that changes no number, because the tables would show it. All recipes of conf/paper use it.

    Any other point that uses the size (a recipe of the user, ``benchmark=baseline``) differs with another size.
    """
    sizes = [word for word in words if word.startswith(_SIZES)]
    recipes = {name for word in words if word.startswith(_RECIPE) for name in word.removeprefix(_RECIPE).split(",")}
    if not sizes or recipes & choices("paper"):
        return
    other = "smoke" if points[0]["size"] == "paper" else "paper"
    resized = _composed([*(word for word in words if word not in sizes), f"+size={other}"])
    numbers, others = (
        [{key: part for key, part in point.items() if key not in _SET_BY_SIZE} for point in each]
        for each in (points, resized or [])
    )
    if numbers == others:
        raise UsageError(
            f"{sizes[-1]} changes nothing here: no number of these cells depends on a size",
            "leave it out (dataset.files=… iterations=… make a campaign small), or name a recipe: +paper=fig4",
        )


def _composed(words: Sequence[str]) -> list[Point] | None:
    from campaign.config.plugins import COLLECTED, OF_EACH_POINT  # noqa: PLC0415 - after the scan, see there

    COLLECTED.clear()
    for one_recipe in _recipe_by_recipe(words):
        for_hydra, OF_EACH_POINT[:] = _divided(one_recipe)
        try:
            with explained(), _as_called(for_hydra):
                hydra_main(version_base="1.3", config_path="pkg://conf", config_name="config")(lambda _: None)()
        except UsageError as error:  # of the points before, what is refused is said, too
            before = [each for batch in COLLECTED for point in batch for each in rules.refusals(point)]
            if before:
                raise RefusalsError([*before, (error.message, error.hint)]) from error
            raise
    return [point for batch in COLLECTED for point in batch] if COLLECTED else None


def _divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words for Hydra, and the words that are added to each point because they set a key of a choice.

    Hydra would set ``checkpoint.every=10`` of ``checkpoint=hdd,ssd checkpoint.every=10`` before it sweeps, where
    ``checkpoint`` is ``none`` and has no such key.
    """
    if "-m" not in words:  # a configuration is only shown: there is no grid
        return list(words), []
    parser = OverridesParser.create()

    def is_fixed(key: str, word: str) -> bool:
        if "." not in key or key.partition(".")[0] not in CHOICES:
            return False
        with suppress(HydraException):  # Hydra reports it
            return not parser.parse_override(word).is_sweep_override()
        return False

    last = {word.partition("=")[0]: word for word in words}
    fixed = {key: word for key, word in last.items() if is_fixed(key, word)}
    return [word for word in words if word.partition("=")[0] not in fixed], list(fixed.values())


def _recipe_by_recipe(words: Sequence[str]) -> list[list[str]]:
    """Return the words once per recipe of ``+paper=fig4,fig5``: each recipe has a grid of its own.

    A recipe has the paper's size, unless the words name another size or set a number that depends on the size.
    """
    asked = [word for word in words if word.startswith(_RECIPE)]
    if not asked:
        return [list(words)]
    rest = [word for word in words if not word.startswith(_RECIPE)]
    if not any(word.startswith((*_SIZES, *_NUMBERS)) for word in rest):
        rest.append("+size=paper")
    names = [name for word in asked for name in word.removeprefix(_RECIPE).split(",")]
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"+paper={name} is no recipe", "name them one by one: +paper=fig4,fig5")
    return [[*rest, _RECIPE + name] for name in names]


class _NoCallbacks(Callbacks):
    """Replaces Hydra's callbacks, which would instantiate any class that a configuration file names."""

    def __init__(self, config: DictConfig | None = None) -> None:  # noqa: ARG002 - as Hydra calls it
        super().__init__()


@contextmanager
def _as_called(words: Sequence[str]) -> Iterator[None]:
    """Give `words` to Hydra as the command line, and let its errors through; it would print them and exit with 1.

    The mode is set to a sweep here, because Hydra would compose everything once more to learn it.
    """
    argv, full, mode = sys.argv, os.environ.get(FULL_ERROR), Hydra.get_mode
    sys.argv, os.environ[FULL_ERROR] = ["campaign", *words], "1"
    Hydra.get_mode = lambda *_, **__: RunMode.MULTIRUN  # type: ignore[method-assign]
    runner.Callbacks = _NoCallbacks  # type: ignore[attr-defined]
    try:
        yield
    finally:
        sys.argv, Hydra.get_mode = argv, mode  # type: ignore[method-assign]
        runner.Callbacks = Callbacks  # type: ignore[attr-defined]
        del os.environ[FULL_ERROR]
        if full is not None:
            os.environ[FULL_ERROR] = full
