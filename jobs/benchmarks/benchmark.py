"""The class `Benchmark`, which describes a benchmark; other modules read this description, not the benchmark's name."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.model.declared import Keys, declared_defaults, declared_settings
from jobs.model.results import Run
from jobs.model.settings import (
    EVERY,
    Common,
    DefinedAccelerator,
    Node,
    NodeWithName,
    ObjectStorage,
    Profile,
    Settings,
    Storage,
)
from jobs.model.work import RunRequest
from jobs.ready_run import ReadyRun

OPTIONS_BY_HAND = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache", "reader")
_ANY_ACCELERATOR = {"name": "auto", "step_s": None}
Kind = Literal["storage", "pipeline", "training", "program"]


def _keys_outside_id(*kinds: type[Keys]) -> tuple[str, ...]:
    return tuple(
        name for kind in kinds for name, setting in declared_settings(kind).items() if not setting.setting.cell
    )


KEYS_OUTSIDE_CELL_ID = {
    "storage": _keys_outside_id(Storage, ObjectStorage),
    "profile": _keys_outside_id(Profile),
    "accelerator": _keys_outside_id(DefinedAccelerator),
}
"""For each node of the settings, the keys that are not part of a cell's id."""


def _keep_in_id(value: Any, outside: Container[str]) -> Any:
    return {key: item for key, item in value.items() if key not in outside} if outside else value


def _effective_profile(profile: Node) -> Node:
    """Return the keys of a node ``profile`` that have an effect.

    No key has an effect if the run records no profile. The key ``every`` has an effect only for ``posix=trace``.
    """
    keys = {**declared_defaults(Profile), **profile}
    if keys["posix"] != "trace":
        del keys["every"]
    return {} if keys["posix"] == keys["tensorflow"] == "none" else keys


@dataclass(frozen=True)
class Figure:
    """A metric of a run: its key in the record, its unit, and whether higher or lower values are better."""

    key: str
    unit: str
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True)
class Benchmark:
    """The description of a benchmark; a subclass overrides the methods whose result depends on the settings."""

    name: str  # name of the benchmark in settings, ids and records
    version: int  # number that is raised if the meaning of a metric changes; no chart mixes two versions
    # ``storage`` benchmarks are measured before the other kinds, because the results of the other kinds are compared
    # with the speed of the storage.
    kind: Kind
    keys: type[NodeWithName]  # declaration of the keys that only this benchmark has
    begin: Callable[[RunRequest], AbstractContextManager[ReadyRun]]  # returns a context manager that yields the run
    figure: Figure  # main metric of a run
    about: str = ""  # description of the benchmark in the help of ``python -m jobs``
    rate: Figure | None = None  # metric whose spread over the runs of a cell is judged; None: the main metric
    # The data that the benchmark needs on the storage: ``images``, ``files`` of any kind, ``hdf5`` files, one ``file``,
    # or ``nothing``.
    data: Literal["images", "files", "hdf5", "file", "nothing"] = "images"
    settings: tuple[str, ...] = EVERY  # names of the settings that can change the benchmark's result
    # Defaults of common settings that differ for this benchmark, by dotted key.
    own_defaults: Mapping[str, Any] = field(default_factory=dict)
    computes: bool = False  # whether the benchmark runs training steps, so that the accelerator has an effect
    emulates: bool = False  # whether the default accelerator is the emulated accelerator
    saves: bool = False  # whether the benchmark can save snapshots
    several_nodes: bool = False  # whether a run may have several ranks (`jobs.ranks.this_rank`)
    whole_batches: bool = False  # whether an incomplete last batch is left out
    # Modules, and functions as ``module:function``, that the parent process loads before it forks the runs.
    imports: tuple[str, ...] = (
        "tensorflow",
        "jobs.benchmarks.accelerator:prepare_fork",
    )
    any_name: bool = False  # whether a file with any name counts as an image
    ending_s: float = 0.0  # seconds that a run may take after run_timeout_s to end its processes
    # Names of the metrics that divide the wall time. The metrics of a run can name other parts.
    wall_parts: tuple[str, ...] = ("load_s", "compute_s", "checkpoint_s", "other_s")

    @property
    def any_kind(self) -> bool:
        """Return whether the benchmark reads every file of a folder, whatever its name."""
        return self.any_name or self.data == "files"

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the default settings of a run by hand (``python -m jobs``)."""
        settings = {"benchmark": {"name": self.name, **declared_defaults(self.keys)}}
        common = {**declared_defaults(Common), **self.own_defaults}
        settings |= {name: common[name] for name in self.options}
        if self.computes:
            step_s = self.own_defaults.get("accelerator.step_s")
            settings["accelerator"] = {"name": "emulated", "step_s": step_s} if self.emulates else _ANY_ACCELERATOR
        return settings | ({"checkpoint": {"name": "none"}} if self.saves else {})

    @property
    def options(self) -> list[str]:
        """Return the names of the common settings that are command-line options of a run by hand."""
        return [name for name in OPTIONS_BY_HAND if name in self.settings and (name != "reader" or self.data == "hdf5")]

    def imports_of(self, _node: Node) -> tuple[str, ...]:
        """Return the modules to import, and the functions to call, before the runs of a cell are forked.

        `_node` is the node ``benchmark`` of the cell's settings.
        """
        return self.imports

    def figure_of(self, _node: Node) -> Figure:
        """Return the main metric of a cell; `_node` is the node ``benchmark`` of the cell's settings."""
        return self.figure

    def rate_of(self, node: Node) -> Figure:
        """Return the metric whose spread over the runs of a cell is judged.

        `node` is the node ``benchmark`` of the cell's settings.
        """
        return self.rate or self.figure_of(node)

    def effective_settings(self, point: Mapping[str, Any]) -> Settings:
        """Return those settings of a cell that can change its result; `point` has all settings of the cell."""
        settings = {name: value for name, value in point.items() if name in self.settings}
        if self.data != "hdf5":
            settings.pop("reader", None)
        if settings.get("nodes", 1) == 1:
            settings.pop("sync", None)  # a single rank has no other rank to synchronise with
        if settings.get("staging") == "none":
            del settings["staging"]
        if profile := _effective_profile(settings.pop("profile", {})):
            settings["profile"] = profile
        return {name: _keep_in_id(value, KEYS_OUTSIDE_CELL_ID.get(name, ())) for name, value in settings.items()}

    def id_words(self, _node: Node) -> list[str]:
        """Return the words with which a cell's id begins."""
        return [self.name]

    def page_cache(self, settings: Settings) -> str:
        """Return the state of the page cache that a run needs: ``cold``, ``warm``, or ``as_is`` for any state."""
        reads_no_data = settings["benchmark"].get("control") in ("no_io", "metadata")
        return "as_is" if reads_no_data else settings.get("cache", "as_is")

    def combined_metrics(self, _ranks: Sequence[Run]) -> dict[str, Any]:
        """Return the metrics over all ranks of a run that `jobs.ranks.hub` cannot compute as sums."""
        return {}

    def settings_error(self, _values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return an error message and its cure if these settings cannot be used together, else None.

        `_values` has the value of each setting by its dotted key, such as ``storage.kind``.
        """
        return None
