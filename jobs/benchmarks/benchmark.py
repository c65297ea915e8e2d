"""How a benchmark describes itself: whoever asks what it is, reads or reports asks this description, not its name."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.model.declared import Keys, declared, defaults
from jobs.model.request import Request
from jobs.model.results import Run
from jobs.model.settings import EVERY, Common, Named, Node, ObjectStorage, Profile, Settings, Storage
from jobs.ready_run import Work

BY_HAND = ("threads", "batch_size", "prefetch", "iterations", "seed", "cache", "reader")
_ANY_ACCELERATOR = {"name": "auto", "step_s": None}
Kind = Literal["storage", "pipeline", "training", "program"]


def _outside(*kinds: type[Keys]) -> tuple[str, ...]:
    return tuple(name for kind in kinds for name, each in declared(kind).items() if not each.setting.cell)


OUTSIDE = {"storage": _outside(Storage, ObjectStorage), "profile": _outside(Profile)}
"""The keys of settings that are no part of what a cell is."""


def _of_cell(value: Any, outside: Container[str]) -> Any:
    return {key: each for key, each in value.items() if key not in outside} if outside else value


def _watched(profile: Node) -> Node:
    """Return what of a node ``profile`` acts: nothing where no call is seen, and no parts of what is not traced."""
    asked = {**defaults(Profile), **profile}
    if asked["posix"] != "trace":
        del asked["every"]
    return {} if asked["posix"] == asked["tensorflow"] == "none" else asked


@dataclass(frozen=True)
class Figure:
    """A figure of a run: its key there, its unit, and whether ``higher`` or ``lower`` is better."""

    key: str
    unit: str
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark; where an answer depends on its settings, it overrides the method that gives it."""

    name: str  # everywhere
    version: int  # raised when the meaning of a figure changes: figures never mix versions
    # ``pipeline``, ``training``, ``program``, or ``storage``, which is measured first: the others are judged by what a
    # storage gives.
    kind: Kind
    keys: type[Named]  # its own keys
    begin: Callable[[Request], AbstractContextManager[Work]]  # makes a run ready: a context that gives its `Work`
    figure: Figure  # its figure of merit
    about: str = ""  # what it does, in the help of runs by hand
    rate: Figure | None = None  # the rate whose spread over the runs of a cell is judged; None: the figure of merit
    # What is prepared for it on the storage: ``images``, ``files`` of any kind, files in ``hdf5``, a ``file``, or
    # ``nothing``.
    data: Literal["images", "files", "hdf5", "file", "nothing"] = "images"
    settings: tuple[str, ...] = EVERY  # the settings that can change its result
    own_defaults: Mapping[str, Any] = field(default_factory=dict)  # of its other settings, by dotted key
    computes: bool = False  # whether the accelerator acts on it
    emulates: bool = False  # whether its steps are emulated, unless the site or the user names an accelerator
    saves: bool = False  # whether it saves snapshots
    several_nodes: bool = False  # whether a run of it may have several ranks (`jobs.ranks.here`)
    whole_batches: bool = False  # whether it takes whole batches only
    imports: tuple[str, ...] = ("tensorflow", "jobs.benchmarks.first_use:before_fork")  # before its runs are forked
    any_name: bool = False  # whether it takes files of any name as images
    ending_s: float = 0.0  # beyond run_timeout_s, in which it ends what it has started
    # The parts of its wall time, where a run does not name them itself.
    wall_parts: tuple[str, ...] = ("load_s", "compute_s", "checkpoint_s", "other_s")

    @property
    def any_kind(self) -> bool:
        """Whether every file of a folder is read, whatever its name."""
        return self.any_name or self.data == "files"

    @property
    def defaults(self) -> dict[str, Any]:
        """Settings of a run by hand."""
        found = {"benchmark": {"name": self.name, **defaults(self.keys)}}
        common = {**defaults(Common), **self.own_defaults}
        found |= {name: common[name] for name in self.options}
        if self.computes:
            step_s = self.own_defaults.get("accelerator.step_s")
            found["accelerator"] = {"name": "emulated", "step_s": step_s} if self.emulates else _ANY_ACCELERATOR
        return found | ({"checkpoint": {"name": "none"}} if self.saves else {})

    @property
    def options(self) -> list[str]:
        """Name those settings beside its own keys that a run by hand has options for."""
        return [name for name in BY_HAND if name in self.settings and (name != "reader" or self.data == "hdf5")]

    def figure_of(self, _node: Node) -> Figure:
        """Return the figure of merit of a cell; `node` is the node ``benchmark`` of its settings."""
        return self.figure

    def rate_of(self, node: Node) -> Figure:
        """Return the rate whose spread is judged."""
        return self.rate or self.figure_of(node)

    def acting(self, point: Mapping[str, Any]) -> Settings:
        """Return the settings that can change the result of a cell; `point` may have any others beside them."""
        found = {name: value for name, value in point.items() if name in self.settings}
        if self.data != "hdf5":
            found.pop("reader", None)
        if found.get("nodes", 1) == 1:
            found.pop("sync", None)  # with whom
        if found.get("staging") == "none":
            del found["staging"]
        if watched := _watched(found.pop("profile", {})):
            found["profile"] = watched
        return {name: _of_cell(value, OUTSIDE.get(name, ())) for name, value in found.items()}

    def words(self, _node: Node) -> list[str]:
        """Return the words that a cell's id begins with."""
        return [self.name]

    def page_cache(self, settings: Settings) -> str:
        """Return the state of the page cache that a run must have: ``cold``, ``warm`` or ``as_is``, which is any."""
        reads_no_data = settings["benchmark"].get("control") in ("no_io", "metadata")
        return "as_is" if reads_no_data else settings.get("cache", "as_is")

    def combined(self, _ranks: Sequence[Run]) -> dict[str, Any]:
        """Return what a whole run has of its ranks' figures beyond their sums (`jobs.benchmarks.whole_run`)."""
        return {}

    def refusal(self, _values: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the error and the cure for settings (flat) that are legal alone and impossible together, or None."""
        return None
