"""The group ``checkpoint``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from omegaconf import MISSING

from campaign.config.keys.storage import no_root, of_endpoint
from campaign.errors import UsageError, refuse
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.errors import FolderError
from jobs.model.conduct import Flat
from jobs.model.settings import key
from jobs.objects.address import shown, storage_of

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
    every: int = key(MISSING, 1, 10**9)
    keep: int = key(MISSING, 1, 1000)
    mode: Mode = MISSING
    in_flight: int = key(MISSING, 1, 64)


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
    bandwidth_mb_per_s: float | None = key(MISSING, 0.001, 1e6)
    direct: bool = MISSING
    streams: int = key(MISSING, 1, 256)


def check(values: Flat) -> None:
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
    for place in STORAGES:
        if f"{place}.root" in values and values[f"{place}.root"] is None:
            raise no_root(place, f"checkpoint={name}: storage {values[f'{place}.name']}", values)
        _of_bucket(place, values)
    if name == "burst_buffer":
        fast, slow = (values[f"checkpoint.{side}.root"] for side in ("fast", "slow"))
        if "://" not in slow and Path(fast).expanduser().resolve() == Path(slow).expanduser().resolve():
            raise UsageError(f"checkpoint.fast and checkpoint.slow are both in {fast}", "name two storages")
    if values["checkpoint.mode"] == "sync" and values["checkpoint.in_flight"] > 1:
        raise UsageError(
            f"checkpoint.in_flight={values['checkpoint.in_flight']} with checkpoint.mode=sync: there is no copy",
            "checkpoint.mode=async, or leave in_flight away",
        )


def _of_bucket(place: str, values: Flat) -> None:
    """Refuse a bucket where a folder is needed, and what cannot be done with one."""
    root = str(values.get(f"{place}.root") or "")
    if "://" not in root:
        return
    if place != "checkpoint.slow":
        raise UsageError(
            f"{place} is a bucket, and TensorFlow writes files",
            "checkpoint=burst_buffer: checkpoint.fast is a folder, checkpoint.slow may be a bucket",
        )
    if values.get(said := f"site.storages.{values[f'{place}.name']}.endpoint"):
        refuse(of_endpoint(said, values))
    try:
        storage_of(root)
    except FolderError as error:
        raise UsageError(f"checkpoint.slow.root={shown(root)}: {error.message}", error.hint) from error
    refuse(
        (
            f"checkpoint.{word}={values[f'checkpoint.{word}']} with a bucket, which the drainer alone fills",
            f"checkpoint.{word}={str(only).lower()}",
        )
        for word, only in (("when_full", "block"), ("direct", False))
        if values[f"checkpoint.{word}"] != only
    )
