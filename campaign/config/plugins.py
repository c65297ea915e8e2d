"""The sweeper and the launcher of ours that Hydra hands the grid to; neither runs anything. Files are read once.

Imported only after Hydra has scanned its plugins: the scan loads its own `BasicSweeper` again, and a class made from an
earlier import of it would not fit.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from campaign.config.compose import compose_all
from jobs.model.conduct import Point

# Hydra would copy all schemas at each composition, and copies again what it takes from them.
StructuredConfigSource.__deepcopy__ = lambda source, _: copy.copy(source)  # type: ignore[attr-defined]
COLLECTED: list[list[Point]] = []  # one list of points for each batch that the sweeper launched
OF_EACH_POINT: list[str] = []  # words that are added to each point


class CollectLauncher(Launcher):
    """Composes the points of the grid and runs none of them."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what composing needs."""
        del task_function
        self.loader, self.config = hydra_context.config_loader, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Compose the points; answer each with the completed nothing that any sweeper accepts."""
        del initial_job_idx
        points = [[*words, *OF_EACH_POINT] for words in job_overrides]
        COLLECTED.append(composed := [])
        for point in compose_all(self.loader, self.config, points):
            composed.append(point)  # noqa: PERF402 - those before one that is refused are kept
        return [JobReturn(_return_value=None, status=JobStatus.COMPLETED) for _ in job_overrides]


class GridSweeper(BasicSweeper):
    """Hydra's basic sweeper, without composing each point once more to validate it and without ``multirun.yaml``."""

    def sweep(self, arguments: list[str]) -> Any:
        """Expand the product of `arguments` over the recipe's own ``hydra.sweeper.params``."""
        assert self.hydra_context is not None and self.launcher is not None  # noqa: S101, PT018 - set by setup()
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        batches = self.split_arguments(overrides, self.max_batch_size)
        return [self.launcher.launch(batch, initial_job_idx=0) for batch in batches]


class PackagedFiles(ImportlibResourcesConfigSource):
    """Hydra's source of files in packages, which do not change while we run; it would read them at each composition."""

    _known: dict[tuple[str, ...], ConfigResult] = {}  # noqa: RUF012 - of the process

    def _read_config(self, res: Any) -> ConfigResult:
        key = (str(res), self.provider, self.path)
        if key not in self._known:
            self._known[key] = super()._read_config(res)
        return copy.deepcopy(self._known[key])
