"""The snapshots of a training: their sizes and times, and the newest good one for a restart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jobs.checkpoints.drain_loop import STAGED
from jobs.checkpoints.drain_process import Drain
from jobs.checkpoints.snapshots import Snapshots, sequence_number, store_of
from jobs.errors import JobError
from jobs.store.store import Store
from jobs.system import files
from jobs.system.clock import Moment, seconds_between


class DrainWarning(UserWarning):
    """A warning that the slow storage fails, or that a snapshot is damaged; no file is lost without another copy."""


@dataclass(frozen=True)
class Snapshot:
    """A durable snapshot, with its times."""

    name: str
    step: int
    path: Path  # the folder with its files; the fast copy is removed when room is needed
    where: Literal["fast", "only"]  # the storage on which it became durable first; ``only`` if there is one storage
    bytes: int
    saved: Moment  # when `save` was called
    blocked_s: float  # duration of `save`, during which the training stood still
    write_s: float  # the part of it for writing, syncing and hashing
    waited_s: float  # the part of it for waiting for room on the fast storage
    troubles: tuple[str, ...] = ()  # messages about failures of the drainer since the last save


def latest_snapshot(*places: Store | Path | str) -> Path | None:
    """Return the folder of the newest complete snapshot, after all its files were verified; None if there is none.

    Of two copies the one in the earlier of the `places` is returned; a copy in a bucket is copied to the first place.
    A `DrainWarning` names the damaged files of newer snapshots.
    """
    stores = [Snapshots(store_of(index)) for index in places]
    removed: set[tuple[str, int]] = set()
    while True:
        copies = [
            (sequence_number(name), -index, name) for index, store in enumerate(stores) for name in _names_in(store)
        ]
        for _, index, name in sorted(copies, reverse=True):
            folder, problems = _read(name, stores[-index], stores[0])
            if (
                problems is None and (name, index) not in removed
            ):  # a drainer removed it, and has committed it or a newer one
                removed.add((name, index))
                break
            if folder and problems == []:
                return folder
            problems = problems or ["it is listed, but is missing"]
            warnings.warn(f"{folder or name}: {', '.join(problems)}", DrainWarning, stacklevel=3)
        else:
            return None


def _read(name: str, store: Snapshots, target: Snapshots) -> tuple[Path | None, list[str] | None]:
    """Return the folder of a snapshot's files, and their problems (None: the snapshot was removed meanwhile).

    Raises OSError if the first storage has no room for a copy from a bucket.
    """
    try:
        folder = store.restored_folder(name, target)
    except (JobError, OSError) as error:
        if isinstance(error, OSError) and files.is_full(error):
            raise
        return Path(name), [_error_text(error)]
    return folder, (store if folder == store.path(name) else target).verify(name) if folder else None


def _names_in(store: Snapshots) -> list[str]:
    """Return the names of the snapshots in a store; empty with a warning if the store cannot be read."""
    try:
        return store.names(*STAGED, "damaged")  # the caller names damaged ones
    except (OSError, JobError) as error:
        warnings.warn(f"{store.store} cannot be read: {_error_text(error)}", DrainWarning, stacklevel=4)
        return []


def _error_text(error: OSError | JobError) -> str:
    return error.message if isinstance(error, JobError) else str(error.strerror or error)


def snapshot_times(snapshot: Snapshot, drain: Drain | None, training_ended: Moment | None) -> dict[str, Any]:
    """Return the record of a snapshot. `drain` is None if unknown, `training_ended` is None during the training.

    A duration is None if the machine was rebooted in between.
    """
    line = {
        key: getattr(snapshot, key) for key in ("name", "step", "where", "bytes", "blocked_s", "write_s", "waited_s")
    }
    line |= {"troubles": list(snapshot.troubles), "durable_fast_s": snapshot.blocked_s}
    if snapshot.where == "only":  # there is no other storage
        return {**line, "drain_s": 0.0, "exposed_s": 0.0, "retries": 0, "durable_slow_s": snapshot.blocked_s}
    if drain is None:
        return {**line, "retries": None, "drain_s": None, "exposed_s": None, "durable_slow_s": None}
    drain_s = seconds_between(drain["started"], drain["ended"])
    after_s = seconds_between(training_ended, drain["ended"]) if training_ended else 0.0
    exposed_s = None if after_s is None or drain_s is None else min(drain_s, max(0.0, after_s))
    durable_slow_s = seconds_between(snapshot.saved, drain["ended"])
    retries = drain["retries"]
    return {**line, "retries": retries, "drain_s": drain_s, "exposed_s": exposed_s, "durable_slow_s": durable_slow_s}
