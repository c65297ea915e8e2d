"""Our names for the paper's programs and storages, and the paper's order of storages.

Chien et al., "Characterizing Deep-Learning I/O Workloads in TensorFlow", PDSW-DISCS 2018; its numbers, and those of
others, stand with their claims (`analysis/claims`).
"""

from __future__ import annotations

from analysis.records.settings import plain_storage_name

BENCHMARKS = MICRO, APPLICATION, BASELINE = "micro", "alexnet", "baseline"
BURST_BUFFER = "burst_buffer"
# The order of the devices in Section IV and in the figures.
STORAGES = ("hdd", "ssd", "optane", BURST_BUFFER, "lustre")


def storage_sort_key(storage: str) -> tuple[int, str]:
    """Return a sort key: the paper's storages in the paper's order, then all others by name."""
    name = plain_storage_name(storage)
    return (STORAGES.index(name) if name in STORAGES else len(STORAGES), storage)
