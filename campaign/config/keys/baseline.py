"""The group ``benchmark``, choice ``baseline``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING

from campaign.errors import UsageError
from jobs.benchmarks.engines.engine import IOR

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "benchmark.file_mb": (1, 10**7),
    "benchmark.transfer_mib": (1, 1024),
    "benchmark.seconds_max": (0.1, 3600),
}


class Access(Enum):
    """What a baseline does to its file."""

    write = "write"
    read = "read"
    random_read = "random_read"


class Engine(Enum):
    """What does it."""

    auto = "auto"
    ior = "ior"
    fio = "fio"
    builtin = "builtin"


@dataclass
class Baseline:
    """Group ``benchmark``, choice ``baseline``."""

    name: str = MISSING
    access: Access = MISSING
    engine: Engine = MISSING
    file_mb: int = MISSING
    transfer_mib: int = MISSING
    seconds_max: float = MISSING


def check(values: Mapping[str, Any]) -> None:
    """Refuse what is no baseline of a storage.

    Raises
    ------
    UsageError
        Naming the key, and the cure.
    """
    name = values["benchmark.name"]
    if (name == "baseline") != ("benchmark.access" in values):
        raise UsageError(f"benchmark.name={name} does not fit the other keys of benchmark", f"write benchmark={name}")
    if name != "baseline":
        return
    if values["cache"] != "cold":
        raise UsageError(
            f"cache={values['cache']}: benchmark=baseline goes past the page cache", "cache=cold, which is the default"
        )
    if (values["benchmark.access"], values["benchmark.engine"]) == ("random_read", IOR):
        raise UsageError(
            "benchmark.engine=ior with benchmark.access=random_read: IOR has no threads to read with",
            "benchmark.engine=fio, builtin, or auto",
        )
