"""What the paper claims of its burst buffer, tested: one checkpoint to it beside one straight to its slow storage.

The claim *holds* where the gain is the published one or more, within the tolerance of `analysis.verdicts`, and
*differs* where it is less. The paper does not say of which time its 2.6 is; it is taken to be that of a checkpoint, for
a runtime is mostly training, and the runtimes stand beside it.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from analysis import paper
from analysis.frame import rows_of
from analysis.plates.saving import HOW, MODE, saving_sets
from analysis.settings import describe, facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    Cell = Mapping[str, Any]

GAIN = f"a burst buffer checkpoints {paper.BURST_BUFFER_GAIN} times as fast as its slow storage alone"
PUBLISHED = f"{paper.BURST_BUFFER_GAIN} times as fast"
COUNTED = "snapshot_blocked_s"


def findings(table: pd.DataFrame, mixed: Callable[[Sequence[Cell]], str], scatter: float) -> Iterator[dict[str, Any]]:
    """Yield the evidence of each burst buffer that training stood still for, and why there is none.

    Parameters
    ----------
    mixed
        Says what is not the same in cells that are to be compared, `""` for nothing.
    scatter
        The tolerance, in limits of the check `spread`.
    """
    for key, cells in saving_sets(table, (*HOW, *MODE)).items():
        facts = facts_of(key)
        if facts["checkpoint.mode"] != "sync":
            continue
        about = {"about": describe(facts, (), cells["accelerator"], cells["size"])}
        done = [row for row in rows_of(cells) if row["status"] == "done" and not math.isnan(row[COUNTED])]
        direct = {row["target"]: row for row in done if row["target_name"] != paper.BURST_BUFFER}
        pairs = [
            (direct[slow], row)
            for row in done
            if row["target_name"] == paper.BURST_BUFFER and (slow := row["target"].rpartition(" to ")[2]) in direct
        ]
        if not pairs:
            why = "no burst buffer is done beside a checkpoint straight to its slow storage"
            yield about | {"verdict": "not measured", "why": why, "cells": ""}
        for alone, buffered in pairs:
            told = {"verdict": "not comparable", "why": mixed([alone, buffered])}
            yield about | (told if told["why"] else gain(alone, buffered, scatter)) | _named(alone, buffered)


def gain(alone: Cell, buffered: Cell, scatter: float) -> dict[str, Any]:
    """Return how many times as fast the burst buffer is, the interval that the cells' ranges allow, and the verdict."""
    ours = alone[COUNTED] / buffered[COUNTED]
    low, high = (
        alone[f"{COUNTED}{mine}"] / buffered[f"{COUNTED}{other}"]
        for mine, other in (("_min", "_max"), ("_max", "_min"))
    )
    limits = [cell["spread_limit"] for cell in (alone, buffered) if not math.isnan(cell["spread_limit"])]
    tolerance = scatter * min(limits, default=math.nan)
    evidence = {"ours": ours, "interval": json.dumps([round(low, 6), round(high, 6)]), "unit": "times"}
    words = (
        f"{alone[COUNTED]:.3g} s a checkpoint to {alone['target']}, {buffered[COUNTED]:.3g} s to {buffered['target']};"
        f" runtime {alone['wall_s']:.3g} s and {buffered['wall_s']:.3g} s"
    )
    if not limits:
        why = f"{words}; the records name no tolerance (limit of the check spread)"
        return evidence | {"verdict": "not comparable", "why": why, "tolerance": None}
    least = paper.BURST_BUFFER_GAIN * (1 - tolerance)
    shaky = any(cell["unstable"] is True for cell in (alone, buffered))
    if shaky and low < least <= high:
        return evidence | {"verdict": "not comparable", "why": f"unstable; {words}", "tolerance": tolerance}
    return evidence | {"verdict": "holds" if ours >= least else "differs", "why": words, "tolerance": tolerance}


def _named(alone: Cell, buffered: Cell) -> dict[str, str]:
    return {"cells": f"{alone['cell']} {buffered['cell']}"}
