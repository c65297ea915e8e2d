"""What a profile says of each file: how often it was positioned, how many bytes, how long its calls took."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from campaign.cells import record, stopping
from campaign.cells.contract import Record
from campaign.cells.folder import CampaignFolder
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.profiler import ProfilerError, saved, table
from jobs.profiler.window import Window

Floats = np.ndarray[Any, np.dtype[np.float64]]


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
class Observed:
    """Runs over the same files of a folder."""

    source: Path
    names: Sequence[str]  # relative to `source`, sorted
    runs: Sequence[Run]
    origin: str  # in words

    @property
    def calls_at_once(self) -> float:
        """Return how many calls were in progress on average while any was."""
        return float(np.mean([run.spent_s.sum() / run.in_calls_s for run in self.runs]))


def of_file(path: Path, source: Path) -> Observed:
    """Read a profile, of this project's or Darshan's; of its files only those below `source` count."""
    try:
        window = saved.read(path)
    except ProfilerError as error:
        raise UsageError(error.message, error.hint or "name a profile, or a campaign's folder") from error
    return _observed(source.resolve(), [(window, window.wall_s)], str(path), source.absolute())


def of_cell(folder: CampaignFolder, recorded: Record) -> Observed:
    """Read the profiles of the valid measured runs of a cell."""
    home = folder.cell(recorded["cell"]["id"])
    try:
        windows = [
            (table.read(home / str(run["profile"]["file"])), _waited_s(run))
            for run in stopping.measured(recorded, "valid")
            if run["profile"]["file"]
        ]
    except ProfilerError as error:
        raise EnvironmentFaultError(error.message, "profile the cell again: redo=true") from error
    return _observed(Path(recorded["dataset"]["path"]), windows, recorded["cell"]["id"])


def _waited_s(run: Mapping[str, Any]) -> float:
    return float(run.get("load_s") or run["wall_s"])


def profiled(folder: CampaignFolder) -> dict[str, Record]:
    """Return the cells, by id, that have a valid profiled run and read no copies."""
    found = (record.read_or_fault(path)[0] for path in sorted(folder.records.glob("*/record.json")))
    return {each["cell"]["id"]: each for each in found if each and _is_profiled(each)}


def _is_profiled(recorded: Record) -> bool:
    if "staging" in recorded["cell"]["settings"]:
        return False
    return any(run.get("profile", {}).get("file") for run in stopping.measured(recorded, "valid"))


def _observed(
    source: Path, windows: Sequence[tuple[Window, float]], origin: str, called: Path | None = None
) -> Observed:
    """Take the files below `source`, which the program may have `called` otherwise."""
    places = [_places(window, {f"{source}/", f"{called or source}/"}) for window, _ in windows]
    names = sorted(set().union(*places))
    if not all(places):
        raise UsageError(f"{origin} has read no file below {source}", "--data FOLDER: the files that may be copied")
    for window, _ in windows:
        if (blind := window.blind_spot()) and (window.dropped or not window.ended):
            raise UsageError(f"{origin}: {blind}", "plan from a complete profile")
    runs = [_run(window, waited_s, found, names) for (window, waited_s), found in zip(windows, places, strict=True)]
    return Observed(source, names, runs, origin)


def _places(window: Window, above: Collection[str]) -> dict[str, list[int]]:
    """Return the rows of each file that was read and not written, by its name below one of the folders `above`."""
    found: dict[str, list[int]] = {}
    rows = window.counters
    for place in np.flatnonzero((rows["bytes_read"] > 0) & (rows["bytes_written"] == 0)).tolist():
        path = window.paths[place]
        if folder := next((each for each in above if path.startswith(each)), None):
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
        in_calls_s=_in_calls_s(window, place, float(spent_s.sum())),
        seeks=summed(np.maximum(1, seen["reads"].astype(float) - seen["consec_reads"])),
        bytes_read=summed(seen["bytes_read"]),
        spent_s=spent_s,
        ended_s=ended,
    )


def _in_calls_s(window: Window, rows: Any, spent_s: float) -> float:
    """Return the time in which a call on these files was in progress; at most, where single calls are not known."""
    if window.events is None:
        return min(spent_s, window.wall_s)
    events = window.events[np.isin(window.events["file"], rows)]
    order = np.argsort(events["start"])
    start, end = events["start"][order], np.maximum.accumulate(events["end"][order])
    before = np.concatenate(([start[0]], end[:-1]))
    return float((end - np.maximum(start, before)).clip(0).sum() / 1e9)
