"""Types of the configuration; the values stand in ``conf/``.

The schemas are closed (an unknown key is an error) and mutable (a frozen one could not be overridden on the command
line). Limits of the values are checked in `campaign.limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING


class Cache(Enum):
    """State of the page cache that a run starts from."""

    cold = "cold"
    warm = "warm"
    as_is = "as_is"


@dataclass
class Micro:
    """Group ``benchmark``, choice ``micro``."""

    name: str = MISSING
    preprocess: bool = MISSING
    image_size: int = MISSING
    ignore_errors: bool = MISSING
    autotune: bool = MISSING
    map_and_batch_fusion: bool = MISSING
    deterministic: bool = MISSING
    private_threads: int | None = MISSING


@dataclass
class Synthetic:
    """Group ``dataset``: images made from a seed."""

    name: str = MISSING
    files: int = MISSING
    median_bytes: int = MISSING
    sigma: float = MISSING
    width: int = MISSING
    height: int = MISSING
    classes: int = MISSING
    seed: int = MISSING


@dataclass
class Folder:
    """Group ``dataset``: the user's own images."""

    name: str = MISSING
    path: str = MISSING


@dataclass
class Storage:
    """Group ``storage``."""

    name: str = MISSING
    root: str = MISSING


@dataclass
class Cluster:
    """Group ``cluster``."""

    name: str = MISSING


@dataclass
class Checks:
    """Node ``checks``."""

    resident_max: float = MISSING
    device_bytes_min: float = MISSING
    time_error_max: float = MISSING
    other_mb_per_s_max: float = MISSING
    other_cpu_max: float = MISSING
    spread_max: float = MISSING


@dataclass
class Campaign:
    """The whole configuration."""

    benchmark: Any = MISSING
    dataset: Any = MISSING
    storage: Storage = MISSING
    cluster: Cluster = MISSING
    threads: int = MISSING
    batch_size: int = MISSING
    prefetch: int = MISSING
    iterations: int | None = MISSING
    seed: int = MISSING
    cache: Cache = MISSING
    runs: int = MISSING
    warmup_runs: int = MISSING
    min_valid_runs: int = MISSING
    run_timeout_s: float = MISSING
    order_seed: int = MISSING
    redo: bool = MISSING
    campaign_dir: str = MISSING
    checks: Checks = field(default_factory=Checks)


def register() -> None:
    """Store the schemas under ``schema/``, where Hydra offers them to nobody as a choice."""
    store = ConfigStore.instance()
    store.store(group="schema", name="campaign", node=Campaign, package="_global_")
    store.store(group="schema/benchmark", name="micro", node=Micro)
    store.store(group="schema/dataset", name="synthetic", node=Synthetic)
    store.store(group="schema/dataset", name="folder", node=Folder)
    store.store(group="schema", name="storage", node=Storage)
    store.store(group="schema", name="cluster", node=Cluster)
