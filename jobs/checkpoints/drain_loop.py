"""The drainer: a process that copies snapshots from the fast storage of a burst buffer to the slow storage.

The trainer announces new snapshots by bytes on the drainer's standard input. The end of standard input means that the
trainer has ended. The drainer ends when the trainer has ended and no snapshot is left to drain. The drainer can be
killed and started again at any moment. The class `SnapshotSides` decides which snapshots are drained, and which copies
may be removed.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import Timeout

from jobs.checkpoints import lease
from jobs.checkpoints.drain_process import DrainJournal
from jobs.checkpoints.lease import Marker
from jobs.checkpoints.snapshots import Snapshots, sequence_number, store_of
from jobs.errors import DamageError, FolderError, JobError, NotOursError
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.store.transfer import TransferOptions
from jobs.system import clock
from jobs.terminal import visible

STAGED = ("complete", "unreadable")
"""The states of the snapshots on the fast storage that must be drained.

An unreadable snapshot is drained, too, because the drain then marks the snapshot as damaged.
"""


@dataclass(frozen=True)
class SnapshotSides:
    """The two sides of a burst buffer: the snapshots in the fast folder, and in the slow folder or bucket.

    At least the `keep` newest snapshots stay in each store.
    """

    fast: Snapshots
    slow: Snapshots
    buffer_id: str  # id of the burst buffer, which the markers of both stores have
    keep: int
    session: str | None = None  # session of the trainer, if the trainer runs and the slow store is a bucket

    def require_slow(self) -> None:
        """Raise an error if the slow storage cannot be used.

        Raises NotOursError if the slow storage belongs to another burst buffer. Raises OSError or JobError if the slow
        storage does not answer.
        """
        lease.require_owner(self.slow.store, self.buffer_id, self.session)

    def idle(self) -> bool:
        """Return whether the fast storage has no snapshot to drain.

        A fast folder that is missing, or belongs to another burst buffer, has no snapshot to drain.
        """
        try:
            lease.require_owner(self.fast.store, self.buffer_id)
            return not self.fast.names(*STAGED)
        except (FileNotFoundError, JobError):
            return True
        except OSError:  # the storage does not answer, so it may have snapshots to drain
            return False

    def pending_snapshots(self) -> list[str]:
        """Return the names of the snapshots that must still be drained, the oldest first.

        A snapshot counts as drained if the slow storage has this snapshot or `keep` newer snapshots.
        """
        self.require_slow()
        # The fast storage is listed first, so that a snapshot that is drained meanwhile is in both lists.
        staged = self.fast.names(*STAGED)
        committed = self.slow.names()
        superseded = sequence_number(committed[-self.keep]) if len(committed) >= self.keep else -1
        return [name for name in staged if name not in committed and sequence_number(name) > superseded]

    def pending_or_all(self) -> list[str]:
        """Return the names of the snapshots that must still be drained.

        If the slow storage does not answer, all snapshots of the fast storage are returned.
        """
        try:
            return self.pending_snapshots()
        except (OSError, JobError):
            return self.fast.names(*STAGED)

    def evict_one(self) -> bool:
        """Remove one snapshot from the fast storage: the oldest drained snapshot, or else a damaged snapshot.

        Return False if there is no such snapshot.
        """
        states, pending = self.fast.states(), self.pending_or_all()
        copies = [name for name, state in states.items() if state in STAGED and name not in pending]
        copies += [name for name, state in states.items() if state == "damaged"]
        if copies:
            self.fast.delete(copies[0])
        return bool(copies)

    def remove_surplus(self) -> None:
        """Remove all but the `keep` newest snapshots from each storage.

        Snapshots that must still be drained are not removed from the fast storage.
        """
        for name in self.slow.names()[: -self.keep]:
            self.slow.delete(name)
        staged = self.fast.names(*STAGED)
        pending = self.pending_snapshots()
        for name in staged[: -self.keep]:
            if name not in pending:
                self.fast.delete(name)


GAVE_UP = 3  # exit code of a drainer that has given up, because the slow storage fails
_CHECK_INTERVAL_S = 0.5
_LASTING_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT)
"""Errors after which the drain is not tried again, because only the user can remove their cause.

