"""How long planning takes: ``--dry-run`` of large grids, CPU seconds of the whole command.

A word with a plus adds to the configuration (``+size=smoke``); such words once took a slow path.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from tests.bench.bench import Figure, median_process

SIZES = {
    "smoke": {"few": 8, "many": 0, "added": 8, "repeats": 1},
    "full": {"few": 1000, "many": 10_000, "added": 200, "repeats": 3},
}
ADDED = ("+paper=fig4", "+size=smoke")


def measure(few: int, many: int, added: int, repeats: int) -> Iterator[Figure]:
    """Plan grids of so many cells."""
    with tempfile.TemporaryDirectory() as folder:
        grids = (
            (few, (), "cells", "at most 1"),
            (many, (), "cells", "at most 3"),
            (added, ADDED, "cells with `+size=smoke`", "at most 1"),
        )
        for cells, words, what, goal in (each for each in grids if each[0]):
            grid = [f"seed=range({cells // 8})", "threads=1,2,4,8", "prefetch=0,1"]
            took = median_process(repeats, ["campaign", "--dry-run", "-m", *grid, *words], folder)
            yield Figure(f"a plan of {cells:,} {what}", took.cpu_s, "CPU s", goal)
            yield Figure(f"a plan of {cells:,} {what}, memory", took.memory_mb, "MB")
