"""Checkpoints saved straight to one storage: complete or invisible, as on either side of a burst buffer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.burst_buffer import lease, restart, snapshots
from jobs.burst_buffer.marker import ALONE
from jobs.burst_buffer.restart import Snapshot
from jobs.burst_buffer.snapshots import FILES
from jobs.errors import RoomError
from jobs.system import durable


class Direct:
    """A folder that keeps the newest snapshots of one training; used as a `jobs.burst_buffer.BurstBuffer`.

    It is empty or that of an earlier training, and made where only its last part is missing. Raises FolderError for a
    folder that cannot be used, which has not been touched, and RoomError where one snapshot does not fit.
    """

    def __init__(self, folder: Path | str, *, keep: int = 5, snapshot_bytes: int | None = None) -> None:
        if keep < 1:
            raise ValueError("keep is 1 or more")
        self.folder, self._keep = Path(folder).resolve(), keep
        self._saved: list[Snapshot] = []
        self._locks, marker = lease.hold_alone(self.folder)
        try:
            snapshots.refuse_newer(self.folder)
            snapshots.require_room(self.folder, snapshot_bytes or 0)
            if marker is None:
                lease.mark(self.folder, ALONE, secrets.token_hex(8))
            snapshots.recover(self.folder, ["staging"])
        except BaseException:
            lease.release(self._locks)
            raise
        self._sequence = max(map(snapshots.sequence, snapshots.names(self.folder)), default=0)

    def save(self, step: int, write: Callable[[Path], object]) -> Snapshot:
        """Call `write` to fill a folder; return when it is durable and the oldest are removed. One at a time.

        Where `write` raises, or RoomError says that the storage is full, the snapshot is not there.
        """
        saved_at, start = time.time(), time.perf_counter()
        self._sequence += 1
        folder = self.folder / snapshots.new_name(self._sequence, step)
        try:
            manifest = snapshots.stage(folder, write, lambda: {"saved_at": saved_at})
        except Exception as error:
            if durable.is_full(error):
                raise RoomError(f"{self.folder} is full: {error}", "free some room, or keep fewer snapshots") from error
            raise
        write_s = time.perf_counter() - start
        for name in snapshots.names(self.folder)[: -self._keep]:
            snapshots.remove(self.folder / name)
        blocked_s, size = time.perf_counter() - start, manifest.total_bytes
        snapshot = Snapshot(folder.name, step, folder / FILES, "only", size, saved_at, blocked_s, write_s, 0.0)
        self._saved.append(snapshot)
        return snapshot

    def drained(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002 - of a burst buffer
        """Return True: there is nothing to drain."""
        return True

    def report(self, training_ended_at: float | None = None) -> list[dict[str, Any]]:
        """Return the times of each snapshot of this training, as a burst buffer does."""
        return [restart.times(snapshot, None, training_ended_at) for snapshot in self._saved]

    def troubles(self) -> tuple[str, ...]:
        """Return nothing: an error here is the trainer's."""
        return ()

    def helpers(self) -> list[int]:
        """Return nothing: no other process works for this training."""
        return []

    def close(self) -> None:
        """Release the folder."""
        lease.release(self._locks)
