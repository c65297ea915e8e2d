"""The registry of benchmarks: all modules of this package with a ``BENCHMARK``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jobs.benchmarks.benchmark import Benchmark
from jobs.model.declared import find_declared


@lru_cache(maxsize=1)
def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks, by name."""
    return {benchmark.name: benchmark for benchmark in find_declared("jobs.benchmarks", "BENCHMARK")}


def of(settings: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark named in the settings of a cell."""
    return benchmarks()[settings["benchmark"]["name"]]


def needing_tensorflow(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the benchmarks that use TensorFlow; `cells` are settings of cells."""
    return sorted({benchmark.name for benchmark in map(of, cells) if "tensorflow" in benchmark.imports})


def names_of(attribute: str) -> list[str]:
    """Return the names of the benchmarks for which `attribute` (``computes``, ``saves``, …) is true."""
    return [name for name, benchmark in benchmarks().items() if getattr(benchmark, attribute)]
