"""The drainer: a process that copies snapshots from the fast storage to the slow one.

A trainer announces new snapshots on standard input. The process ends when this is closed (the trainer has ended,
however it ended) and nothing is left to drain. It can be killed and started again at any moment. `SnapshotSides`
decides which snapshots are drained, and which copies may be removed.
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
"""The states of fast snapshots that are to be drained; the drain then finds that an unreadable one is damaged."""


@dataclass(frozen=True)
class SnapshotSides:
    """The snapshots in a fast folder and in a slow folder or bucket; each store has at least the `keep` newest."""

    fast: Snapshots
    slow: Snapshots
    buffer_id: str  # as in the markers of both stores
    keep: int
    session: str | None = None  # of the trainer, if it runs and the slow store is a bucket

    def require_slow(self) -> None:
        """Raise NotOursError if the slow storage is another buffer's, OSError or JobError if it does not answer."""
        lease.require_owner(self.slow.store, self.buffer_id, self.session)

    def idle(self) -> bool:
        """Return whether the fast storage has nothing to drain: it is empty, missing, or of another buffer."""
        try:
            lease.require_owner(self.fast.store, self.buffer_id)
            return not self.fast.names(*STAGED)
        except (FileNotFoundError, JobError):
            return True
        except OSError:  # unknown
            return False

    def pending_snapshots(self) -> list[str]:
        """Return the names of the snapshots to drain, the oldest first.

        A snapshot counts as drained if the slow storage has it, or has `keep` newer ones.
        """
        self.require_slow()
        staged = self.fast.names(*STAGED)  # listed first: a snapshot that is committed meanwhile is then in both lists
        committed = self.slow.names()
        superseded = sequence_number(committed[-self.keep]) if len(committed) >= self.keep else -1
        return [name for name in staged if name not in committed and sequence_number(name) > superseded]

    def left(self) -> list[str]:
        """Return the pending snapshots; if the slow storage does not answer, all snapshots of the fast storage."""
        try:
            return self.pending_snapshots()
        except (OSError, JobError):
            return self.fast.names(*STAGED)

    def evict_one(self) -> bool:
        """Remove the oldest drained copy from the fast storage, else a damaged one; return False if there is none."""
        states, pending = self.fast.states(), self.left()
        copies = [name for name, state in states.items() if state in STAGED and name not in pending]
        copies += [name for name, state in states.items() if state == "damaged"]
        if copies:
            self.fast.delete(copies[0])
        return bool(copies)

    def remove_surplus(self) -> None:
        """Remove all but the `keep` newest snapshots from each storage, but no pending one from the fast storage."""
        for name in self.slow.names()[: -self.keep]:
            self.slow.delete(name)
        staged = self.fast.names(*STAGED)
        pending = self.pending_snapshots()
        for name in staged[: -self.keep]:
            if name not in pending:
                self.fast.delete(name)


GAVE_UP = 3
_CHECK_INTERVAL_S = 0.5
_LASTING_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT)
"""Errors that do not pass by themselves. A full storage is none of them: others may remove their files."""


@dataclass(frozen=True)
class DrainOptions:
    """The options of the drain: snapshots to keep, bandwidth, streams and retries."""

    keep: int = 5  # number of snapshots that stay on each storage
    bandwidth_mb_per_s: float | None = None  # limit of the drain; None: no limit
    streams: int = 1  # threads that copy and hash
    attempts: int = 10  # failures in a row after which the drainer ends; the next save or job starts a new one
    backoff_s: float = 0.5  # seconds to wait after the first failure, doubled after each further one
    backoff_max_s: float = 30.0  # longest wait in seconds

    @property
    def how(self) -> TransferOptions:
        """Return the options of the transfer: bandwidth and streams."""
        return TransferOptions(self.bandwidth_mb_per_s, self.streams)

    def __post_init__(self) -> None:
        """Raise ValueError for impossible values."""
        counts = (self.keep, self.streams, self.attempts)
        if not all(isinstance(count, int) and count > 0 for count in counts):
            raise ValueError("keep, streams and attempts are whole numbers, 1 or more")
        if min(self.backoff_s, self.backoff_max_s) < 0:
            raise ValueError("a backoff is not negative")
        if self.bandwidth_mb_per_s is not None and self.bandwidth_mb_per_s <= 0:
            raise ValueError("bandwidth_mb_per_s is more than 0, or None for no limit")


