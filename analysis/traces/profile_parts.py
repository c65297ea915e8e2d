"""The parts of a profile (`profile.every`) beside the system's trace of the same run, and how well the two agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.records.frame import Row, rows_of
from analysis.statistics.medians import counted
from analysis.traces import posix, system

EVERY = "profile.every"
AGREEMENT = "windows_over_trace"
FILES = ["profile_file", "trace_file"]


def with_agreement(runs: pd.DataFrame, folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the runs with a column `AGREEMENT`: MB/s of a part over those of the trace meanwhile, the median part's.

    The runs as they are where none was divided; missing where either file is, or cannot be read.
    """
    if not {EVERY, *FILES} <= set(runs):
        return runs
    divided = counted(runs, [EVERY, *FILES])
    divided = divided[divided[EVERY].notna()]
    found: dict[Any, float] = {}
    for place, row in zip(divided.index, rows_of(divided), strict=True):
        if all(isinstance(row[name], str) for name in FILES):
            found[place] = _agreement(row, folders[row["cell"]])
    return runs.assign(**{AGREEMENT: pd.Series(found, dtype="float64").reindex(runs.index)})


def _agreement(row: Row, folder: Path) -> float:
    try:
        return float(beside(*read(row, folder))["over_trace"].median())
    except system.TraceError:
        return math.nan


def read(row: Row, folder: Path) -> tuple[posix.Profile, system.Trace]:
    """Return the profile and the trace of a run, by their names alone; raises TraceError as either does."""
    profile, trace = (folder / str(row[name]).rpartition("/")[2] for name in FILES)
    return posix.read(profile), system.read(trace)


def beside(profile: posix.Profile, trace: system.Trace) -> pd.DataFrame:
    """Return a row per part: `begin_s` and `elapsed_s` on the clock of the trace, MB/s of both, one over the other."""
    rows = posix.parts(profile)
    started_s = profile.started_ns / 1e9
    begins, ends = (rows[name].to_numpy() + started_s for name in ("begin_s", "elapsed_s"))
    read_mb = np.array([trace.mb_between(edges)[0] for edges in zip(begins, ends, strict=True)], dtype=float)
    traced = read_mb / (ends - begins)
    over = (rows["read_mb_per_s"] / traced).where(traced > 0)
    moved = {name: rows[name] + started_s - trace.began_s for name in ("begin_s", "elapsed_s")}
    return rows.assign(**moved, trace_mb_per_s=traced, over_trace=over)
