"""Read a profile, and return for each file the number of seeks, the bytes read and the seconds in its calls."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.data import staged_copies
from jobs.errors import JobError
from jobs.events import posix_window
from jobs.events.posix_window import Window
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.profiler import saved_profiles

Floats = np.ndarray[Any, np.dtype[np.float64]]

COLD_FROM = 0.9  # if the storage delivered at least this share of the read bytes, all reads count as cold
# A rough time to read a file from memory. Files are sorted by the ratio of their measured time to this time.
_MEMORY_FILE_S, _MEMORY_BYTE_S = 50e-6, 0.5e-9


@dataclass(frozen=True)
class ProfiledRun:
    """The times and counters of one profiled run; the arrays have one element per file."""

    wall_s: float
    waited_s: float  # part of `wall_s` in which the run waited for its input; staging cannot save more than this time
    in_calls_s: float  # part of `wall_s` in which at least one call was in progress
    seeks: Floats  # number of reads that do not begin where the previous read ended
    bytes_read: Floats
    spent_s: Floats  # seconds in the open, read and close calls of the file
    ended_s: Floats  # end of the last read, in seconds since the start of the window


@dataclass(frozen=True)
class FilesFromMemory:
    """The files that a program read from the page cache; the times of such files say nothing about the storage.

    These files are inferred: they are the files with the shortest time relative to their size.
    """

    files: int
    bytes: int
    sure_bytes: int  # a certain lower bound, because the kernel counts the bytes that it fetched for the process
    # A ratio of two relative times (time over size): the fastest file from the storage, divided by the slowest file
    # from memory. 0 if no file came from memory.
    apart: float


@dataclass(frozen=True)
class ObservedRuns:
    """One or more profiled runs that read the same files of a folder."""

    source: Path
    names: Sequence[str]  # sorted paths of the files, relative to `source`
    runs: Sequence[ProfiledRun]
    origin: str  # cell id, or path of the profile
    called: Path | None = None  # the name that the program used for `source`
    from_memory: FilesFromMemory | None = None  # the files that came from memory, which `names` omits; None: unknown

    @property
    def calls_at_once(self) -> float:
        """Return the average number of calls in progress, over the time in which any call is in progress."""
        return float(np.mean([run.spent_s.sum() / run.in_calls_s for run in self.runs]))


def read_complete_window(path: Path) -> Window:
    """Return the profiled window in a profile of this project or of Darshan.

    Raise UsageError if the profile is unreadable or incomplete.
    """
    try:
        window = saved_profiles.read_profile(path)
    except JobError as error:
        raise UsageError(error.message, error.hint or "name a profile, or a campaign's folder") from error
    _require_whole(window, str(path))
    return window


def observe_profile(path: Path, source: Path) -> ObservedRuns:
    """Read a profile of any program; return the counters of the files below `source` that came from the storage.

    Raise UsageError if the program read no file below `source`, or if all these files came from memory.
    """
    window = read_complete_window(path)
    observed = _observed(source.resolve(), [(window, window.wall_s)], str(path), source.absolute())
    if window.device_bytes is None or not has_device(observed.source):
        return observed
    (run,) = observed.runs
    slowness = run.spent_s / (_MEMORY_FILE_S + _MEMORY_BYTE_S * run.bytes_read)
    is_in_memory = _read_from_memory(run.bytes_read, slowness, window.device_bytes)
    if is_in_memory.all():
        raise from_memory_error(path, window.device_bytes, int(run.bytes_read.sum()))
    from_memory = FilesFromMemory(
        files=int(is_in_memory.sum()),
        bytes=int(run.bytes_read[is_in_memory].sum()),
        sure_bytes=max(0, int(run.bytes_read.sum()) - window.device_bytes),
        apart=float(slowness[~is_in_memory].min() / slowness[is_in_memory].max()) if is_in_memory.any() else 0.0,
    )
    cold_names = [name for name, in_memory in zip(observed.names, is_in_memory, strict=True) if not in_memory]
    rows_by_name = files_only_read(window, [observed.source, source.absolute()])
    return replace(
        observed,
        names=cold_names,
        runs=[_run(window, window.wall_s, rows_by_name, cold_names)],
        from_memory=from_memory,
    )


def from_memory_error(path: Path, device_bytes: int, read_bytes: int) -> UsageError:
    """Return the error for a profile whose reads came from memory."""
    return UsageError(
        f"{path}: at least {(read_bytes - device_bytes) / 1e6:,.1f} of {read_bytes / 1e6:,.1f} MB came from memory, by"
        " the kernel's count, so the profile says nothing about the storage",
        "profile a run that reads from the storage: before the run, as root, `echo 1 > /proc/sys/vm/drop_caches`",
    )


def _read_from_memory(bytes_read: Floats, slowness: Floats, device_bytes: int) -> Any:
    """Return the mask of the files that came from memory.

    These are the fastest files; together they have the bytes that the storage did not deliver.
    """
    order = np.argsort(-slowness, kind="stable")
    fetched = device_bytes if device_bytes > (1 - COLD_FROM) * bytes_read.sum() else -1
    memory = np.full(len(bytes_read), fetched < COLD_FROM * bytes_read.sum())
    memory[order[np.cumsum(bytes_read[order]) <= fetched]] = False
    return memory


def has_device(path: Path) -> bool:
    """Return whether the file is on a block device, so that the kernel counts the bytes that it fetches exactly.

    The value is False for files on Lustre, FUSE, btrfs and tmpfs.
    """
    return os.major(path.stat().st_dev) != 0


def observe_cell(folder: CampaignFolder, recorded: Record) -> ObservedRuns:
    """Read the profiles of a cell's valid measured runs, and return the counters per file."""
    cell_folder = folder.cell(recorded["cell"]["id"])
    try:
        windows = [
            # The profiled window, and the seconds in which the run waited for its input.
            (
                posix_window.read_window(cell_folder / Path(str(run["profile"]["file"])).name),
                run.get("load_s") or run["wall_s"],
            )
            for run in stopping.measured_runs(recorded, "valid")
            if run["profile"]["file"]
        ]
    except JobError as error:
        raise EnvironmentFaultError(error.message, "profile the cell again: redo=true") from error
    return _observed(Path(recorded["dataset"]["path"]), windows, recorded["cell"]["id"])


