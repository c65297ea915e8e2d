"""What was published of NERSC's HEPCNNB and CDB, and by which formulas.

Slides of NERSC's project on deep-learning I/O of 2018-07-27 (the decks before it have other tables), and the workbooks
of HEPCNNB of 2018-06-29 in NERSC/DL-Parallel-IO 290ed4a, from whose rows the numbers are recomputed.
"""

from __future__ import annotations

HEPCNN, CLIMATE = "hepcnn", "climate"
SOURCE = "NERSC 2018"

# The cold medians alone, times the loads, give so much of the published read times with global shuffling.
PREDICTED = (0.86, 0.96)


def published_rate(reads: float, training_files: int, sizes: tuple[float, float], read_s: float) -> float:
    """Return bytes a second by HEPCNNB's formula: each training file once, all other reads of validation files.

    `sizes`: bytes of a training and of a validation file; `read_s`: `sum_per_rank`.
    """
    return (training_files * sizes[0] + (reads - training_files) * sizes[1]) / read_s