A full storage is no such error, because other users may remove files.
"""


@dataclass(frozen=True)
class DrainOptions:
    """The options of the drain: the number of snapshots to keep, the bandwidth, the streams and the retries."""

    keep: int = 5  # number of newest snapshots that stay on each storage
    bandwidth_mb_per_s: float | None = None  # limit on the speed of the drain; None: no limit
    streams: int = 1  # number of threads that copy and hash files
    attempts: int = 10  # failures in a row after which the drainer ends; the next save or job starts a new drainer
    backoff_s: float = 0.5  # seconds to wait after the first failure; the time doubles after each further failure
    backoff_max_s: float = 30.0  # longest wait in seconds

    @property
    def how(self) -> TransferOptions:
        """Return the options of the file transfer: the bandwidth and the streams."""
        return TransferOptions(self.bandwidth_mb_per_s, self.streams)

    def __post_init__(self) -> None:
        """Raise ValueError if an option has an impossible value."""
        counts = (self.keep, self.streams, self.attempts)
        if not all(isinstance(count, int) and count > 0 for count in counts):
            raise ValueError("keep, streams and attempts must be whole numbers, 1 or more")
        if min(self.backoff_s, self.backoff_max_s) < 0:
            raise ValueError("backoff_s and backoff_max_s must not be negative")
        if self.bandwidth_mb_per_s is not None and self.bandwidth_mb_per_s <= 0:
            raise ValueError("bandwidth_mb_per_s must be more than 0, or None for no limit")


def options_in_marker(marker: Marker) -> DrainOptions:
    """Return the options of the drain from the marker of a fast storage; raise FolderError for invalid options."""
    try:
        return DrainOptions(**marker["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(
            f"the options in the marker file {lease.MARKER_NAME} are not valid: {error}",
            "correct the options in this file",
        ) from error


class TrainerPipe:
    """The pipe from a trainer to its drainer, which has one byte per new snapshot and closes when the trainer ends."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe

    @property
    def alive(self) -> bool:
        """Return whether the trainer is alive, which means that the pipe is open; no byte is read from the pipe."""
        if self._pipe is None:
            return False
        poller = select.poll()
        poller.register(self._pipe, 0)
        return not any(events & select.POLLHUP for _, events in poller.poll(0))

    def wait(self) -> None:
        """Wait until the trainer announces a new snapshot, or ends."""
        if self._pipe is not None:
            select.select([self._pipe], [], [])
            if not os.read(self._pipe, 4096):
                self._pipe = None


def drain_snapshots(fast: Folder | Path | str, slow: Folder | Bucket | Path | str, pipe: int | None = None) -> int:
    """Drain all snapshots of the fast storage, and continue until the trainer at the other end of `pipe` has ended.

    Return 0 when no snapshot is left to drain, or `GAVE_UP` if the slow storage fails. Raises FolderError if a folder
    belongs to another user or burst buffer.
    """
    fast, slow = Folder(Path(str(fast))), store_of(slow)
    if _marker(fast, slow) is None:
        return 0
    trainer, journal = TrainerPipe(pipe), DrainJournal(fast.root)
    is_tidy = False
    with lease.held_by_drainer(fast) as is_present:
        marker = _marker(fast, slow) if is_present else None
        if marker is None:
            return 0
        options = options_in_marker(marker)
        sides = SnapshotSides(Snapshots(fast), Snapshots(slow), marker["id"], options.keep, marker.get("session"))
        while (progress := _retry(sides, options, journal, trainer)) is not None:
            if not progress and trainer.alive:
                trainer.wait()
            elif not progress and is_tidy:
                return 0
            elif not progress:
                if fast.root.is_dir():  # because acquiring the lock would make a missing folder again
                    with suppress(Timeout, OSError, JobError), lease.folder_lock(fast, "trainer").acquire(timeout=0):
                        sides.fast.recover()  # removes incomplete snapshots of a dead trainer before the last check
                is_tidy = True
    return GAVE_UP


