"""What a profile of POSIX calls (`profile-<n>.npz`, by `jobs.profiler.table`) says of one run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.records.readable import AbsentError, content
from analysis.traces.system import BYTES_PER_MB, TraceError
from jobs.system import untrusted

# 4 million calls, as many as a profile has room for unless asked, have 224 MB.
MOST_BYTES = 1 << 29
MOST = {"events": MOST_BYTES // 56, "counters": MOST_BYTES // 448, "head": 1 << 20, "marks": 1 << 20}
MISSING, UNREADABLE, COUNTED = "profile missing", "profile unreadable", "counters only"
# Upper edges of Darshan's bins, in words and in bytes.
SIZES = ("100 B", "1 KiB", "10 KiB", "100 KiB", "1 MiB", "4 MiB", "10 MiB", "100 MiB", "1 GiB", "more")
EDGES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30)
READS = ("read", "pread", "readv", "preadv", "fread")
WRITES = ("write", "pwrite", "writev", "pwritev", "fwrite")
COUNTERS = ("reads", "seq_reads", "consec_reads", "bytes_read", "max_byte_read")  # that are used here
OF_EVENT = ("start", "end", "file", "operation", "returned", "thread")
KINDS = READ, END, WRITTEN, OTHER = "read", "read of nothing", "written", "open, close and others"
INTERVALS = 100
# Of the files whose calls are drawn one by one, the first; of their calls, too.
FIRST_FILES, FIRST_CALLS = 16, 600


@dataclass(frozen=True, eq=False)
class Profile:
    """A window on one process: its seconds, its files with their counters, its calls in the mode trace."""

    started_ns: int  # Unix time
    wall_s: float
    paths: list[str]
    stdio: NDArray[np.bool_]  # which files were read and written through streams; the others by POSIX calls
    counters: NDArray[Any]
    calls: pd.DataFrame | None  # file (a place in `paths`), thread, start_s, end_s, bytes, kind
    left_out: int  # calls beyond the window
    marks_s: NDArray[Any]  # seconds from the start at which another part began


def read(path: Path) -> Profile:
    """Return the profile in a file; raises TraceError where it is missing, damaged or larger than `MOST_BYTES`."""
    try:
        arrays = untrusted.arrays(io.BytesIO(content(path, MOST_BYTES)), MOST_BYTES)
        _must(all(arrays[name].ndim == 1 and len(arrays[name]) <= MOST[name] for name in MOST.keys() & arrays.keys()))
        head = untrusted.json_value(arrays["head"].tobytes())
        counters, stdio, names = arrays["counters"], arrays["stdio"], arrays["paths"]
        started, ended = head["started_ns"], head["ended_ns"]
        _must(type(started) is type(ended) is int and 0 <= started < ended < 1 << 63)
        marks = arrays.get("marks", np.zeros(0, np.int64))
        _must(marks.dtype == np.int64 and ((marks[1:] >= marks[:-1]) & (marks[1:] <= ended)).all())
        _must(not len(marks) or started <= marks[0] <= ended)
        _must(counters.shape == stdio.shape and names.dtype == np.uint8)
        _must(np.count_nonzero(names == 0) == len(counters) and _whole_numbers(counters, COUNTERS))
        _must(counters["size_read"].shape[1:] == (len(SIZES),) and counters["size_read"].dtype.kind in "iu")
        paths = names.tobytes().decode(errors="surrogateescape").split("\0")[:-1]
        calls = _calls(arrays["events"], head, len(paths)) if "events" in arrays else None
    except AbsentError as error:
        raise TraceError(MISSING) from error
    except Exception as error:  # whatever a damaged archive makes numpy and zipfile raise
        raise TraceError(UNREADABLE) from error
    left_out = 0 if calls is None else len(arrays["events"]) - len(calls)
    told = paths, stdio.astype(bool), counters, calls, left_out
    return Profile(started, (ended - started) / 1e9, *told, (marks - started) / 1e9)


def _must(hold: Any) -> None:
    if not hold:
        raise TraceError(UNREADABLE)


def _whole_numbers(array: NDArray[Any], fields: Sequence[str]) -> bool:
    return all(array[name].ndim == 1 and array[name].dtype.kind in "iu" for name in fields)


def _calls(events: NDArray[Any], head: dict[str, Any], files: int) -> pd.DataFrame:
    """Return the calls within the window; raises TraceError for what is no call."""
    _must(_whole_numbers(events, OF_EVENT) and (events["end"] >= events["start"]).all())
    _must(((events["file"] >= 0) & (events["file"] < files)).all())
    started = head["started_ns"]
    events = events[(events["start"] >= started) & (events["end"] <= head["ended_ns"])]
    codes = np.array([KINDS.index(_kind(name)) for name in head["operations"]], np.int8)[events["operation"]]
    moved = np.where(codes == KINDS.index(OTHER), 0, np.maximum(events["returned"], 0))
    codes[(codes == KINDS.index(READ)) & (events["returned"] == 0)] = KINDS.index(END)
    found = {
        "file": events["file"],
        "thread": events["thread"],
        "bytes": moved,
        "kind": pd.Categorical.from_codes(codes, pd.Index(KINDS)),
    }
    return pd.DataFrame(found | {f"{edge}_s": (events[edge] - started) / 1e9 for edge in ("start", "end")})


def _kind(operation: str) -> str:
    return READ if operation in READS else WRITTEN if operation in WRITES else OTHER


def sizes(profile: Profile) -> pd.DataFrame:
    """Return a row per bin: how many reads returned so many bytes, how many files were read so far, and the shares."""
    rows = profile.counters[profile.counters["reads"] > 0]
    furthest = np.where(rows["bytes_read"] > 0, rows["max_byte_read"] + 1, 0)
    counts = {
        "reads": rows["size_read"].sum(axis=0, dtype=np.int64),
        "files": np.bincount(np.searchsorted(EDGES, furthest), minlength=len(SIZES)),
    }
    shares = {f"share_of_{name}": count / max(1, count.sum()) for name, count in counts.items()}
    return pd.DataFrame({"upto": SIZES, **counts, **shares})


def order(profile: Profile) -> pd.DataFrame:
    """Return one row: the POSIX reads, and which shares of them were consecutive, or sequential and no more."""
    rows = profile.counters[~profile.stdio]
    reads, sequential, consecutive = (
        int(rows[name].sum(dtype=np.int64)) for name in ("reads", "seq_reads", "consec_reads")
    )
    beyond = (sequential - consecutive) / max(1, reads)
    found = {"reads": reads, "consecutive": consecutive / max(1, reads), "sequential_only": beyond}
    return pd.DataFrame([found | {"neither": 1 - sequential / max(1, reads)}])


def over_time(profile: Profile) -> pd.DataFrame:
    """Return a row per hundredth of the window: MB/s and calls/s of the calls that ended in it."""
    calls = one_by_one(profile)
    edges = np.linspace(0, profile.wall_s, INTERVALS + 1)
    every = profile.wall_s / INTERVALS

    def rate(of: pd.Series[bool], weight: pd.Series[float]) -> NDArray[Any]:
        return np.histogram(calls["end_s"][of], edges, weights=weight[of])[0] / every

    moved, any_call = calls["bytes"] / BYTES_PER_MB, calls["file"] >= 0
    rates = {f"{kind}_mb_per_s": rate(calls["kind"] == kind, moved) for kind in (READ, WRITTEN)}
    rates["calls_per_s"] = rate(any_call, any_call.astype("float64"))
    return pd.DataFrame({"elapsed_s": edges[1:], **rates, "calls_left_out": profile.left_out})


def first_files(profile: Profile) -> pd.DataFrame:
    """Return a row per call on the files that were read or written first, and their lines, 0 for the first."""
    calls = one_by_one(profile).sort_values("start_s", kind="stable")
    files = calls["file"][calls["kind"] != OTHER].drop_duplicates().tolist()[:FIRST_FILES]
    shown = calls[calls["file"].isin(files)].head(FIRST_CALLS)
    places = {file: place for place, file in enumerate(files)}
    columns = {"start_s": shown["start_s"], "end_s": shown["end_s"], "kind": shown["kind"], "bytes": shown["bytes"]}
    names = shown["file"].map(lambda file: profile.paths[file])
    return pd.DataFrame(
        {"line": shown["file"].map(places), "file": names, **columns, "calls_left_out": profile.left_out}
    )


def parts(profile: Profile) -> pd.DataFrame:
    """Return a row per part of the window in which anything was read: `begin_s`, `elapsed_s` at its end, MB/s read."""
    calls = one_by_one(profile)
    edges = np.unique([0.0, *profile.marks_s, profile.wall_s])
    reads = calls[calls["kind"] == READ]
    moved = np.histogram(reads["end_s"], edges, weights=reads["bytes"])[0] / BYTES_PER_MB
    rows = pd.DataFrame({"begin_s": edges[:-1], "elapsed_s": edges[1:], "read_mb_per_s": moved / np.diff(edges)})
    return rows[moved > 0].reset_index(drop=True)


def one_by_one(profile: Profile) -> pd.DataFrame:
    """Return the calls; raises TraceError where they were only counted."""
    if profile.calls is None:
        raise TraceError(COUNTED)
    return profile.calls