def profiled_records(verdicts: Verdicts) -> dict[str, Record]:
    """Return the records, by cell id, of all cells that have a valid profiled run and do not read staged copies."""
    records = (verdicts.read(path)[0] for path in sorted(verdicts.folder.records.glob("*/record.json")))
    return {record["cell"]["id"]: record for record in records if record and _is_profiled(record)}


def _is_profiled(recorded: Record) -> bool:
    if "staging" in recorded["cell"]["settings"]:
        return False
    return any(run.get("profile", {}).get("file") for run in stopping.measured_runs(recorded, "valid"))


def _observed(
    source: Path, windows: Sequence[tuple[Window, float]], origin: str, called: Path | None = None
) -> ObservedRuns:
    """Return the counters of the files below `source`; `called` is the name that the program used for `source`."""
    rows_of_windows = [files_only_read(window, [source, called or source]) for window, _ in windows]
    names = sorted(set().union(*rows_of_windows))
    if not all(rows_of_windows):
        raise UsageError(
            f"{origin} has read no file below {source}", "--data FOLDER names the files that may be copied"
        )
    for window, _ in windows:
        _require_whole(window, origin)
    runs = [
        _run(window, waited_s, rows_by_name, names)
        for (window, waited_s), rows_by_name in zip(windows, rows_of_windows, strict=True)
    ]
    return ObservedRuns(source, names, runs, origin, called)


def _require_whole(window: Window, origin: str) -> None:
    if window.wall_s <= 0:
        raise UsageError(f"{origin} has a window of {window.wall_s:g} s", "make the plan from a complete profile")
    if (blind := window.blind_spot()) and (window.dropped or not window.ended):
        raise UsageError(f"{origin}: {blind}", "make the plan from a complete profile")


def files_only_read(window: Window, folders: Collection[Path]) -> dict[str, list[int]]:
    """Return the profile's counters of each file below `folders` that the program read but did not write.

    The keys are the paths of the files relative to their folder.
    """
    prefixes = {f"{folder}/" for folder in folders}
    rows_of: dict[str, list[int]] = {}
    rows = window.counters
    for row in np.flatnonzero((rows["bytes_read"] > 0) & (rows["bytes_written"] == 0)).tolist():
        path = window.paths[row]
        folder = next((prefix for prefix in prefixes if path.startswith(prefix)), None)
        if folder and not staged_copies.path_fault((), [path[len(folder) :]]):
            rows_of.setdefault(path[len(folder) :], []).append(row)
    return rows_of


def _run(window: Window, waited_s: float, rows_by_name: dict[str, list[int]], names: Sequence[str]) -> ProfiledRun:
    """Return the counters of one run for the files `names`; `rows_by_name` has the rows of `window.counters`."""
    pairs = [(number, row) for number, name in enumerate(names) for row in rows_by_name.get(name, ())]
    file_numbers, rows = np.array(pairs).T
    read_rows = window.counters[rows]

    def summed(values: Any) -> Floats:
        return np.bincount(file_numbers, values, len(names)).astype(float)

    ended = np.zeros(len(names))
    np.maximum.at(ended, file_numbers, (read_rows["read_end"] - window.started_ns) / 1e9)
    spent_s = summed((read_rows["read_time"] + read_rows["meta_time"]) / 1e9)
    return ProfiledRun(
        wall_s=window.wall_s,
        waited_s=min(waited_s, window.wall_s),
        # If the profile has counters only and no single calls, this value is an upper bound.
        in_calls_s=window.under_way_s(rows) or min(float(spent_s.sum()), window.wall_s),
        seeks=summed(np.maximum(1, read_rows["reads"].astype(float) - read_rows["consec_reads"])),
        bytes_read=summed(read_rows["bytes_read"]),
        spent_s=spent_s,
        ended_s=ended,
    )
