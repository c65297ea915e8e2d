"""The snapshots of a training: their sizes and times, and the newest good one for a restart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jobs.checkpoints.drain_loop import STAGED
from jobs.checkpoints.drain_process import Drain
from jobs.checkpoints.snapshots import Snapshots, sequence, store_of
from jobs.errors import JobError
from jobs.store.store import Store
from jobs.system import files
from jobs.system.clock import Moment, seconds_between


class DrainWarning(UserWarning):
    """A warning: the slow storage fails, or a snapshot is damaged; every lost file has another copy."""


@dataclass(frozen=True)
class Snapshot:
    """A durable snapshot, with its times."""

    name: str
    step: int
    path: Path  # the folder that was filled; the fast copy is removed when room is needed
    where: Literal["fast", "only"]  # the storage on which it became durable first; ``only`` if there is one storage
    bytes: int
    saved: Moment  # when `save` was called
    blocked_s: float  # the whole duration of `save`, during which the training stood still
    write_s: float  # the part of it for writing, syncing and hashing
    waited_s: float  # the part of it for waiting for room on the fast storage
    troubles: tuple[str, ...] = ()  # messages about failures of the drainer since the last save


def latest(*places: Store | Path | str) -> Path | None:
    """Return the folder of the newest complete snapshot, after all its files were verified; None if there is none.

    Of two copies the one in the earlier of the `places` is preferred; a copy in a bucket is brought to the first one.
    A `DrainWarning` names the damaged files of newer snapshots.
    """
    stores = [Snapshots(store_of(place)) for place in places]
    gone: set[tuple[str, int]] = set()
    while True:
        copies = [(sequence(name), -place, name) for place, store in enumerate(stores) for name in _names_in(store)]
        for _, place, name in sorted(copies, reverse=True):
            folder, wrong = _read(name, stores[-place], stores[0])
            if wrong is None and (name, place) not in gone:  # by a drainer, which has committed this one or a newer one
                gone.add((name, place))
                break
            if folder and wrong == []:
                return folder
            wrong = wrong or ["it is listed and is not there"]
            warnings.warn(f"{folder or name}: {', '.join(wrong)}", DrainWarning, stacklevel=3)
        else:
            return None


def _read(name: str, store: Snapshots, first: Snapshots) -> tuple[Path | None, list[str] | None]:
    """Return the folder of a snapshot's files, and their problems (None: the snapshot was removed meanwhile).

    Raises OSError if there is no room to copy it from a bucket to the `first` storage.
    """
    try:
        folder = store.restored(name, first)
    except (JobError, OSError) as error:
        if isinstance(error, OSError) and files.is_full(error):
            raise
        return Path(name), [_why(error)]
    return folder, (store if folder == store.path(name) else first).verify(name) if folder else None


def _names_in(store: Snapshots) -> list[str]:
    """Return the names of the snapshots in a store; empty with a warning if the store cannot be read."""
    try:
        return store.names(*STAGED, "damaged")  # one that was set aside is named, or good by now
    except (OSError, JobError) as error:
        warnings.warn(f"{store.store} cannot be read: {_why(error)}", DrainWarning, stacklevel=4)
        return []


def _why(error: OSError | JobError) -> str:
    return error.message if isinstance(error, JobError) else str(error.strerror or error)


def times(snapshot: Snapshot, drain: Drain | None, training_ended: Moment | None) -> dict[str, Any]:
    """Return the record of a snapshot; `drain`: None if unknown, `training_ended`: None during the training.

    A time that began on another boot of a machine than it ended is None.
    """
    line = {
        key: getattr(snapshot, key) for key in ("name", "step", "where", "bytes", "blocked_s", "write_s", "waited_s")
    }
    line |= {"troubles": list(snapshot.troubles), "durable_fast_s": snapshot.blocked_s}
    if snapshot.where == "only":  # it is on its last storage already
        return {**line, "drain_s": 0.0, "exposed_s": 0.0, "retries": 0, "durable_slow_s": snapshot.blocked_s}
    if drain is None:
        return {**line, "retries": None, "drain_s": None, "exposed_s": None, "durable_slow_s": None}
    drain_s = seconds_between(drain["started"], drain["ended"])
    after_s = seconds_between(training_ended, drain["ended"]) if training_ended else 0.0
    exposed_s = None if after_s is None or drain_s is None else min(drain_s, max(0.0, after_s))
    durable_slow_s = seconds_between(snapshot.saved, drain["ended"])
    retries = drain["retries"]
    return {**line, "retries": retries, "drain_s": drain_s, "exposed_s": exposed_s, "durable_slow_s": durable_slow_s}
