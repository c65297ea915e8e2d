"""What a profile says of each file: how often it was positioned, how many bytes, how long its calls took."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from campaign.cells.folder import CampaignFolder
from campaign.cells.verdicts import Verdicts
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.data import staged_copies
from jobs.judging import stopping
from jobs.model.record import Record
from jobs.profiler import ProfilerError, saved, table
from jobs.profiler.window import Window

Floats = np.ndarray[Any, np.dtype[np.float64]]

COLD_FROM = 0.9  # share of the bytes read that a storage gave, from which all of them are taken for cold
# What a read from memory takes, roughly: only the order of files by their time over this counts.
_MEMORY_FILE_S, _MEMORY_BYTE_S = 50e-6, 0.5e-9


@dataclass(frozen=True)
class Run:
    """One profiled run; arrays have the shape (files,)."""

    wall_s: float
    waited_s: float  # of it, what it waited for its input: staging can save no more
    in_calls_s: float  # of it, what passed with a call in progress
    seeks: Floats  # reads that do not begin where the one before ended
    bytes_read: Floats
    spent_s: Floats  # in open, read and close
    ended_s: Floats  # when the last read ended, from the start of the window


@dataclass(frozen=True)
class FromMemory:
    """What a profile read from the page cache, which says nothing of the storage.

    Sure is how many bytes at least: the kernel counts what it fetched for the process. Which files is inferred: those
    that took least for their size.
    """

    files: int
    bytes: int
    sure_bytes: int
    apart: float  # how many times as long, for its size, the fastest other file took as the slowest of these; 0: none


@dataclass(frozen=True)
class Observed:
    """Runs over the same files of a folder."""

    source: Path
    names: Sequence[str]  # relative to `source`, sorted
    runs: Sequence[Run]
    origin: str  # in words
    called: Path | None = None  # what the program called `source`
    from_memory: FromMemory | None = None  # left out of `names`; None: not known

    @property
    def calls_at_once(self) -> float:
        """Return how many calls were in progress on average while any was."""
        return float(np.mean([run.spent_s.sum() / run.in_calls_s for run in self.runs]))


def window_of(path: Path) -> Window:
    """Read a profile, of this project's or Darshan's; UsageError: it cannot be read, or is not whole."""
    try:
        window = saved.read(path)
    except ProfilerError as error:
        raise UsageError(error.message, error.hint or "name a profile, or a campaign's folder") from error
    _require_whole(window, str(path))
    return window


def of_file(path: Path, source: Path) -> Observed:
    """Read a profile of any program; of its files only those below `source` count that it read from the storage.

    UsageError: it read none of them, or all of them from memory.
    """
    window = window_of(path)
    observed = _observed(source.resolve(), [(window, window.wall_s)], str(path), source.absolute())
    if window.device_bytes is None or not has_device(observed.source):
        return observed
    (run,) = observed.runs
    slowness = _slowness(run)
    memory = _read_from_memory(run.bytes_read, slowness, window.device_bytes)
    if memory.all():
        raise from_memory_error(path, window.device_bytes, int(run.bytes_read.sum()))
    cached = FromMemory(
        files=int(memory.sum()),
        bytes=int(run.bytes_read[memory].sum()),
        sure_bytes=max(0, int(run.bytes_read.sum()) - window.device_bytes),
        apart=float(slowness[~memory].min() / slowness[memory].max()) if memory.any() else 0.0,
    )
    cold = [name for name, hidden in zip(observed.names, memory, strict=True) if not hidden]
    places = read_below(window, [observed.source, source.absolute()])
    return replace(observed, names=cold, runs=[_run(window, window.wall_s, places, cold)], from_memory=cached)


def from_memory_error(path: Path, device_bytes: int, read_bytes: int) -> UsageError:
    """Return the error for a profile whose reads a storage did not give."""
    return UsageError(
        f"{path}: at least {(read_bytes - device_bytes) / 1e6:,.1f} of {read_bytes / 1e6:,.1f} MB came from memory, by"
        " the kernel's count, so it says nothing of the storage",
        "profile a run that reads from the storage: as root, `echo 1 > /proc/sys/vm/drop_caches` before it",
    )


def _read_from_memory(bytes_read: Floats, slowness: Floats, device_bytes: int) -> Any:
    """Return which files were read from memory, by a mask: the fastest ones, of as many bytes as no storage gave."""
    order = np.argsort(-slowness, kind="stable")
    fetched = device_bytes if device_bytes > (1 - COLD_FROM) * bytes_read.sum() else -1
    memory = np.full(len(bytes_read), fetched < COLD_FROM * bytes_read.sum())
    memory[order[np.cumsum(bytes_read[order]) <= fetched]] = False
    return memory


def has_device(path: Path) -> bool:
    """Return whether the kernel counts byte for byte what it fetches of a file: not of Lustre, FUSE, btrfs, tmpfs."""
    return os.major(path.stat().st_dev) != 0


def _slowness(run: Run) -> Floats:
    """Return how many times as long as from memory each file took, roughly."""
    return run.spent_s / (_MEMORY_FILE_S + _MEMORY_BYTE_S * run.bytes_read)


def of_cell(folder: CampaignFolder, recorded: Record) -> Observed:
    """Read the profiles of the valid measured runs of a cell."""
    home = folder.cell(recorded["cell"]["id"])
    try:
        windows = [
            (table.read(home / Path(str(run["profile"]["file"])).name), _waited_s(run))  # of the cell's own folder
            for run in stopping.measured(recorded, "valid")
            if run["profile"]["file"]
        ]
    except ProfilerError as error:
        raise EnvironmentFaultError(error.message, "profile the cell again: redo=true") from error
    return _observed(Path(recorded["dataset"]["path"]), windows, recorded["cell"]["id"])


def _waited_s(run: Mapping[str, Any]) -> float:
    return float(run.get("load_s") or run["wall_s"])


def profiled(verdicts: Verdicts) -> dict[str, Record]:
    """Return the cells, by id, that have a valid profiled run and read no copies."""
    found = (verdicts.read(path)[0] for path in sorted(verdicts.folder.records.glob("*/record.json")))
    return {each["cell"]["id"]: each for each in found if each and _is_profiled(each)}


def _is_profiled(recorded: Record) -> bool:
    if "staging" in recorded["cell"]["settings"]:
        return False
    return any(run.get("profile", {}).get("file") for run in stopping.measured(recorded, "valid"))


def _observed(
    source: Path, windows: Sequence[tuple[Window, float]], origin: str, called: Path | None = None
) -> Observed:
    """Take the files below `source`, which the program may have `called` otherwise."""
    places = [read_below(window, [source, called or source]) for window, _ in windows]
    names = sorted(set().union(*places))
    if not all(places):
        raise UsageError(f"{origin} has read no file below {source}", "--data FOLDER: the files that may be copied")
    for window, _ in windows:
        _require_whole(window, origin)
    runs = [_run(window, waited_s, found, names) for (window, waited_s), found in zip(windows, places, strict=True)]
    return Observed(source, names, runs, origin, called)


def _require_whole(window: Window, origin: str) -> None:
    if window.wall_s <= 0:
        raise UsageError(f"{origin} has a window of {window.wall_s:g} s", "plan from a complete profile")
    if (blind := window.blind_spot()) and (window.dropped or not window.ended):
        raise UsageError(f"{origin}: {blind}", "plan from a complete profile")


def read_below(window: Window, folders: Collection[Path]) -> dict[str, list[int]]:
    """Return the rows of each file that was read and not written, by its name below one of the folders."""
    above = {f"{folder}/" for folder in folders}
    found: dict[str, list[int]] = {}
    rows = window.counters
    for place in np.flatnonzero((rows["bytes_read"] > 0) & (rows["bytes_written"] == 0)).tolist():
        path = window.paths[place]
        folder = next((each for each in above if path.startswith(each)), None)
        if folder and not staged_copies.strays((), [path[len(folder) :]]):
            found.setdefault(path[len(folder) :], []).append(place)
    return found


def _run(window: Window, waited_s: float, places: dict[str, list[int]], names: Sequence[str]) -> Run:
    rows = window.counters
    placed = [(number, place) for number, name in enumerate(names) for place in places.get(name, ())]
    number, place = np.array(placed).T
    seen = rows[place]

    def summed(values: Any) -> Floats:
        return np.bincount(number, values, len(names)).astype(float)

    ended = np.zeros(len(names))
    np.maximum.at(ended, number, (seen["read_end"] - window.started_ns) / 1e9)
    spent_s = summed((seen["read_time"] + seen["meta_time"]) / 1e9)
    return Run(
        wall_s=window.wall_s,
        waited_s=min(waited_s, window.wall_s),
        # Where single calls are not known, at most.
        in_calls_s=window.under_way_s(place) or min(float(spent_s.sum()), window.wall_s),
        seeks=summed(np.maximum(1, seen["reads"].astype(float) - seen["consec_reads"])),
        bytes_read=summed(seen["bytes_read"]),
        spent_s=spent_s,
        ended_s=ended,
    )
