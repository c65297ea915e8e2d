"""Snapshots as a training sees them: what was saved, how long that took, and which one to start again from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jobs.burst_buffer import slow_storage, snapshots
from jobs.burst_buffer.drain_journal import Committed
from jobs.burst_buffer.slow_storage import Place
from jobs.burst_buffer.snapshots import FILES
from jobs.errors import BurstBufferError, DamageError, FolderError
from jobs.system import durable


class DrainWarning(UserWarning):
    """The slow storage fails, or a snapshot was found damaged; nothing is lost that has another copy."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is durable."""

    name: str
    step: int
    path: Path  # the folder that was filled, under its final name; its fast copy is let go when room is needed
    where: Literal["fast", "slow", "only"]  # the storage that it is durable on; ``only`` where there is but one
    bytes: int
    saved_at: float  # when `save` was called, in seconds since 1970
    blocked_s: float  # how long `save` took, all in all: the training stood still
    write_s: float  # of which: writing, syncing and hashing
    waited_s: float  # and waiting for room on the fast storage
    troubles: tuple[str, ...] = ()  # what the drainer has had to say since the last save


def latest(*roots: Place) -> Path | None:
    """Return the files of the newest complete and verified snapshot, having read them all; None where there is none.

    Of two copies the one in the earlier of the `roots` is preferred; one in a bucket is brought to the first. What is
    found damaged on the way is told as a `DrainWarning`, file by file.
    """
    gone: set[tuple[str, int]] = set()
    while True:
        places = [(snapshots.sequence(name), -place, name) for place, root in enumerate(roots) for name in _in(root)]
        for _, place, name in sorted(places, reverse=True):
            folder, wrong = _read(name, roots[-place], Path(str(roots[0])))
            if wrong is None and (name, place) not in gone:  # by a drainer, which has committed this one or a newer one
                gone.add((name, place))
                break
            if folder and wrong == []:
                return folder / FILES
            wrong = wrong or ["it is listed and is not there"]
            warnings.warn(f"{folder or name}: {', '.join(wrong)}", DrainWarning, stacklevel=3)
        else:
            return None


def _read(name: str, root: Place, first: Path) -> tuple[Path | None, list[str] | None]:
    """Return the folder of a snapshot and what is wrong with its files; None: it was removed meanwhile.

    Raises OSError where there is no room to bring it from a bucket to the `first` storage.
    """
    try:
        folder = slow_storage.of(root).restored(name, first)
    except (DamageError, FolderError, OSError) as error:
        if isinstance(error, OSError) and durable.is_full(error):
            raise
        return Path(name), [_why(error)]
    return folder, snapshots.verify(folder) if folder else None


def _in(root: Place) -> list[str]:
    """Return the names of the snapshots in a storage; where it cannot be read, what the other one has is good."""
    try:
        return snapshots.names(root) if isinstance(root, Path) else root.sealed()
    except (OSError, FolderError) as error:
        warnings.warn(f"{root} cannot be read: {_why(error)}", DrainWarning, stacklevel=4)
        return []


def _why(error: OSError | BurstBufferError) -> str:
    return error.message if isinstance(error, BurstBufferError) else str(error.strerror or error)


def times(snapshot: Snapshot, event: Committed | None, ended_at: float | None) -> dict[str, Any]:
    """Return what a record holds of a snapshot; `ended_at` is None while the training goes on, `event` if not known."""
    line = {
        key: getattr(snapshot, key) for key in ("name", "step", "where", "bytes", "blocked_s", "write_s", "waited_s")
    }
    line["troubles"] = list(snapshot.troubles)
    if snapshot.where != "fast":  # it is where it is to stay
        durable_fast_s = snapshot.blocked_s if snapshot.where == "only" else None
        drain = {"drain_s": 0.0, "exposed_s": 0.0, "durable_fast_s": durable_fast_s, "retries": 0}
        return {**line, **drain, "durable_slow_s": snapshot.blocked_s}
    line |= {"durable_fast_s": snapshot.blocked_s, "retries": event["retries"] if event else None}
    if event is None:
        return {**line, "drain_s": None, "exposed_s": None, "durable_slow_s": None}
    done, began = event["at"], event["started_at"]
    exposed_s = max(0.0, done - max(began, ended_at)) if ended_at is not None else 0.0
    return {**line, "drain_s": done - began, "exposed_s": exposed_s, "durable_slow_s": done - snapshot.saved_at}