def options_in_marker(marker: Marker) -> DrainOptions:
    """Return the options in the marker of a fast storage; raise FolderError for unknown or invalid ones."""
    try:
        return DrainOptions(**marker["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"the options in the marker are not valid: {error}", "mend the marker") from error


class TrainerPipe:
    """The trainer as its drainer sees it: a pipe with one byte per new snapshot, which closes when the trainer ends."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe

    @property
    def alive(self) -> bool:
        """Return whether the pipe is open, without reading from it."""
        if self._pipe is None:
            return False
        poller = select.poll()
        poller.register(self._pipe, 0)
        return not any(events & select.POLLHUP for _, events in poller.poll(0))

    def wait(self) -> None:
        """Wait for a new snapshot, or for the trainer's end."""
        if self._pipe is not None:
            select.select([self._pipe], [], [])
            if not os.read(self._pipe, 4096):
                self._pipe = None


def drain_snapshots(fast: Folder | Path | str, slow: Folder | Bucket | Path | str, pipe: int | None = None) -> int:
    """Drain all snapshots of the fast storage, and continue while the trainer at the other end of `pipe` lives.

    Returns 0 when no snapshot is left, `GAVE_UP` if the slow storage fails; raises FolderError for foreign folders.
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
                if fast.root.is_dir():  # the lock would make a missing folder again
                    with suppress(Timeout, OSError, JobError), lease.folder_lock(fast, "trainer").acquire(timeout=0):
                        sides.fast.recover()  # removes snapshots of a dead trainer; then check once more
                is_tidy = True
    return GAVE_UP


def _marker(fast: Folder, slow: Folder | Bucket) -> Marker | None:
    """Return the marker of the fast folder; a bucket is checked later: it may not answer now."""
    return lease.identify_pair(fast, slow)[1] if isinstance(slow, Folder) else lease.read_marker(fast)


def _retry(sides: SnapshotSides, options: DrainOptions, journal: DrainJournal, trainer: TrainerPipe) -> bool | None:
    """Repeat `_attempt` until it succeeds and return its result; return None if the last allowed attempt failed, too.

    Each failure is printed (to the log, if a trainer started this process) and journaled; a lasting one ends the drain.
    A failure does not count if there is nothing to drain, or if the fast folder belongs to another buffer now.
    A bucket that another trainer has opened is not tried while our trainer lives; later the rest is drained there.
    """
    for failures in range(1, options.attempts + 1):
        try:
            own_sides = sides if trainer.alive else replace(sides, session=None)
            return _attempt(own_sides, options, journal, failures - 1)
        except (OSError, JobError) as error:
            if sides.idle():
                return False
            if isinstance(error, NotOursError) and isinstance(sides.slow.store, Bucket):
                journal.tell("displaced", reason=error.message)
                return None
            journal.tell("failed", reason=_reason(error), failures=failures)
            if getattr(error, "errno", None) in _LASTING_ERRORS:
                journal.tell("gave_up", reason="this error does not pass by itself")
                return None
            if failures < options.attempts:
                pause_s = min(options.backoff_s * 2.0 ** min(failures - 1, 64), options.backoff_max_s)
                message = f"the drain has failed, and is tried again in {pause_s:g} s: {_reason(error)}"
                with suppress(OSError):  # the log may lie on a full storage
                    print(visible(message), file=sys.stderr, flush=True)
                _pause(pause_s, sides)
    journal.tell("gave_up", reason=f"{options.attempts} times in a row")
    return None


def _pause(seconds: float, sides: SnapshotSides) -> None:
    """Wait `seconds` before the next attempt, but no longer than there are snapshots to drain."""
    end = time.monotonic() + seconds
    while not sides.idle() and (remaining_s := end - time.monotonic()) > 0:
        time.sleep(min(remaining_s, _CHECK_INTERVAL_S))


def _attempt(sides: SnapshotSides, options: DrainOptions, journal: DrainJournal, retries: int) -> bool:
    """Copy the oldest pending snapshot to the slow storage and delete surplus ones; return False if none is pending."""
    with lease.held_by_drainer(sides.slow.store):  # another job may drain another fast folder to the same store
        sides.require_slow()
        sides.slow.recover()
        pending = sides.pending_snapshots()
        if pending:
            _drain_one(sides, pending[0], options, journal, retries)
        sides.remove_surplus()
    return bool(pending)


def _drain_one(sides: SnapshotSides, name: str, options: DrainOptions, journal: DrainJournal, retries: int) -> None:
    """Copy one snapshot from the fast storage to the slow one; mark it if it is damaged."""
    started = clock.current_moment()
    try:
        manifest = sides.fast.read(name)
        facts = {**manifest.facts, "drain_started": started, "drain_retries": retries}
        sides.slow.take(sides.fast, replace(manifest, facts=facts), options.how)
    except DamageError as error:
        sides.fast.set_aside(name)
        journal.tell("damaged", name=name, reason=error.message)
        return
    journal.tell("committed", name=name, started=started, ended=clock.current_moment(), retries=retries)


def _reason(error: OSError | JobError) -> str:
    if isinstance(error, JobError):
        return error.message
    code = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{code}: {error.strerror or error}" + (f": {error.filename}" if error.filename else "")
