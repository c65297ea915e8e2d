"""The registry of benchmarks: finds every module of this package that defines ``BENCHMARK``."""

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
    """Return the benchmark that the settings of a cell name."""
    return benchmarks()[settings["benchmark"]["name"]]


def imports_of(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the modules to import, and the functions to call, before the runs of these cells are forked.

    `cells` has the settings of each cell. The list has no duplicates.
    """
    return [*dict.fromkeys(name for cell in cells for name in benchmark_of(cell).imports_of(cell["benchmark"]))]


def benchmarks_with_tensorflow(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the benchmarks in `cells` (settings of cells) whose runs use TensorFlow."""
    return sorted({cell["benchmark"]["name"] for cell in cells if "tensorflow" in imports_of([cell])})


def names_of(attribute: str) -> list[str]:
    """Return the names of the benchmarks whose attribute with this name, such as ``computes`` or ``saves``, is true."""
    return [name for name, benchmark in benchmarks().items() if getattr(benchmark, attribute)]
