"""The group ``site``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from campaign.config.keys.storage import SiteStorage
from jobs.settings import key

YEAR_MIN = 365 * 24 * 60


@dataclass
class Site:
    """Group ``site``."""

    name: str = MISSING
    partition: str | None = MISSING
    account: str | None = MISSING
    qos: str | None = MISSING
    constraint: str | None = MISSING
    pool: str | None = MISSING
    gpus_per_node: int | None = key(MISSING, 0, 64)
    mem_gb: float | None = key(MISSING, 0.001, 100_000)
    wckey: str | None = MISSING
    comment: str | None = MISSING
    modules: list[str] = MISSING
    prelude: list[str] = MISSING
    timeout_max_min: int | None = key(MISSING, 1, YEAR_MIN)
    ask_above_node_hours: float = key(MISSING, 0, 1e9)
    accelerator: str = MISSING
    spread_max: float = key(MISSING, 0, 100)
    other_cpu_max: float = key(MISSING, 0, 1e4)
    throttled_max: float = key(MISSING, 0, 1e4)
    storages: dict[str, SiteStorage] = MISSING
