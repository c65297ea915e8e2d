"""The group ``site``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from omegaconf import MISSING

from campaign.config.keys.storage import SiteStorage
from campaign.errors import UsageError
from jobs.model.conduct import Flat
from jobs.model.settings import key

YEAR_MIN = 365 * 24 * 60


class MakeData(Enum):
    """Where data above ``login_data_gb`` are made for a campaign on Slurm."""

    login = "login"
    job = "job"
    ask = "ask"


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
    make_data: MakeData = MISSING
    login_data_gb: float = key(MISSING, 0, 1e9)
    login_processes: int = key(MISSING, 1, 1024)
    accelerator: str = MISSING
    spread_max: float = key(MISSING, 0, 100)
    other_cpu_max: float = key(MISSING, 0, 1e4)
    throttled_max: float = key(MISSING, 0, 1e4)
    trusted_network: bool = MISSING
    storages: dict[str, SiteStorage] = MISSING


def check(values: Flat) -> None:
    """Refuse TensorFlow's ring where others may reach the nodes: its servers ask for no secret."""
    if values["sync"] == "ring" and not values["site.trusted_network"]:
        raise UsageError(
            "sync=ring without site.trusted_network=true: whoever reaches a node's port can run operations as you",
            "sync=allreduce adds up through a hub that asks for a secret; site.trusted_network=true only where nobody "
            "else has the nodes or reaches their network",
        )
