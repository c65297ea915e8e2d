"""The group ``checkpoint``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks, names_of

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "checkpoint.every": (1, 10**9),
    "checkpoint.keep": (1, 1000),
    "checkpoint.in_flight": (1, 64),
    "checkpoint.bandwidth_mb_per_s": (0.001, 1e6),
    "checkpoint.streams": (1, 256),
    "drain_timeout_s": (0, 7 * 24 * 3600),
}
STORAGES = ("checkpoint", "checkpoint.fast", "checkpoint.slow")  # that have a name and a root, where they are there
Mode = Enum("Mode", {"sync": "sync", "async": "async"})
Mode.__doc__ = "What stands still while a snapshot is saved; one of the words is a word of Python's."


class WhenFull(Enum):
    """What becomes of a snapshot for which the fast storage has no room."""

    block = "block"
    fall_through = "fall_through"


@dataclass
class NoCheckpoint:
    """Group ``checkpoint``, choice ``none``."""

    name: str = MISSING


@dataclass
class _Saved:
    """What every other choice of the group ``checkpoint`` says of its snapshots."""

    name: str = MISSING
    every: int = MISSING
    keep: int = MISSING
    mode: Mode = MISSING
    in_flight: int = MISSING


@dataclass
class Direct(_Saved):
    """Group ``checkpoint``, the choices that are a storage."""

    root: str | None = MISSING


@dataclass
class Side:
    """One of the two storages of a burst buffer."""

    name: str = MISSING
    root: str | None = MISSING


@dataclass
class Buffered(_Saved):
    """Group ``checkpoint``, choice ``burst_buffer``."""

    fast: Side = field(default_factory=Side)
    slow: Side = field(default_factory=Side)
    when_full: WhenFull = MISSING
    bandwidth_mb_per_s: float | None = MISSING
    direct: bool = MISSING
    streams: int = MISSING


def check(values: Mapping[str, Any]) -> None:
    """Refuse a target that is nowhere or no target, and keys that would do nothing."""
    name = values["checkpoint.name"]
    if (name == "none", name == "burst_buffer") != ("checkpoint.every" not in values, "checkpoint.streams" in values):
        raise UsageError(
            f"checkpoint.name={name} does not fit the other keys of checkpoint", f"write checkpoint={name}"
        )
    if name == "none":
        return
    if not benchmarks()[values["benchmark.name"]].saves:
        raise UsageError(
            f"checkpoint={name}: benchmark={values['benchmark.name']} trains nothing",
            f"benchmark={' or '.join(names_of('saves'))}, or leave checkpoint away",
        )
    for key in STORAGES:
        if f"{key}.root" in values and values[f"{key}.root"] is None:
            raise _no_root(key, values)
    if name == "burst_buffer" and _is_one(values["checkpoint.fast.root"], values["checkpoint.slow.root"]):
        raise UsageError(
            f"checkpoint.fast and checkpoint.slow are both in {values['checkpoint.fast.root']}", "name two storages"
        )
    if values["checkpoint.mode"] == "sync" and values["checkpoint.in_flight"] > 1:
        raise UsageError(
            f"checkpoint.in_flight={values['checkpoint.in_flight']} with checkpoint.mode=sync: there is no copy",
            "checkpoint.mode=async, or leave in_flight away",
        )


def _is_one(fast: str, slow: str) -> bool:
    one, other = (Path(root).expanduser().resolve() for root in (fast, slow))
    return one == other


def something_to_save(every: int | None, iterations: int | None, batch_size: int, files: int) -> None:
    """Refuse an interval that is longer than the training."""
    steps = max(1, files // batch_size) if iterations is None else iterations
    if every is not None and every > steps:
        raise UsageError(
            f"checkpoint.every={every} saves nothing in {steps} iterations", f"checkpoint.every={steps} or less"
        )


def _no_root(key: str, values: Mapping[str, Any]) -> UsageError:
    storage, site = values[f"{key}.name"], values["site.name"]
    return UsageError(
        f"checkpoint={values['checkpoint.name']}: storage {storage} has no root here",
        f"{key}.root=…, or site=… with a file that gives storages.{storage}.root (site={site} does not)",
    )
