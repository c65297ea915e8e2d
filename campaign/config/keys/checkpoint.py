"""Types of the group ``checkpoint``, as in `campaign.config.schema`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from omegaconf import MISSING

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
