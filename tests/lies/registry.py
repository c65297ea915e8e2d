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
