"""Make tables from a profile of POSIX calls (`profile-<n>.npz`), and compare it with the system trace of the run.

The setting `profile.every` divides a profile into several parts, which are compared one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.frame import Row, rows_of
from analysis.statistics.medians import valid_measured_runs
from analysis.traces import system
from analysis.traces.system import BYTES_PER_MB, TraceError
from jobs.events import posix_window
from jobs.events.posix_window import KINDS, OTHER, READ, SIZE_LIMITS, WRITTEN, Window
from jobs.events.table import NS, Events, EventsError

# The maximum size of a profile. A profile with 4 million calls, which is the default capacity, has 224 MB.
MOST_BYTES = 1 << 29
MISSING, UNREADABLE, COUNTED = "profile missing", "profile unreadable", "counters only"
# The upper limits of Darshan's size bins: as texts in `SIZES`, in bytes in `EDGES`.
SIZES = (*SIZE_LIMITS, "more")
EDGES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)
INTERVALS = 100
# The chart of single calls shows the first `FIRST_CALLS` calls on the first `FIRST_FILES` files.
FIRST_FILES, FIRST_CALLS = 16, 600


def read_profile(path: Path) -> Window:
    """Return the profile in a file; raise TraceError if the file is missing, damaged or larger than `MOST_BYTES`."""
    try:
        window = posix_window.read_window(path, MOST_BYTES)
    except EventsError as error:
        raise TraceError(MISSING if isinstance(error.__cause__, FileNotFoundError) else UNREADABLE) from error
    if window.wall_s <= 0:
        raise TraceError(UNREADABLE)
    return window


def calls_of_window(window: Window) -> Events:
    """Return the calls that begin and end within the profiled window.

    Raises TraceError if the profile has only counters and no single calls.
    """
    if window.calls is None:
        raise TraceError(COUNTED)
    within = (window.calls["start"] >= window.started_ns) & (window.calls["end"] <= window.ended_ns)
    return window.calls.selected(within)


def size_shares(window: Window) -> pd.DataFrame:
    """Return one row per size bin: the number and the share of reads, and the number and the share of files.

    A read belongs to the bin of the number of bytes that the read returned. A file belongs to the bin of the highest
    offset that was read.
    """
    rows = window.counters[window.counters["reads"] > 0]
    furthest = np.where(rows["bytes_read"] > 0, rows["max_byte_read"] + 1, 0)
    counts = {
        "reads": rows["size_read"].sum(axis=0, dtype=np.int64),
        "files": np.bincount(np.searchsorted(EDGES, furthest), minlength=len(SIZES)),
    }
    shares = {f"share_of_{name}": count / max(1, count.sum()) for name, count in counts.items()}
    return pd.DataFrame({"upto": SIZES, **counts, **shares})


def read_order(window: Window) -> pd.DataFrame:
    """Return one row: the number of POSIX reads, and the shares of consecutive reads and of other sequential reads."""
    reads, sequential, consecutive = window.read_order
    beyond = (sequential - consecutive) / max(1, reads)
    shares = {"consecutive": consecutive / max(1, reads), "sequential_only": beyond}
    return pd.DataFrame([{"reads": reads, **shares, "neither": 1 - sequential / max(1, reads)}])


def rates_over_time(window: Window) -> pd.DataFrame:
    """Return one row per hundredth of the window's time: MB/s and calls/s of the calls that ended in this interval."""
    every, edges = window.wall_s / INTERVALS, np.linspace(0, window.wall_s, INTERVALS + 1)
    own = calls_of_window(window)
    transfers = {kind: own.with_words("kind", kind) for kind in (READ, WRITTEN)}
    rates = {
        f"{kind}_mb_per_s": np.histogram(_seconds(window, each["end"]), edges, weights=each["bytes"] / BYTES_PER_MB)[0]
        / every
        for kind, each in transfers.items()
    }
    called = np.histogram(_seconds(window, own["end"]), edges)[0] / every
    return pd.DataFrame({"elapsed_s": edges[1:], **rates, "calls_per_s": called, **_left_out(window, own)})


