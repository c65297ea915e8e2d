"""Save snapshots of a training to one folder, or to a burst buffer: a fast folder that is drained to a slow storage.

Other programs can use this module, too, because a snapshot is a folder with files of any kind. `BurstBuffer.save`
returns when the snapshot is durable on the fast storage. A separate process (`jobs.checkpoints.drain_loop`) copies the
snapshot to the slow storage, even after the training has ended. `jobs.checkpoints.snapshots` describes the stored files
and the order in which they are written.

To use a burst buffer by hand::

    python -m jobs.burst_buffer drain|list|restore|clear FAST SLOW
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from jobs.checkpoints import drain_process, lease, restart
from jobs.checkpoints.drain_loop import DrainOptions, SnapshotSides
from jobs.checkpoints.drain_process import Drain, DrainedSnapshot, Drainer, DrainEvent, DrainFailure, DrainJournal
from jobs.checkpoints.lease import ONLY, Marker
from jobs.checkpoints.restart import DrainWarning, Snapshot
from jobs.checkpoints.snapshots import Snapshots, new_snapshot_name, sequence_number, store_of
from jobs.errors import JobError, NotOursError, RoomError
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system import clock, files
from jobs.system.clock import Moment

_T = TypeVar("_T")
_POLL_S, _POLL_BUCKET_S = 0.05, 0.5


class DirectTarget:
    """A checkpoint target with only one folder, which has the newest `keep` snapshots of one training.

    This class has the methods of `BurstBuffer`. The folder must be empty, or have the snapshots of an earlier training.
    The folder is made if its parent folder exists. Raises FolderError for a folder that cannot be used, without
    changing the folder. Raises RoomError if one snapshot does not fit.
    """

    _slow: Snapshots | None = None

    def __init__(self, folder: Path | str, *, keep: int = 5, snapshot_bytes: int | None = None) -> None:
        if keep < 1:
            raise ValueError("keep must be 1 or more")
        self.fast, self._keep = Path(folder).resolve(), keep
        self._folder, self._saved = Folder(self.fast), list[Snapshot]()
        self._snapshots = Snapshots(self._folder)
        self._locks, buffer_id, marker = lease.hold_stores(self._folder, self._slow.store if self._slow else None)
        with self._locks as locks:
            names = self._snapshots.names("complete", "unreadable", "damaged")
            names += self._prepare_stores(buffer_id, marker, snapshot_bytes or 0)
            self._locks = locks.pop_all()
        self._sequence = max(map(sequence_number, names), default=0)

    def _prepare_stores(self, buffer_id: str, marker: Marker | None, snapshot_bytes: int) -> list[str]:
        """Check the free space, mark the folder, and remove incomplete snapshots of a dead trainer.

        Return an empty list, because there is no slow storage with further snapshots.
        """
        self._snapshots.require_room(snapshot_bytes)
        if marker is None:
            lease.write_marker(self._folder, ONLY, buffer_id)
        self._snapshots.recover()
        return []

    def save(self, step: int, write: Callable[[Path], object]) -> Snapshot:
        """Save a snapshot of this training step, and return it when it is durable; not thread-safe.

        `write` is called with an empty folder, and must write the files of the snapshot to this folder. Then all but
        the newest `keep` snapshots are removed. If `write` raises an error, no snapshot is saved. Raises RoomError if
        the storage is full.
        """
        snapshot, start = self._new_snapshot(step, "only"), time.perf_counter()
        try:
            snapshot = self._write(snapshot, write)
        except Exception as error:
            if files.is_full(error):
                raise RoomError(f"{self.fast} is full: {error}", "free some space, or keep fewer snapshots") from error
            raise
        for name in self._snapshots.names()[: -self._keep]:
            self._snapshots.delete(name)
        snapshot = replace(snapshot, blocked_s=time.perf_counter() - start)
        self._saved.append(snapshot)
        return snapshot

    def _new_snapshot(self, step: int, where: Any) -> Snapshot:
        if step < 0:
            raise ValueError("step must not be negative")
        self._sequence += 1
        return Snapshot(
            new_snapshot_name(self._sequence, step), step, Path(), where, 0, clock.current_moment(), 0.0, 0.0, 0.0
        )

    def _write(self, snapshot: Snapshot, write: Callable[[Path], object], streams: int = 1) -> Snapshot:
        start = time.perf_counter()

        def facts() -> dict[str, Any]:
            write_s = time.perf_counter() - start
            return {"saved_at": time.time(), "waited_s": snapshot.waited_s, "write_s": write_s}

        manifest = self._snapshots.stage(snapshot.name, write, facts, streams)
        path, write_s = self._snapshots.path(snapshot.name), time.perf_counter() - start
        return replace(snapshot, path=path, bytes=manifest.total_bytes, write_s=write_s)

    def wait_until_drained(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - a parameter of `BurstBuffer`
        """Return True at once, because a single folder has no drain."""
        return True

    def report(self, training_ended: Moment | None = None) -> list[dict[str, Any]]:
        """Return the times of each snapshot of this training, in the form of `BurstBuffer.report`."""
        return [restart.snapshot_times(snapshot, None, training_ended) for snapshot in self._saved]

    def troubles(self) -> tuple[str, ...]:
        """Return no messages, because every error of a single folder is raised in the training."""
        return ()

    def helpers(self) -> list[int]:
        """Return no process ids, because a single folder needs no other process."""
        return []

    def close(self) -> None:
        """Release the locks of the folders."""
        self._locks.close()


class BurstBuffer(DirectTarget):
    """A checkpoint target with a fast folder and a slow store, for the newest snapshots of one training.

    Parameters
    ----------
    fast, slow
        Folders that are empty or have snapshots of an earlier training. A folder is made if its parent folder exists.
        `slow` may also be the address of a bucket, see `jobs.store.bucket.Bucket`.
    snapshot_bytes
        Size of one snapshot in bytes, or None if unknown. With a known size, the free space is checked before the first
        snapshot.
    options
        Options of the drain, see `jobs.checkpoints.drain_loop.DrainOptions`: ``keep``, ``bandwidth_mb_per_s``,
        ``streams``, ``attempts``, ``backoff_s``, ``backoff_max_s``.

    Raises
    ------
    FolderError
        A folder is missing, is in use, was made by a newer version, or belongs to another user. The folder is not
        changed.
    RoomError
        A store has no space for one snapshot.
    """

    _slow: Snapshots

    def __init__(
        self,
        fast: Path | str,
        slow: Folder | Bucket | Path | str,
        *,
        snapshot_bytes: int | None = None,
        **options: Any,
    ) -> None:
        self.options, self.slow = DrainOptions(**options), store_of(slow)
        self._slow = Snapshots(self.slow)
        self._expected = snapshot_bytes
        self._troubles: list[str] = []
        self._displaced = ""
        super().__init__(fast, keep=self.options.keep, snapshot_bytes=snapshot_bytes)
        self._journal = DrainJournal(self.fast)
        self._offset = self._journal.read(DrainEvent)[1]
        self._drainer = Drainer(self._folder, self.slow)
        self._drainer.poke()

    def _prepare_stores(self, buffer_id: str, marker: Marker | None, snapshot_bytes: int) -> list[str]:
        """Check the free space, mark both stores, and remove incomplete snapshots of a dead trainer.

        Return the names of the snapshots in the slow store.
        """
        session = secrets.token_hex(8) if isinstance(self.slow, Bucket) else None
        # This store lists a bucket without retries, so that a bucket that does not answer delays the training little.
        store_to_list = Snapshots(Bucket.at(str(self.slow), retries=0)) if isinstance(self.slow, Bucket) else self._slow
        self._sides = SnapshotSides(self._snapshots, store_to_list, buffer_id, self._keep, session)
        names = [*self._slow.states()]
        for snapshots in (self._slow, self._snapshots):
            snapshots.require_room(snapshot_bytes)
        if marker is None or session:
            lease.write_marker(self.slow, "slow", buffer_id, session=session)
        self._snapshots.recover()
        facts = {"options": asdict(self.options), "session": session}  # facts in the marker that the drainer reads
        if marker is None or session or marker.get("options") != facts["options"]:
            self._with_room(lambda: lease.write_marker(self._folder, "fast", buffer_id, **facts))
        return names

    def _with_room(self, act: Callable[[], _T]) -> _T:
        """Call `act` and return its result; while the fast storage is full, remove a drained snapshot and try again."""
        while True:
            try:
                return act()
            except OSError as error:
                if not files.is_full(error) or not self._sides.evict_one():
                    raise

    def save(self, step: int, write: Callable[[Path], object]) -> Snapshot:
        """Save a snapshot of this training step, and return it when it is durable on the fast storage; not thread-safe.

        Parameters
        ----------
        write
            Function that is called with an empty folder and must write the files of the snapshot to this folder. If
            the fast storage is full, the function is called again later, with an empty folder.

        Raises
        ------
        RoomError
            The fast storage is full, and the drain cannot free space, because the slow storage fails or one snapshot
            is too large.
        NotOursError
            Another trainer has opened the bucket. The snapshot is durable on the fast storage, and is not drained
            before this training has ended.
        Exception
            `write` has raised this error, and no snapshot is saved.
        """
        snapshot, start = self._new_snapshot(step, "fast"), time.perf_counter()
        snapshot = self._stage(snapshot, write)
        self._drainer.poke()
        self._expected = snapshot.bytes
        snapshot = replace(snapshot, blocked_s=time.perf_counter() - start, troubles=self.troubles())
        self._saved.append(snapshot)
        if self._displaced:
            raise NotOursError(self._displaced, "give each training its own prefix")
        if snapshot.troubles:
            warnings.warn("; ".join(snapshot.troubles), DrainWarning, stacklevel=2)
        return snapshot

    def _stage(self, snapshot: Snapshot, write: Callable[[Path], object]) -> Snapshot:
        """Write a snapshot to the fast storage; whenever the storage is full, free space and try again."""
        waited_s, full = 0.0, None
        while True:
            if files.free_bytes(self.fast) >= (self._expected or 0):
                try:
                    return self._write(replace(snapshot, waited_s=waited_s), write, self.options.streams)
                except Exception as error:
                    if not files.is_full(error):
                        raise
                    full = error
            if not self._sides.evict_one():
                waited_s += self._wait_for_room(full)

    @property
    def _poll_s(self) -> float:
        return _POLL_BUCKET_S if isinstance(self.slow, Bucket) else _POLL_S

    def _wait_for_room(self, full: Exception | None) -> float:
        """Wait until the drainer has copied one more snapshot to the slow storage; return the waiting time in seconds.

        `full` is the error of the last attempt to write. If the fast storage has no snapshot that could be removed,
        RoomError is raised from `full`.
        """
        start = time.perf_counter()
        pending = self._sides.pending_or_all()
        if not pending and not self._snapshots.names():
            reason = f": {full}" if full else ""
            raise RoomError(f"one snapshot does not fit on {self.fast}{reason}", "use a larger fast storage") from full
        self._drainer.poke()
        complaints: list[str] = []
        while pending and self._sides.pending_or_all() == pending:
            has_ended = self._drainer.ended()
            if new := [trouble for trouble in self.troubles() if trouble not in complaints]:
                complaints += new
                warnings.warn(f"waiting for free space on {self.fast}: {'; '.join(new)}", DrainWarning, stacklevel=2)
            if has_ended:
                raise RoomError(
                    f"{self.fast} is full and the drain has stopped: {'; '.join(complaints)}",
                    f"repair {self.slow}; no saved snapshot is lost",
                )
            clock.wait(self._poll_s)
        self._troubles = complaints
        return time.perf_counter() - start

    def troubles(self) -> tuple[str, ...]:
        """Return messages about failures of the drain since the last call of this method or of `save`."""
        events, self._offset = self._journal.read(DrainFailure, self._offset)
        reasons = [event["reason"] for event in events if event["event"] == "displaced"]
        self._displaced = reasons[0] if reasons else self._displaced
        troubles = [*self._troubles, *self._drainer.complaints()]
        troubles += [f"the drain: {event['event']}: {event['reason']}" for event in events]
        self._troubles = []
        return tuple(dict.fromkeys(troubles))

    def latest(self) -> Path | None:
        """Return the folder with the files of the newest complete snapshot, or None if there is no such snapshot.

        All files of the snapshot are verified first. A copy on the fast storage is preferred. A copy in a bucket is
        copied to the fast storage.
        """
        return self._with_room(lambda: restart.latest_snapshot(self.fast, self.slow))

    def wait_until_drained(self, timeout_s: float | None = None) -> bool:
        """Wait until every snapshot is on the slow storage, and return True.

        Return False after `timeout_s`, if the drainer has given up, or if a snapshot of this training is damaged. If
        the drain has failed, `troubles` returns the reason.
        """
        start = time.monotonic()
        self._drainer.poke()
        while True:
            # The drainer is checked before the snapshots, so that the last snapshot of an ended drainer counts.
            has_ended = self._drainer.ended()
            pending = self._sides.pending_or_all()
            if not pending or has_ended or (timeout_s is not None and time.monotonic() - start > timeout_s):
                break
            clock.wait(self._poll_s)
        damaged = {snapshot.name for snapshot in self._saved}.intersection(self._snapshots.names("damaged"))
        return not pending and not damaged

    def report(self, training_ended: Moment | None = None) -> list[dict[str, Any]]:
        """Return the times of each snapshot of this training, for a record.

        Parameters
        ----------
        training_ended
            The end of the training, or None if the training is still running.

        Returns
        -------
        list
            For each snapshot the keys ``blocked_s write_s waited_s drain_s exposed_s durable_fast_s durable_slow_s``,
            ``bytes``, ``retries`` and ``troubles``. ``exposed_s`` is the part of the drain after the end of the
            training. ``durable_fast_s`` and ``durable_slow_s`` count from the call of `save`. A value is None if the
            snapshot is not yet durable on the slow storage, or if the time is unknown. A time is unknown if the drainer
            was killed before it wrote the time, or if the machine was rebooted in between.
        """
        events = {event["name"]: event for event in self._journal.read(DrainedSnapshot)[0]}
        return [
            restart.snapshot_times(
                snapshot, events.get(snapshot.name) or self._committed(snapshot.name), training_ended
            )
            for snapshot in self._saved
        ]

    def _committed(self, name: str) -> Drain | None:
        """Return the times of a snapshot's drain from its manifest on the slow storage, or None without a manifest.

        The manifest is needed if the drainer died before it wrote to its journal.
        """
        try:
            return drain_process.drain_of_manifest(self._slow.find(name))
        except (OSError, JobError):
            return None

    def helpers(self) -> list[int]:
        """Return the process id of the drainer in a list, which is empty if the drainer is not running."""
        return self._drainer.pids()

    def close(self) -> None:
        """Release the locks of the folders; the drainer continues alone until all snapshots are drained."""
        if self._displaced:
            self._drainer.poke()  # starts a new drainer, which may drain the remaining snapshots after this training
        self._drainer.close_pipe()
        super().close()
