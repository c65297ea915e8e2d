"""The published numbers that our figures may be laid against, with their source.

Chien et al., "Characterizing Deep-Learning I/O Workloads in TensorFlow", PDSW-DISCS 2018, arXiv:1810.03035.
The heights of the bars are not in the text; only the ratios of Section VII are, and the section does not say
for which of the two pipelines (Fig. 4 or Fig. 5) they hold. Beside those of
Table I nothing else may be overlaid.
"""

from __future__ import annotations

from analysis.records.settings import bare

# The names that its programs have here.
BENCHMARKS = MICRO, APPLICATION, BASELINE = "micro", "alexnet", "baseline"

SOURCE = "Chien et al. 2018, Sec. VII"

# {storage: {threads: throughput relative to one thread}}
THREAD_SCALING = {
    "hdd": {2: 1.65, 4: 1.95, 8: 2.3},
    "lustre": {8: 7.8},
}

# Table I, maximum MB/s by IOR (Section IV): one file of 5 GB, six times, the first discarded. As they are printed, for
# the last digit says how exact a number is.
FILE_MB = 5000
TABLE_1_SOURCE = "Chien et al. 2018, Table I"
TABLE_1 = {
    "hdd": {"read": "163.00", "write": "133.14"},
    "ssd": {"read": "280.55", "write": "195.05"},
    "optane": {"read": "1603.06", "write": "511.78"},
    "lustre": {"read": "1968.618", "write": "991.914"},
}

# Images in a batch in all figures of the mini-application but Fig. 7, which varies it (Section V.B).
BATCH_SIZE = 64

# Section VII, and the abstract, which does not say of what time; a burst buffer of Optane against HDD alone.
BURST_BUFFER_GAIN = 2.6
BURST_BUFFER = "burst_buffer"

# The order of the devices in Section IV and in the figures.
STORAGES = ("hdd", "ssd", "optane", BURST_BUFFER, "lustre")


def ratio(storage: str, threads: int) -> float | None:
    """Return the published throughput relative to one thread, None where the text gives none."""
    return THREAD_SCALING.get(storage.casefold(), {}).get(threads)


def peak(storage: str, access: str) -> float | None:
    """Return the published MB/s of a storage by itself, None where the table gives none."""
    number = TABLE_1.get(storage.casefold(), {}).get(access)
    return None if number is None else float(number)


def place(storage: str) -> tuple[int, str]:
    """Return a sort key: the paper's storages in the paper's order, then all others by name."""
    name = bare(storage)
    return (STORAGES.index(name) if name in STORAGES else len(STORAGES), storage)