def calls_on_first_files(window: Window) -> pd.DataFrame:
    """Return one row per call on the first files that were read or written.

    The column `line` numbers the files from 0 in the order of their first calls.
    """
    own = calls_of_window(window)
    in_order = own.selected(np.argsort(own["start"], kind="stable"))
    files = list(dict.fromkeys(in_order["file"][in_order["kind"] != KINDS.index(OTHER)].tolist()))[:FIRST_FILES]
    first_calls = in_order.selected(np.flatnonzero(np.isin(in_order["file"], files))[:FIRST_CALLS])
    columns = {
        "line": [files.index(file) for file in first_calls["file"].tolist()],
        "file": [window.paths[file] for file in first_calls["file"].tolist()],
        **{f"{edge}_s": _seconds(window, first_calls[edge]) for edge in ("start", "end")},
        "kind": [KINDS[kind] for kind in first_calls["kind"].tolist()],
        "bytes": first_calls["bytes"],
    }
    return pd.DataFrame({**columns, **_left_out(window, own)})


def read_parts(window: Window) -> pd.DataFrame:
    """Return one row per part of the window that has reads: start (`begin_s`), end (`elapsed_s`) and MB/s read."""
    edges = np.unique([0.0, *_seconds(window, np.array(window.marks, np.int64)), window.wall_s])
    reads = calls_of_window(window).with_words("kind", READ)
    read_mb = np.histogram(_seconds(window, reads["end"]), edges, weights=reads["bytes"])[0] / BYTES_PER_MB
    rows = pd.DataFrame({"begin_s": edges[:-1], "elapsed_s": edges[1:], "read_mb_per_s": read_mb / np.diff(edges)})
    return rows[read_mb > 0].reset_index(drop=True)


def _seconds(window: Window, moments_ns: NDArray[Any]) -> NDArray[Any]:
    return (moments_ns - window.started_ns) / NS


def _left_out(window: Window, within: Events) -> dict[str, int]:
    return {"calls_left_out": (0 if window.events is None else len(window.events)) - len(within)}


EVERY = "profile.every"
AGREEMENT = "windows_over_trace"
FILES = ["profile_file", "trace_file"]


def add_agreement(runs: pd.DataFrame, folders: Mapping[str, Path]) -> pd.DataFrame:
    """Return the runs with the column `AGREEMENT`: MB/s of the profile divided by MB/s of the system trace.

    The value is the median over the parts of the profile. The value is missing if the profile or the trace cannot be
    read. The column is not added if the setting `profile.every` divided no profile.
    """
    if not {EVERY, *FILES} <= set(runs):
        return runs
    divided = valid_measured_runs(runs, [EVERY, *FILES])
    divided = divided[divided[EVERY].notna()]
    ratios: dict[Any, float] = {}
    for index, row in zip(divided.index, rows_of(divided), strict=True):
        if all(isinstance(row[name], str) for name in FILES):
            ratios[index] = _agreement(row, folders[row["cell"]])
    return pd.concat([runs, pd.Series(ratios, dtype="float64", name=AGREEMENT).reindex(runs.index)], axis=1)


def _agreement(row: Row, folder: Path) -> float:
    try:
        return float(compare_with_trace(*profile_and_trace(row, folder))["over_trace"].median())
    except system.TraceError:
        return math.nan


def profile_and_trace(row: Row, folder: Path) -> tuple[Window, system.ReadTrace]:
    """Return the profile and the system trace of a run; raise TraceError if a file cannot be read.

    `folder` is the folder of the run's cell, which has these files.
    """
    profile, trace = (folder / str(row[name]).rpartition("/")[2] for name in FILES)
    return read_profile(profile), system.read_trace(trace)


def compare_with_trace(profile: Window, trace: system.ReadTrace) -> pd.DataFrame:
    """Return one row per part of the profile: MB/s read by the profile, MB/s read by the trace, and their ratio.

    A part is one interval of the profile. `begin_s` is the start of the part, and `elapsed_s` is the end of the part,
    both in seconds since the start of the trace.
    """
    rows = read_parts(profile)
    started_s = profile.started_ns / 1e9
    begins, ends = (rows[name].to_numpy() + started_s for name in ("begin_s", "elapsed_s"))
    read_mb = np.array([trace.mb_between(edges)[0] for edges in zip(begins, ends, strict=True)], dtype=float)
    traced = read_mb / (ends - begins)
    over = (rows["read_mb_per_s"] / traced).where(traced > 0)
    times = {name: rows[name] + started_s - trace.began_s for name in ("begin_s", "elapsed_s")}
    return rows.assign(**times, trace_mb_per_s=traced, over_trace=over)
