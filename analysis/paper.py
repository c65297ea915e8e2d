"""Names of the benchmarks and storages of the paper, and the order of the storages in the paper.

The paper is Chien et al., "Characterizing Deep-Learning I/O Workloads in TensorFlow", PDSW-DISCS 2018. The numbers of
this paper and of other papers are in `analysis/claims`.
"""

from __future__ import annotations

from analysis.records.settings import plain_storage_name

BENCHMARKS = MICRO, APPLICATION, BASELINE = "micro", "alexnet", "baseline"
BURST_BUFFER = "burst_buffer"
# The storages in the order of the paper's Section IV and of its figures.
STORAGES = ("hdd", "ssd", "optane", BURST_BUFFER, "lustre")


def storage_sort_key(storage: str) -> tuple[int, str]:
    """Return a sort key for storages: first the paper's storages in `STORAGES` order, then other storages by name."""
    name = plain_storage_name(storage)
    return (STORAGES.index(name) if name in STORAGES else len(STORAGES), storage)
