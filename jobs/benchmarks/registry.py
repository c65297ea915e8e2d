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


def benchmark_of(settings: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark named in the settings of a cell."""
    return benchmarks()[settings["benchmark"]["name"]]


def imports_of(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is imported before the runs of these cells are forked, each once; `cells` are settings of cells."""
    return [*dict.fromkeys(name for cell in cells for name in benchmark_of(cell).imports_of(cell["benchmark"]))]


def benchmarks_with_tensorflow(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of those benchmarks whose runs use TensorFlow; `cells` are settings of cells."""
    return sorted({cell["benchmark"]["name"] for cell in cells if "tensorflow" in imports_of([cell])})


def names_of(attribute: str) -> list[str]:
    """Return the names of the benchmarks for which `attribute` (``computes``, ``saves``, …) is true."""
    return [name for name, benchmark in benchmarks().items() if getattr(benchmark, attribute)]
