"""The group ``site``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from campaign.config.keys.storage import SiteStorage  # noqa: TC001 - OmegaConf reads the type

YEAR_MIN = 365 * 24 * 60
RANGES: dict[str, tuple[float, float]] = {
    "site.gpus_per_node": (0, 64),
    "site.timeout_max_min": (1, YEAR_MIN),
    "site.spread_max": (0, 100),
    "site.other_cpu_max": (0, 1e4),
    "site.throttled_max": (0, 1e4),
}


@dataclass
class Site:
    """Group ``site``."""

    name: str = MISSING
    partition: str | None = MISSING
    account: str | None = MISSING
    qos: str | None = MISSING
    constraint: str | None = MISSING
    gpus_per_node: int | None = MISSING
    modules: list[str] = MISSING
    timeout_max_min: int | None = MISSING
    spread_max: float = MISSING
    other_cpu_max: float = MISSING
    throttled_max: float = MISSING
    storages: dict[str, SiteStorage] = MISSING
