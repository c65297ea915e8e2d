"""What a benchmark is there for: its kind, the figure of a run that counts, the unit, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

STORAGE, PIPELINE, TRAINING = "storage", "pipeline", "training"
HIGHER, LOWER = "higher", "lower"
BYTES_READ, BYTES_WRITTEN = "read_mb_per_s", "write_mb_per_s"


class Merit(NamedTuple):
    """What the record of a cell says of its benchmark; `figure` is a key of its runs."""

    kind: str
    figure: str
    unit: str
    better: str


# Records of before these keys do not say it. Of a baseline that writes, the figure is `BYTES_WRITTEN`.
OF_BEFORE = {
    "micro": Merit(PIPELINE, "images_per_s", "images/s", HIGHER),
    "alexnet": Merit(TRAINING, "wall_s", "s", LOWER),
    "baseline": Merit(STORAGE, BYTES_READ, "MB/s", HIGHER),
}
UNKNOWN = Merit(PIPELINE, "wall_s", "s", LOWER)


def merit_of(cell: Mapping[str, Any]) -> Merit:
    """Return what the part `cell` of a record says of its benchmark, in one of before what its benchmark was for."""
    if all(cell.get(name) is not None for name in Merit._fields):
        return Merit(*(cell[name] for name in Merit._fields))
    known = OF_BEFORE.get(cell["benchmark"], UNKNOWN)
    group = cell["settings"].get("benchmark")
    writes = known.kind == STORAGE and isinstance(group, dict) and group.get("access") == "write"
    return known._replace(figure=BYTES_WRITTEN) if writes else known
