"""The registry of benchmarks: every module of this package that has a ``BENCHMARK``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from jobs.benchmarks.benchmark import Benchmark
from jobs.model.declared import find_declared


@lru_cache(maxsize=1)
def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks, by name."""
    return {each.name: each for each in find_declared("jobs.benchmarks", "BENCHMARK")}


def of(settings: Mapping[str, Any]) -> Benchmark:
    """Return the benchmark that these settings of a cell name."""
    return benchmarks()[settings["benchmark"]["name"]]


def needing_tensorflow(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of those benchmarks whose runs use TensorFlow; `cells` are settings of cells."""
    names = (cell["benchmark"]["name"] for cell in cells if "tensorflow" in of(cell).imported(cell["benchmark"]))
    return sorted({*names})


def names_of(what: str) -> list[str]:
    """Return the names of the benchmarks whose attribute `what` (``computes``, ``saves``, …) is true."""
    return [name for name, each in benchmarks().items() if getattr(each, what)]
