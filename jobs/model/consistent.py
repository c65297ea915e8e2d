"""Contradictions within a record whose values are all legal, such as a rate that is not amount over time."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.model.record import Record
from jobs.model.results import Run
from jobs.model.values import unprintable

# Each rate with the key of its amount, and the unit of the amount.
RATES = {
    "images_per_s": ("images", 1),
    "read_mb_per_s": ("bytes_read", 10**6),
    "write_mb_per_s": ("bytes_written", 10**6),
}
ROUNDED = 1e-3
# Without which a benchmark that makes batches of images cannot run, nor be drawn.
OF_PIPELINE = ("threads", "batch_size", "prefetch")
_WITH_PIPELINE = frozenset({"micro", "alexnet"})


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions in a judged record of the declared shape, each with its key."""
    cell = record["cell"]
    settings: Mapping[str, Any] = cell["settings"]
    for name, value in (("cell.settings", settings), ("provenance.emulated", record["provenance"].get("emulated"))):
        if (odd := unprintable(value)) is not None:
            yield f"{name} has {reprlib.repr(odd)}, which is no text for a name"
    if cell["benchmark"] in _WITH_PIPELINE:
        missing = [name for name in OF_PIPELINE if settings.get(name) is None]
        yield from (f"it has no cell.settings.{name}, without which {cell['benchmark']} cannot run" for name in missing)
    numbers = Counter(run["run"] for run in record["runs"])
    yield from (f"{count} of its runs have the number {run}" for run, count in numbers.items() if count > 1)
    for place, run in enumerate(record["runs"]):
        if run["status"] in ("running", "failed"):
            continue  # its metrics count for nothing
        yield from (f"{why} (run {run['run']})" for why in _of_run(run, f"runs[{place}]", cell["figure"]))


def _of_run(run: Run, place: str, figure: str) -> Iterator[str]:
    figures: Mapping[str, Any] = run
    wall_s, images, asked = (figures.get(name) for name in ("wall_s", "images", "images_asked"))
    for name, (moved, unit) in RATES.items():
        rate, all_moved = figures.get(name), figures.get(moved)
        if rate is None or all_moved is None or wall_s is None:
            continue
        if not math.isclose(rate * wall_s * unit, all_moved, rel_tol=ROUNDED):
            yield f"{place}.{name} is {rate:g}, and {moved} / wall_s is {all_moved / unit:g} / {wall_s:g}"
    if asked is not None and images is not None and images > asked:
        yield f"{place}.images is {images}, and images_asked {asked}"
    if run["status"] == "valid":
        for name in ["wall_s", figure] if run["role"] == "measured" else ["wall_s"]:
            value = figures.get(name)
            is_positive = name == "wall_s" or name in RATES
            if not isinstance(value, int | float) or value < 0 or (is_positive and value == 0):
                yield f"{place} is valid, and its {name} is {reprlib.repr(value)}"
