"""A burst buffer for checkpoints: saved on a fast storage, drained to a slow one behind the training's back.

Usable alone: it moves folders of files and asks nothing of whoever writes them.  `BurstBuffer.save` comes back when the
snapshot is durable on the fast storage; a process of its own (`jobs.burst_buffer.drain_loop`) brings it to the slow
one, also after the training has ended.  What is on disk, and in which order, stands in `jobs.burst_buffer.snapshots`.

By hand, on a node without anything else::

    python -m jobs.burst_buffer drain|status|verify|clear FAST SLOW
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from jobs.burst_buffer import lease, restart, slow_storage, snapshots
from jobs.burst_buffer.drain_journal import Committed, Event, Failure, Journal
from jobs.burst_buffer.drain_loop import Options
from jobs.burst_buffer.drain_process import Drainer
from jobs.burst_buffer.marker import Marker
from jobs.burst_buffer.restart import DrainWarning, Snapshot
from jobs.burst_buffer.sides import Question, Sides
from jobs.burst_buffer.slow_storage import Place
from jobs.burst_buffer.snapshots import FILES, edge
from jobs.errors import FolderError, RoomError
from jobs.system import clock, durable, transfer

_T = TypeVar("_T")
_POLL_S, _POLL_BUCKET_S = 0.05, 0.5


class BurstBuffer:
    """Two places, on a fast and on a slow storage, that keep the newest snapshots of one training.

    Parameters
    ----------
    fast, slow
        Empty folders, or those of an earlier training; made where only their last part is missing. `slow` may be the
        address of a bucket, see `jobs.burst_buffer.bucket.Bucket`.
    when_full
        Where the fast storage is full of snapshots that are not drained yet: ``block`` waits for the drainer,
        ``fall_through`` writes to the slow storage.
    snapshot_bytes
        Size of one snapshot, where it is known before the first: too little room is then said at once.
    options
        Of the drain, see `jobs.burst_buffer.drain_loop.Options`: ``keep``, ``bandwidth_mb_per_s``, ``direct``,
        ``streams``, ``attempts``, ``backoff_s``, ``backoff_max_s``.

    Raises
    ------
    FolderError
        A folder is missing, in use, somebody else's or of a newer version; it has not been touched.
    RoomError
        One snapshot does not fit.
    """

    def __init__(
        self,
        fast: Path | str,
        slow: Place | str,
        *,
        when_full: Literal["block", "fall_through"] = "block",
        snapshot_bytes: int | None = None,
        **options: Any,
    ) -> None:
        if when_full not in ("block", "fall_through"):
            raise ValueError(f"when_full is block or fall_through, not {when_full}")
        self.fast, self.slow = Path(fast).resolve(), slow_storage.place_of(slow)
        self.options = Options(**options)
        if not isinstance(self.slow, Path) and (when_full == "fall_through" or self.options.direct):
            raise FolderError("a bucket takes snapshots from a drainer alone", "when_full='block', direct=False")
        self._when_full = when_full
        self._poll_s = _POLL_S if isinstance(self.slow, Path) else _POLL_BUCKET_S
        self._expected = snapshot_bytes
        self._saved: list[Snapshot] = []
        self._troubles: list[str] = []
        self._locks, buffer_id, marker = lease.hold(self.fast, self.slow)
        session = None if isinstance(self.slow, Path) else secrets.token_hex(8)
        impatient = slow_storage.place_of(slow, retries=0)  # no look is to wait long for a bucket that is away
        self._sides = Sides(self.fast, impatient, buffer_id, self.options.keep, session)
        self._whose = Question(replace(self._sides, slow=slow_storage.place_of(slow, retries=0)))
        try:
            self._open(marker)
        except BaseException:
            lease.release(self._locks)
            raise
        self._journal = Journal(self.fast)
        self._offset = self._journal.read(Event)[1]
        self._drainer = Drainer(self.fast, self.slow)
        self._drainer.poke()

    def _open(self, marker: Marker | None) -> None:
        """See that a snapshot fits, mark both folders, and finish or roll back what a dead trainer left."""
        folders = [each for each in (self.fast, self.slow) if isinstance(each, Path)]
        for folder in folders:
            snapshots.refuse_newer(folder)
        known, session = [name for name, _ in slow_storage.of(self.slow).states()], self._sides.session
        if self.options.direct and transfer.refuses_direct(folders[-1]):
            raise FolderError(f"the file system of {self.slow} has no direct I/O", "direct=False")
        for folder in folders[1:] if self._when_full == "fall_through" else folders:
            snapshots.require_room(folder, self._expected or 0)
        if marker is None or session:
            lease.mark(self.slow, "slow", self._sides.buffer_id, session=session)
        edge("marked")
        for folder in folders:
            snapshots.recover(folder, ["staging"])
        if marker is None or session or marker.get("options") != asdict(self.options):
            more = {"options": asdict(self.options), "session": self._sides.session}  # what the drainer goes by
            self._with_room(lambda: lease.mark(self.fast, "fast", self._sides.buffer_id, **more))
        known += [*snapshots.names(self.fast), *snapshots.names(self.fast, "damaged")]
        self._sequence = max(map(snapshots.sequence, known), default=0)

    def _with_room(self, act: Callable[[], _T]) -> _T:
        """Do something, and again while the fast storage has no room for it and a copy there can go."""
        while True:
            try:
                return act()
            except OSError as error:
                if not durable.is_full(error) or not self._sides.evict_one():
                    raise

    def save(self, step: int, write: Callable[[Path], object]) -> Snapshot:
        """Save a snapshot and return when it is durable; one at a time.

        Parameters
        ----------
        write
            Is given an empty folder and puts the files there; called again, with an empty folder, where the fast
            storage was found full.

        Raises
        ------
        RoomError
            There is no room and none will come: the slow storage fails, or one snapshot is too large.
        Exception
            Whatever `write` raises; the snapshot is then not there.
        """
        if step < 0:
            raise ValueError("a step is not negative")
        saved_at, start = time.time(), time.perf_counter()
        self._sequence += 1
        name = snapshots.new_name(self._sequence, step)
        self._whose.ask()
        snapshot = self._stage(Snapshot(name, step, Path(), "fast", 0, saved_at, 0.0, 0.0, 0.0), write)
        self._drainer.poke()
        self._expected = snapshot.bytes
        self._troubles += self._whose.answer()
        snapshot = replace(snapshot, blocked_s=time.perf_counter() - start, troubles=self.troubles())
        self._saved.append(snapshot)
        if snapshot.troubles:
            warnings.warn("; ".join(snapshot.troubles), DrainWarning, stacklevel=2)
        return snapshot

    def _stage(self, snapshot: Snapshot, write: Callable[[Path], object]) -> Snapshot:
        """Write to the fast storage, making room as often as it is full, or else to the slow one."""
        waited_s = 0.0
        through = self._when_full == "fall_through"
        while True:
            if durable.free_bytes(self.fast) >= (self._expected or 0):
                try:
                    return self._write(replace(snapshot, waited_s=waited_s), write)
                except Exception as error:
                    if not durable.is_full(error):
                        raise
            if self._sides.evict_one():
                continue
            if through:
                through = False  # a slow storage that fails too leaves waiting
                try:
                    self._sides.require_slow()
                    return self._write(replace(snapshot, where="slow"), write)
                except Exception as error:
                    if not isinstance(error, (OSError, FolderError)) and not durable.is_full(error):
                        raise
                    self._troubles.append(f"could not fall through to the slow storage: {error}")
            waited_s += self._wait_for_room()

    def _write(self, snapshot: Snapshot, write: Callable[[Path], object]) -> Snapshot:
        start = time.perf_counter()
        root = self.slow if snapshot.where == "slow" and isinstance(self.slow, Path) else self.fast
        folder = root / snapshot.name

        def facts() -> dict[str, Any]:
            told = {"saved_at": snapshot.saved_at, "waited_s": snapshot.waited_s}
            return {**told, "write_s": time.perf_counter() - start}

        manifest = snapshots.stage(folder, write, facts, self.options.streams)
        size, write_s = manifest.total_bytes, time.perf_counter() - start
        return replace(snapshot, path=folder / FILES, bytes=size, write_s=write_s)

    def _wait_for_room(self) -> float:
        """Wait until the drainer has brought one more snapshot to the slow storage; returns the seconds."""
        start = time.perf_counter()
        before = self._sides.left()
        if not before and not snapshots.names(self.fast):
            raise RoomError(f"one snapshot does not fit on {self.fast}", "use a larger fast storage")
        self._drainer.poke()
        said: list[str] = []
        while before and self._sides.left() == before:
            ended = self._drainer.ended()
            if new := [each for each in self.troubles() if each not in said]:
                said += new
                warnings.warn(f"waiting for room on {self.fast}: {'; '.join(new)}", DrainWarning, stacklevel=2)
            if ended:
                raise RoomError(
                    f"{self.fast} is full and the drain does not go on: {'; '.join(said)}",
                    f"nothing is lost: mend {self.slow}",
                )
            clock.wait(self._poll_s)
        self._troubles = said
        return time.perf_counter() - start

    def troubles(self) -> tuple[str, ...]:
        """Return what went wrong since the last save, or since this was last asked."""
        events, self._offset = self._journal.read(Failure, self._offset)
        told = [*self._troubles, *self._drainer.complaints()]
        told += [f"the drain: {event['event']}: {event['reason']}" for event in events]
        self._troubles = []
        return tuple(dict.fromkeys(told))

    def latest(self) -> Path | None:
        """Return the newest snapshot that is complete and verified, its fast copy first; None where there is none."""
        return self._with_room(lambda: restart.latest(self.fast, self.slow))  # a bucket's is brought to the fast one

    def drained(self, timeout_s: float | None = None) -> bool:
        """Wait until every snapshot is on the slow storage.

        False after `timeout_s`, where the drainer gave up, and where it found a snapshot of this training damaged;
        `troubles` says why.
        """
        start = time.monotonic()
        self._drainer.poke()
        while True:
            ended = self._drainer.ended()  # first: what it has drained last counts
            left = self._sides.left()
            if not left or ended or (timeout_s is not None and time.monotonic() - start > timeout_s):
                break
            clock.wait(self._poll_s)
        damaged = {snapshot.name for snapshot in self._saved}.intersection(snapshots.names(self.fast, "damaged"))
        return not left and not damaged

    def report(self, training_ended_at: float | None = None) -> list[dict[str, Any]]:
        """Return the times of each snapshot of this training, for a record.

        Parameters
        ----------
        training_ended_at
            In seconds since 1970; without it the training goes on.

        Returns
        -------
        list
            Per snapshot ``blocked_s write_s waited_s drain_s exposed_s durable_fast_s durable_slow_s``, ``bytes``,
            ``retries`` and ``troubles``. `exposed_s` is the part of the drain after the end of training; durable times
            count from the call of `save`. None: not so far, or not known for the drainer was killed as it ended.
        """
        events = {event["name"]: event for event in self._journal.read(Committed)[0]}
        told = {each.name: events.get(each.name) for each in self._saved}
        told |= {name: slow_storage.of(self.slow).committed(name) for name, event in told.items() if event is None}
        return [restart.times(each, told[each.name], training_ended_at) for each in self._saved]

    def helpers(self) -> list[int]:
        """Return the processes that work for this training: the drainer, while it runs."""
        return self._drainer.pids()

    def close(self) -> None:
        """Release the folders; the drainer runs on by itself until everything is drained."""
        self._drainer.leave()
        lease.release(self._locks)