def _marker(fast: Folder, slow: Folder | Bucket) -> Marker | None:
    """Return the marker of the fast folder, or None if the folder has no marker.

    A slow folder is checked, too. A bucket is checked later, because it may not answer now.
    """
    return lease.identify_pair(fast, slow)[1] if isinstance(slow, Folder) else lease.read_marker(fast)


def _retry(sides: SnapshotSides, options: DrainOptions, journal: DrainJournal, trainer: TrainerPipe) -> bool | None:
    """Repeat `_attempt` until an attempt succeeds, and return its result; return None if the drain gives up.

    Each failure is written to the journal and printed to standard error. If a trainer has started the drainer, standard
    error is a log file. The drain gives up after the allowed number of attempts, or after an error in
    `_LASTING_ERRORS`. A failure is ignored if the fast folder has no snapshot to drain.

    While the trainer is running, the drain gives up if another trainer has opened the bucket. After the trainer has
    ended, the remaining snapshots are drained to this bucket.
    """
    for failures in range(1, options.attempts + 1):
        try:
            own_sides = sides if trainer.alive else replace(sides, session=None)
            return _attempt(own_sides, options, journal, failures - 1)
        except (OSError, JobError) as error:
            if sides.idle():
                return False
            if isinstance(error, NotOursError) and isinstance(sides.slow.store, Bucket):
                journal.append("displaced", reason=error.message)
                return None
            journal.append("failed", reason=_reason(error), failures=failures)
            if getattr(error, "errno", None) in _LASTING_ERRORS:
                journal.append("gave_up", reason="a retry cannot help against this error")
                return None
            if failures < options.attempts:
                pause_s = min(options.backoff_s * 2.0 ** min(failures - 1, 64), options.backoff_max_s)
                message = f"the drain has failed, and is tried again in {pause_s:g} s: {_reason(error)}"
                with suppress(OSError):  # the log may be on a full storage
                    print(visible(message), file=sys.stderr, flush=True)
                _pause(pause_s, sides)
    journal.append("gave_up", reason=f"the drain has failed {options.attempts} times in a row")
    return None


def _pause(seconds: float, sides: SnapshotSides) -> None:
    """Wait `seconds` before the next attempt; stop waiting when there is no snapshot left to drain."""
    end = time.monotonic() + seconds
    while not sides.idle() and (remaining_s := end - time.monotonic()) > 0:
        time.sleep(min(remaining_s, _CHECK_INTERVAL_S))


def _attempt(sides: SnapshotSides, options: DrainOptions, journal: DrainJournal, retries: int) -> bool:
    """Copy the oldest pending snapshot to the slow storage, and delete surplus snapshots.

    Return False if no snapshot was pending.
    """
    with lease.held_by_drainer(sides.slow.store):  # because another job may drain another fast folder to this store
        sides.require_slow()
        sides.slow.recover()
        pending = sides.pending_snapshots()
        if pending:
            _drain_one(sides, pending[0], options, journal, retries)
        sides.remove_surplus()
    return bool(pending)


def _drain_one(sides: SnapshotSides, name: str, options: DrainOptions, journal: DrainJournal, retries: int) -> None:
    """Copy one snapshot from the fast storage to the slow storage; mark the snapshot if it is damaged."""
    started = clock.current_moment()
    try:
        manifest = sides.fast.read(name)
        facts = {**manifest.facts, "drain_started": started, "drain_retries": retries}
        sides.slow.take(sides.fast, replace(manifest, facts=facts), options.how)
    except DamageError as error:
        sides.fast.set_aside(name)
        journal.append("damaged", name=name, reason=error.message)
        return
    journal.append("committed", name=name, started=started, ended=clock.current_moment(), retries=retries)


def _reason(error: OSError | JobError) -> str:
    if isinstance(error, JobError):
        return error.message
    code = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{code}: {error.strerror or error}" + (f": {error.filename}" if error.filename else "")
