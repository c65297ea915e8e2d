"""The benchmarks that there are: every module of this package that has a ``BENCHMARK``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jobs.benchmarks.benchmark import Benchmark
from jobs.system.modules import declared


@lru_cache(maxsize=1)
def benchmarks() -> dict[str, Benchmark]:
    """Return the benchmarks by name."""
    return {each.name: each for each in declared("jobs.benchmarks", "BENCHMARK")}


def of(settings: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark of a cell's settings."""
    return benchmarks()[settings["benchmark"]["name"]]


def names_of(what: str) -> list[str]:
    """Name the benchmarks that ``computes``, ``saves`` or another such attribute holds of."""
    return [name for name, each in benchmarks().items() if getattr(each, what)]
