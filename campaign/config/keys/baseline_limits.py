"""What can be meant by the keys of ``benchmark=baseline``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from campaign.errors import UsageError
from jobs.benchmarks.engines.engine import IOR

if TYPE_CHECKING:
    from collections.abc import Mapping

RANGES: dict[str, tuple[float, float]] = {
    "benchmark.file_mb": (1, 10**7),
    "benchmark.transfer_mib": (1, 1024),
    "benchmark.seconds_max": (0.1, 3600),
}


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
