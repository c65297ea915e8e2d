"""Hydra, by its public functions alone: it composes configurations, reads words and shows things, and runs nothing.

A grid is composed by the Compose API. `hydra.main` is for what only shows something: ``--cfg``, ``--info``, the
completion of a shell. No plugin of ours is needed, and no callback that a file names is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.main import main as hydra_main
from omegaconf import DictConfig

from campaign.config import defaults
from campaign.config.command_line import quoted
from campaign.config.explain import FULL_ERROR, explained
from campaign.errors import UsageError

_BASE = "1.3"  # of whose Hydra the rules are
_CONFIG = "config"  # the file of conf/ that the defaults of all groups are in


class Composer:
    """A context in which configurations are composed from ``conf/`` and from a folder of the user's."""

    def __init__(self, folder: str | None = None, config: str = _CONFIG) -> None:
        """Read `folder` beside ``conf/``, and begin with the file `config`; raises UsageError for no folder."""
        defaults.register()
        if folder is not None and not Path(folder).is_dir():
            raise UsageError(
                f"there is no folder {folder}",
                "--config-dir and $CAMPAIGN_CONFIG_DIR name a folder with your own site/, storage/, paper/, …",
            )
        self._where = [f"hydra.searchpath=[{quoted(f'file://{Path(folder).absolute()}')}]"] if folder else []
        self._config = config
        self.options = lru_cache(maxsize=None)(self._options)  # Hydra takes some ms to answer

    def __enter__(self) -> Self:
        """Begin; Hydra allows one at a time."""
        self._hydra = initialize_config_module("conf", version_base=_BASE)
        self._hydra.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave Hydra as it was."""
        self._hydra.__exit__(kind, error, at)

    def compose(self, words: Sequence[str]) -> DictConfig:
        """Return the configuration of words without a sweep, with Hydra's own node; raises UsageError."""
        with explained():
            return compose(self._config, overrides=[*self._where, *words], return_hydra_config=True)

    def parse(self, word: str) -> Override:
        """Return a word as Hydra's grammar reads it; raises UsageError."""
        with explained():
            return self._parser.parse_overrides([word])[0]

    @cached_property
    def _parser(self) -> OverridesParser:
        return OverridesParser.create()

    def _options(self, group: str) -> frozenset[str]:
        """Return the choices of a group; none for what is no group."""
        return self._found(group, ObjectType.CONFIG) if group.partition("/")[0] in self._groups else frozenset()

    @cached_property
    def _groups(self) -> frozenset[str]:
        return self._found("", ObjectType.GROUP)

    def _found(self, group: str, kind: ObjectType) -> frozenset[str]:
        loader = GlobalHydra.instance().config_loader()
        return frozenset(loader.get_group_options(group, kind, overrides=self._where))


def show(words: Sequence[str]) -> None:
    """Let Hydra show what its flags among the words ask for; raises UsageError."""
    defaults.register()
    with explained(), _as_called(words):
        hydra_main(version_base=_BASE, config_path="pkg://conf", config_name=_CONFIG)(lambda _: None)()


@contextmanager
def _as_called(words: Sequence[str]) -> Iterator[None]:
    """Give words to Hydra as the command line, and let its errors through; it would print them and exit with 1."""
    argv, full = sys.argv, os.environ.get(FULL_ERROR)
    sys.argv, os.environ[FULL_ERROR] = ["campaign", *words], "1"
    try:
        yield
    finally:
        sys.argv = argv
        os.environ.pop(FULL_ERROR)
        if full is not None:
            os.environ[FULL_ERROR] = full
