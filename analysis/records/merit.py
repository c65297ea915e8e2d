"""What a benchmark is there for: its kind, the figure of a run that counts, the unit, and which way is better."""

from __future__ import annotations

from typing import NamedTuple

STORAGE, TRAINING = "storage", "training"
HIGHER = "higher"
BYTES_READ, BYTES_WRITTEN = "read_mb_per_s", "write_mb_per_s"


class Merit(NamedTuple):
    """What the record of a cell says of its benchmark; `figure` is a key of its runs."""

    kind: str
    figure: str
    unit: str
    better: str
