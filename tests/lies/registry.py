"""All lies, in the order of the table."""

import importlib

from tests.lies.lie import LIES

MODULES = (
    "datasets.honest", "datasets.replaced", "datasets.links", "datasets.blocks",
    "storages.loops", "storages.swapped", "storages.overlays", "storages.served",
    "neighbours.readers", "neighbours.quota", "neighbours.windows",
    "programs.preloaded", "programs.clocks",
    "records.contradictions", "records.claims",
    "disturbances.rows", "neighbours.writers",
)  # fmt: skip

for _module in MODULES:
    importlib.import_module(f"tests.lies.{_module}")  # registers the lies that it holds

ALL = dict(LIES)
WHOLE_MACHINE = frozenset({"slewed", "huge_pages"})  # its clock, and how all programs get memory
IN_CI = frozenset(
    {
        "nothing", "hard_links", "loop_in_tmpfs", "racer_before", "fuse_memory", "fadvise", "slow_clock", "flushes",
        "slow_reads",
        *(name for name, lie in ALL.items() if lie.run.__module__.startswith("tests.lies.records.")),
    }
)  # fmt: skip
"""One of each kind, and those that cost next to nothing: `.ci/run` tries these; the others are run by hand."""
