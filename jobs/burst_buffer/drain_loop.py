"""The drainer: brings snapshots from the fast storage to the slow one, in a process of its own.

It is told of new snapshots through its standard input, ends when that is closed (the trainer is gone, however it
died) and nothing is left to drain, and can be killed and started again at any moment.
"""

from __future__ import annotations

import errno
import os
import select
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import Timeout

from jobs.burst_buffer import lease, snapshots
from jobs.burst_buffer.drain_journal import Journal
from jobs.burst_buffer.marker import Marker
from jobs.burst_buffer.sides import Sides
from jobs.burst_buffer.slow_storage import Place, Slow
from jobs.burst_buffer.snapshots import FILES, edge
from jobs.errors import BurstBufferError, DamageError, FolderError
from jobs.system import transfer

GAVE_UP = 3
_LOOK_S = 0.5


@dataclass(frozen=True)
class Options:
    """How snapshots are drained."""

    keep: int = 5  # snapshots kept, on each storage
    bandwidth_mb_per_s: float | None = None  # bound on the drain; None for none
    direct: bool = False  # past the page cache of the slow storage
    streams: int = 1  # threads that copy and hash
    attempts: int = 10  # failures in a row after which a drainer ends; the next save, or the next job, starts another
    backoff_s: float = 0.5  # wait after the first failure, doubled after each further one
    backoff_max_s: float = 30.0  # the longest wait

    @property
    def how(self) -> transfer.How:
        """Return how bytes move."""
        return transfer.How(self.bandwidth_mb_per_s, self.direct, self.streams)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        counts = (self.keep, self.streams, self.attempts)
        if not all(isinstance(count, int) and count > 0 for count in counts):
            raise ValueError("keep, streams and attempts are whole numbers, 1 or more")
        if min(self.backoff_s, self.backoff_max_s) < 0:
            raise ValueError("a backoff is not negative")
        if self.bandwidth_mb_per_s is not None and self.bandwidth_mb_per_s <= 0:
            raise ValueError("bandwidth_mb_per_s is more than 0, or None for no bound")


def options_of(marker: Marker) -> Options:
    """Return the options that a fast storage was marked with; raises FolderError for those that nobody knows."""
    try:
        return Options(**marker["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"the marker's options are none of ours: {error}", "mend the marker") from error


class Trainer:
    """The trainer as its drainer sees it: a pipe that carries a byte for each snapshot and closes when it dies."""

    def __init__(self, pipe: int | None) -> None:
        self._pipe = pipe

    @property
    def alive(self) -> bool:
        """Return whether the pipe is open; nothing of it is read."""
        if self._pipe is None:
            return False
        look = select.poll()
        look.register(self._pipe, 0)
        return not any(found & select.POLLHUP for _, found in look.poll(0))

    def wait(self) -> None:
        """Wait for a new snapshot or the trainer's end."""
        if self._pipe is not None:
            select.select([self._pipe], [], [])
            if not os.read(self._pipe, 4096):
                self._pipe = None


def drain(fast: Path, slow: Place, pipe: int | None = None) -> int:
    """Drain all that is staged, and go on while the trainer at the other end of `pipe` lives.

    Returns 0 when nothing is left, `GAVE_UP` for a slow storage that fails; raises FolderError for folders not ours.
    """
    if _marker(fast, slow) is None:
        return 0
    trainer, journal = Trainer(pipe), Journal(fast)
    tidy = False
    with lease.held_by_drainer(fast) as there:
        marker = _marker(fast, slow) if there else None
        if marker is None:
            return 0
        options = options_of(marker)
        sides = Sides(fast, slow, marker["id"], options.keep, marker.get("session"))
        while (progress := _insist(sides, options, journal, trainer)) is not None:
            if not progress and trainer.alive:
                trainer.wait()
            elif not progress and tidy:
                return 0
            elif not progress:
                _tidy(fast, slow)  # and check once more: what a dead trainer had sealed is to be drained
                tidy = True
    return GAVE_UP


def _marker(fast: Path, slow: Place) -> Marker | None:
    """Return the marker of the fast folder; a bucket is asked at each attempt, for it may be away now."""
    return lease.pair(fast, slow)[1] if isinstance(slow, Path) else lease.marker_of(fast)


def _insist(sides: Sides, options: Options, journal: Journal, trainer: Trainer) -> bool | None:
    """Try until an attempt succeeds and return what it does; None where the last one allowed failed too.

    Where nothing is staged (any more) a failure is none; and a folder that is another buffer's by now is left to it.
    What a dead trainer has left is drained also to a bucket that another one has opened.
    """
    for failures in range(1, options.attempts + 1):
        try:
            ours = sides if trainer.alive else replace(sides, session=None)
            return _attempt(ours, options, journal, failures - 1)
        except (OSError, BurstBufferError) as error:
            if sides.idle():
                return False
            journal.tell("failed", reason=_reason(error), failures=failures)
        if failures < options.attempts:
            _pause(min(options.backoff_s * 2.0 ** min(failures - 1, 64), options.backoff_max_s), sides)
    journal.tell("gave_up", reason=f"{options.attempts} times in a row")
    return None


def _pause(seconds: float, sides: Sides) -> None:
    """Wait before the next attempt, while there is something to attempt."""
    end = time.monotonic() + seconds
    while not sides.idle() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_S))


def _attempt(sides: Sides, options: Options, journal: Journal, retries: int) -> bool:
    """Drain the oldest snapshot that waits and let go what need not be kept; False where none waits."""
    with lease.held_by_drainer(sides.slow):  # another job may drain another fast folder to it
        sides.require_slow()
        sides.store.recover()
        waiting = sides.pending()
        if waiting:
            _drain_one(sides.fast / waiting[0], sides.store, options, journal, retries)
        sides.retain()
    return bool(waiting)


def _drain_one(staged: Path, store: Slow, options: Options, journal: Journal, retries: int) -> None:
    """Take one snapshot from staged to committed."""
    started, name = time.time(), staged.name
    try:
        manifest = snapshots.read(staged)
        facts = {**manifest.facts, "drain_started_at": started, "drain_retries": retries}
        store.take(staged / FILES, replace(manifest, facts=facts), options.how)
    except DamageError as error:
        snapshots.set_aside(staged)
        journal.tell("damaged", name=name, reason=error.message)
        return
    edge("committed")
    journal.tell("committed", name=name, started_at=started, retries=retries)


def _tidy(fast: Path, slow: Place) -> None:
    """Finish or roll back what a dead trainer was writing, unless another one has begun."""
    with suppress(Timeout, OSError, FolderError), lease.lock(fast, "trainer").acquire(timeout=0):
        snapshots.recover(fast, ["staging"])
        if not isinstance(slow, Path):
            return
        lease.marker_of(slow)  # it is there: a lock would make it
        with lease.lock(slow, "trainer").acquire(timeout=0):
            snapshots.recover(slow, ["staging"])


def _reason(error: OSError | BurstBufferError) -> str:
    if isinstance(error, BurstBufferError):
        return error.message
    code = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"{code}: {error.strerror or error}" + (f": {error.filename}" if error.filename else "")
