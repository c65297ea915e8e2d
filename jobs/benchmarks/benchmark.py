"""The description of a benchmark; other modules use this description and never test the name of a benchmark."""

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

BY_HAND = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache", "reader")
_ANY_ACCELERATOR = {"name": "auto", "step_s": None}
Kind = Literal["storage", "pipeline", "training", "program"]


def _keys_outside_id(*kinds: type[Keys]) -> tuple[str, ...]:
    return tuple(
        name for kind in kinds for name, setting in declared_settings(kind).items() if not setting.setting.cell
    )


OUTSIDE = {
    "storage": _keys_outside_id(Storage, ObjectStorage),
    "profile": _keys_outside_id(Profile),
    "accelerator": _keys_outside_id(DefinedAccelerator),
}
"""The keys of the settings that are not part of a cell's id, by node."""


def _keep_in_id(value: Any, outside: Container[str]) -> Any:
    return {key: item for key, item in value.items() if key not in outside} if outside else value


def _effective_profile(profile: Node) -> Node:
    """Return the keys of a node ``profile`` that have an effect: none without a profile, ``every`` only for a trace."""
    keys = {**declared_defaults(Profile), **profile}
    if keys["posix"] != "trace":
        del keys["every"]
    return {} if keys["posix"] == keys["tensorflow"] == "none" else keys


@dataclass(frozen=True)
class Figure:
    """A metric of a run: its key in the record, its unit, and whether a ``higher`` or a ``lower`` value is better."""

    key: str
    unit: str
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True)
class Benchmark:
    """The description of a benchmark; a subclass overrides the methods whose result depends on the settings."""

    name: str  # name in settings, ids and records
    version: int  # raised if the meaning of a metric changes; charts never mix versions
    # ``pipeline``, ``training``, ``program``, or ``storage``; ``storage`` is measured first, because the other kinds
    # are judged against the speed of the storage.
    kind: Kind
    keys: type[NodeWithName]  # its own keys
    begin: Callable[[RunRequest], AbstractContextManager[ReadyRun]]  # returns the context of a ready run
    figure: Figure  # main metric
    about: str = ""  # description in the help of runs by hand
    rate: Figure | None = None  # the rate whose spread over the runs of a cell is judged; None: the main metric
    # The data that the benchmark needs on the storage: ``images``, ``files`` of any kind, ``hdf5`` files, one ``file``,
    # or ``nothing``.
    data: Literal["images", "files", "hdf5", "file", "nothing"] = "images"
    settings: tuple[str, ...] = EVERY  # the settings that can change its result
    own_defaults: Mapping[str, Any] = field(default_factory=dict)  # defaults of common settings, by dotted key
    computes: bool = False  # whether the accelerator has an effect
    emulates: bool = False  # whether its steps are emulated, unless the site or the user names an accelerator
    saves: bool = False  # whether it saves snapshots
    several_nodes: bool = False  # whether a run may have several ranks (`jobs.ranks.this_rank`)
    whole_batches: bool = False  # whether it uses only full batches
    imports: tuple[str, ...] = (
        "tensorflow",
        "jobs.benchmarks.accelerator:prepare_fork",
    )  # modules to import before its runs are forked
    any_name: bool = False  # whether files with any name are images
    ending_s: float = 0.0  # seconds after run_timeout_s to end its processes
    # The parts of the wall time, unless a run names others.
    wall_parts: tuple[str, ...] = ("load_s", "compute_s", "checkpoint_s", "other_s")

    @property
    def any_kind(self) -> bool:
        """Return whether all files of a folder are read, with any name."""
        return self.any_name or self.data == "files"

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the default settings of a run by hand."""
        settings = {"benchmark": {"name": self.name, **declared_defaults(self.keys)}}
        common = {**declared_defaults(Common), **self.own_defaults}
        settings |= {name: common[name] for name in self.options}
        if self.computes:
            step_s = self.own_defaults.get("accelerator.step_s")
            settings["accelerator"] = {"name": "emulated", "step_s": step_s} if self.emulates else _ANY_ACCELERATOR
        return settings | ({"checkpoint": {"name": "none"}} if self.saves else {})

    @property
    def options(self) -> list[str]:
        """Return the common settings for which a run by hand has options, in addition to the benchmark's own keys."""
        return [name for name in BY_HAND if name in self.settings and (name != "reader" or self.data == "hdf5")]

    def imports_of(self, _node: Node) -> tuple[str, ...]:
        """Return the modules and functions that come before the fork of a run; `node` is as in `figure_of`."""
        return self.imports

    def figure_of(self, _node: Node) -> Figure:
        """Return the main metric of a cell; `node` is the node ``benchmark`` of the cell's settings."""
        return self.figure

    def rate_of(self, node: Node) -> Figure:
        """Return the metric whose spread over the runs of a cell is judged; `node` is as in `figure_of`."""
        return self.rate or self.figure_of(node)

    def acting_settings(self, point: Mapping[str, Any]) -> Settings:
        """Return the settings that can change the result of a cell; `point` has all settings."""
        settings = {name: value for name, value in point.items() if name in self.settings}
        if self.data != "hdf5":
            settings.pop("reader", None)
        if settings.get("nodes", 1) == 1:
            settings.pop("sync", None)  # there is only one rank
        if settings.get("staging") == "none":
            del settings["staging"]
        if profile := _effective_profile(settings.pop("profile", {})):
            settings["profile"] = profile
        return {name: _keep_in_id(value, OUTSIDE.get(name, ())) for name, value in settings.items()}

    def words(self, _node: Node) -> list[str]:
        """Return the words at the begin of a cell's id."""
        return [self.name]

    def page_cache(self, settings: Settings) -> str:
        """Return the state of the page cache that a run requires: ``cold``, ``warm``, or ``as_is`` for any state."""
        reads_no_data = settings["benchmark"].get("control") in ("no_io", "metadata")
        return "as_is" if reads_no_data else settings.get("cache", "as_is")

    def combined_metrics(self, _ranks: Sequence[Run]) -> dict[str, Any]:
        """Return additional metrics of a run over all ranks that are no simple sums (`jobs.ranks.hub`)."""
        return {}

    def refusal(self, _values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return error and cure if these settings (by dotted key) are impossible together; else None."""
        return None
