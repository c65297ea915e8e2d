"""Removing folders of snapshots that are needed no more: only those that are ours, and only what in them is ours."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from jobs.burst_buffer import lease, snapshots
from jobs.burst_buffer.slow_storage import Place
from jobs.errors import FolderError
from jobs.system import files

if TYPE_CHECKING:
    from filelock import FileLock

TIMEOUT_S = 300.0  # for a drainer that is copying 704 MB to a disk and reads them back
_STATES = (None, "staging", "copying", "removing", "damaged")


def clear(places: Sequence[Place], timeout_s: float = TIMEOUT_S) -> None:
    """Remove the folders of a training that is over, the fast one first, and what is in a bucket.

    A drainer that is still at work has nothing left to do once the fast folder is empty, and is waited for. Raises
    FolderError, before anything is touched, for a folder that is in use, somebody else's or of a newer version.
    """
    ours = [place for place in places if isinstance(place, Path) and place.exists()]
    buckets = [place for place in places if not isinstance(place, Path)]
    for bucket in buckets:
        lease.marker_of(bucket)
    for folder in ours:
        lease.marker_of(folder)
        snapshots.refuse_newer(folder)
    with ExitStack() as held:
        for folder in ours:
            held.callback(lease.held_by_trainer(folder).release)
        for folder in ours:
            _empty(folder)
            held.callback(_without_drainer(folder, timeout_s).release)
        for bucket in buckets:
            bucket.clear()
        for folder in ours:
            _empty(folder)  # of what a drainer was copying
            lease.remove_ours(folder)
            with suppress(OSError):  # somebody has put a file of his own there
                files.remove_empty(folder)


def _empty(folder: Path) -> None:
    for state in _STATES:
        for name in snapshots.names(folder, state):
            snapshots.remove(folder / (f"{state}-{name}" if state else name))


def _without_drainer(folder: Path, timeout_s: float) -> FileLock:
    taken = lease.lock(folder, "drainer")
    try:
        taken.acquire(timeout=timeout_s)
    except Timeout as error:
        raise FolderError(f"a drainer is still at work in {folder}", "wait for it to end, or end it") from error
    return taken
