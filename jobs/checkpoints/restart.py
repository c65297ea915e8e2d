"""Find the newest good snapshot of a training for a restart, and describe the sizes and times of snapshots."""

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
    """A warning that the slow storage fails, that a snapshot is damaged, or that a store cannot be read."""


@dataclass(frozen=True)
class Snapshot:
    """A durable snapshot of a training, with the times of saving it."""

    name: str
    step: int
    path: Path  # the folder with the files; a copy on the fast storage may be removed later to free space
    where: Literal["fast", "only"]  # the storage that the snapshot was written to; ``only`` without a burst buffer
    bytes: int
    saved: Moment  # the moment at which `save` was called
    blocked_s: float  # duration of `save`, during which the training could not continue
    write_s: float  # part of `blocked_s` for writing, syncing and hashing the files
    waited_s: float  # part of `blocked_s` for waiting for free space on the fast storage
    troubles: tuple[str, ...] = ()  # messages about failures of the drainer since the last save


def latest_snapshot(*places: Store | Path | str) -> Path | None:
    """Return the folder with the files of the newest complete snapshot, or None if no store has a complete snapshot.

    All files of the snapshot are verified first. If several stores have copies of the snapshot, the copy in the
    earliest of the `places` is returned. A copy in a bucket is copied to the first place. A `DrainWarning` names the
    damaged files of newer snapshots.
    """
    stores = [Snapshots(store_of(place)) for place in places]
    removed: set[tuple[str, int]] = set()
    while True:
        copies = [
            (sequence_number(name), -index, name) for index, store in enumerate(stores) for name in _names_in(store)
        ]
        for _, index, name in sorted(copies, reverse=True):
            folder, problems = _read(name, stores[-index], stores[0])
            # A drainer has removed the snapshot meanwhile, so the slow store has a copy of it or a newer snapshot. The
            # stores are listed again to find that snapshot.
            if problems is None and (name, index) not in removed:
                removed.add((name, index))
                break
            if folder and problems == []:
                return folder
            problems = problems or ["the snapshot is listed, but is missing"]
            warnings.warn(f"{folder or name}: {', '.join(problems)}", DrainWarning, stacklevel=3)
        else:
            return None


def _read(name: str, store: Snapshots, target: Snapshots) -> tuple[Path | None, list[str] | None]:
    """Return the folder with the files of a snapshot, and the problems of the files.

    The problems are None if the snapshot was removed meanwhile. Raises OSError if `target` has no space for the copy of
    a snapshot from a bucket.
    """
    try:
        folder = store.restored_folder(name, target)
    except (JobError, OSError) as error:
        if isinstance(error, OSError) and files.is_full(error):
            raise
        return Path(name), [_error_text(error)]
    return folder, (store if folder == store.path(name) else target).verify(name) if folder else None


def _names_in(store: Snapshots) -> list[str]:
    """Return the names of the snapshots in a store; if the store cannot be read, warn and return an empty list."""
    try:
        return store.names(*STAGED, "damaged")  # the caller warns of damaged snapshots
    except (OSError, JobError) as error:
        warnings.warn(f"{store.store} cannot be read: {_error_text(error)}", DrainWarning, stacklevel=4)
        return []


def _error_text(error: OSError | JobError) -> str:
    return error.message if isinstance(error, JobError) else str(error.strerror or error)


def snapshot_times(snapshot: Snapshot, drain: Drain | None, training_ended: Moment | None) -> dict[str, Any]:
    """Return the size and the times of a snapshot, as a record stores them.

    `drain` is None if the snapshot is not drained yet, or if the times of its drain are unknown. `training_ended` is
    None while the training is running. A duration is None if the machine was rebooted in between.
    """
    line = {
        key: getattr(snapshot, key) for key in ("name", "step", "where", "bytes", "blocked_s", "write_s", "waited_s")
    }
    line |= {"troubles": list(snapshot.troubles), "durable_fast_s": snapshot.blocked_s}
    if snapshot.where == "only":  # without a slow storage, there is no drain
        return {**line, "drain_s": 0.0, "exposed_s": 0.0, "retries": 0, "durable_slow_s": snapshot.blocked_s}
    if drain is None:
        return {**line, "retries": None, "drain_s": None, "exposed_s": None, "durable_slow_s": None}
    drain_s = seconds_between(drain["started"], drain["ended"])
    after_s = seconds_between(training_ended, drain["ended"]) if training_ended else 0.0
    exposed_s = None if after_s is None or drain_s is None else min(drain_s, max(0.0, after_s))
    durable_slow_s = seconds_between(snapshot.saved, drain["ended"])
    retries = drain["retries"]
    return {**line, "retries": retries, "drain_s": drain_s, "exposed_s": exposed_s, "durable_slow_s": durable_slow_s}
