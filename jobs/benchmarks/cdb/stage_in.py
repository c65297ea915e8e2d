"""Copies of a rank's files on a fast storage of its node, made before the epochs as CDB's jobs did.

They go when the run ends. What a killed run has left there the next one goes on with, and its record says so.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.data import staged_copies
from jobs.errors import DatasetError
from jobs.events.time_log import TimeLog
from jobs.model.request import Request
from jobs.model.results import Expectation
from jobs.system import files, page_cache

_COLD = 0.01  # of the pages of the originals at most are in memory, as of any cold run's files


@dataclass(frozen=True)
class Copies:
    """Where files are read: a copy in `folder`, or the file itself where there is none of it."""

    source: Path
    folder: Path | None = None
    names: frozenset[str] = frozenset()
    figures: Mapping[str, Any] = field(default_factory=dict)  # for the record: what was copied, and how long it took
    expected: Mapping[str, Expectation] = field(default_factory=dict)
    newest_ns: int | None = None  # no copy was changed after this (ctime); None: there is none

    def of(self, path: Path) -> Path:
        """Return where a file is read."""
        name = str(path.relative_to(self.source))
        return self.folder / name if self.folder and name in self.names else path


@contextmanager
def staged_in(request: Request, rank: int, sizes: Mapping[Path, int], log: TimeLog | None) -> Iterator[Copies]:
    """Copy a rank's files, of listed `sizes`, below the folder that the key ``stage`` names, if it names one.

    Raises DatasetError: there is no such folder, the rank's own in it is somebody else's or in use, files are not as
    listed, do not fit, or do not read back as they were.
    """
    settings, source = request["settings"], Path(request["dataset"])
    stage = settings["benchmark"].get("stage")
    if stage is None:
        yield Copies(source)
        return
    root = Path(stage.replace("{rank}", str(rank)))
    if not root.is_dir():
        raise DatasetError(f"there is no folder {root} to copy to", "mount the fast storage, or name another stage")
    above = root.resolve() / f"tfio-staged-{os.geteuid()}"
    files.make_folder(above, exist_ok=True)
    if fault := files.distrust(above):
        raise DatasetError(fault, "name another stage")
    real, listed_ns = source.resolve(), request.get("listed_ns")
    folder = above / f"{hashlib.sha256(os.fsencode(real)).hexdigest()[:10]}-{rank}"
    wanted = [(str(path.relative_to(source)), *_as_listed(path, size, listed_ns)) for path, size in sizes.items()]
    names = frozenset(name for name, *_ in wanted)
    with staged_copies.held(folder, real, wait_s=0):
        try:
            staged_copies.taken_away(real, folder, keep=names)  # what is left of a run of other files
            told, expected = _copied(real, folder, wanted, settings["cache"], log)
            newest_ns = max((folder / name).lstat().st_ctime_ns for name in names)
            yield Copies(source, folder, names, told, expected, newest_ns)
        finally:
            with suppress(OSError):  # of a storage that is gone the next run removes them
                staged_copies.taken_away(real, folder)


def _as_listed(path: Path, size: int, listed_ns: int | None) -> tuple[int, int]:
    """Return bytes and time of change of a file that has not changed since it was listed, else DatasetError."""
    found = staged_copies.identity(path)
    if found is None or found[0] != size or (listed_ns and path.lstat().st_ctime_ns > listed_ns):
        raise DatasetError(f"{path} is a link, or not as it was listed", "leave it alone, and list it again")
    return found


def _copied(
    source: Path, folder: Path, wanted: list[staged_copies.File], cache: str, log: TimeLog | None
) -> tuple[dict[str, Any], dict[str, Expectation]]:
    """Copy what is missing; returns figures, and the check that a cold run has read the originals cold."""
    missing = staged_copies.missing(source, folder, wanted)
    originals = [source / name for batch in missing for name, *_ in batch]
    fraction = page_cache.cooled(originals, originals, source).fraction if cache == "cold" and originals else 0.0
    began = time.perf_counter()
    for batch in missing:
        with log.event("stage", size_bytes=sum(size for _, size, _ in batch)) if log else nullcontext():
            staged_copies.copy(source, folder, batch)
    took_s, size = time.perf_counter() - began, sum(size for batch in missing for _, size, _ in batch)
    told = {
        "stage_s": took_s,
        "stage_files": len(originals),
        "stage_bytes": size,
        "stage_found_files": len(wanted) - len(originals),
        "stage_mb_per_s": size / 1e6 / took_s,
    }
    if cache != "cold":
        return told, {}
    percent = "an unknown share" if fraction is None else f"{fraction:.1%}"
    how = f"{len(originals)} files, {size / 1e6:,.1f} MB, were copied in {took_s:.1f} s"
    message = f"{how}; before, {percent} of their pages was in memory"
    cold = None if fraction is None else fraction <= _COLD
    return told, {"staged_cold": {"expected": True, "found": cold, "message": message}}
