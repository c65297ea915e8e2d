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

CHIEN_2018 = "Chien et al. 2018"
SOURCE = f"{CHIEN_2018}, Sec. VII"

# {storage: {threads: throughput relative to one thread}}
THREAD_SCALING = {
    "hdd": {2: 1.65, 4: 1.95, 8: 2.3},
    "lustre": {8: 7.8},
}

# Table I, maximum MB/s by IOR (Section IV): one file of 5 GB, six times, the first discarded. As they are printed, for
# the last digit says how exact a number is.
FILE_MB = 5000
TABLE_1_SOURCE = f"{CHIEN_2018}, Table I"
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

# Chien, Podobas, Peng, Markidis: "tf-Darshan: Understanding Fine-grained I/O Performance in Machine Learning
# Workloads". It is of CLUSTER 2020 and arXiv:2008.04395. POSIX MB/s by benchmark, storage and threads are those of its
# Figs 7, 9 and 11; then what staging small files gains (Fig 12), by how much its profile lengthens a run (Fig 5) and
# the fwrite calls of a checkpoint: ten have 1,400 (Fig 6).
TF_DARSHAN = "tf-Darshan (Chien et al. 2020)"
MALWARE = "malware"
POSIX_MB_PER_S = {("alexnet", "lustre"): {1: 3, 28: 24}, (MALWARE, "hdd"): {1: 94, 16: 77}}
STAGING_GAIN = 1.19
OVERHEAD = (0.10, 0.20)
FWRITES = 140

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
