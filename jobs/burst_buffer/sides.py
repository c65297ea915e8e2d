"""The two storages of one burst buffer together: what is to be drained, and what may go."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jobs.burst_buffer import lease, slow_storage, snapshots
from jobs.burst_buffer.slow_storage import Place, Slow
from jobs.errors import FolderError, NotOursError

_ANSWER_S = 1.0  # how long a trainer stands still, at most, for a bucket that is slow to say whose it is


@dataclass(frozen=True)
class Sides:
    """A fast folder and a slow one or a bucket, the id in their markers, and how many snapshots each keeps."""

    fast: Path
    slow: Place
    buffer_id: str
    keep: int
    session: str | None = None  # of the living trainer, where the slow one is a bucket

    @cached_property
    def store(self) -> Slow:
        """What does the work on the slow storage."""
        return slow_storage.of(self.slow)

    def require_slow(self) -> None:
        """Raise NotOursError where the slow storage is not ours any more, OSError or FolderError where it is away."""
        lease.require(self.slow, self.buffer_id, self.session)

    def idle(self) -> bool:
        """Return whether the fast storage holds nothing of this buffer: it is empty, gone, or of another buffer."""
        try:
            lease.require(self.fast, self.buffer_id)
            return not snapshots.names(self.fast)
        except (FileNotFoundError, FolderError):
            return True
        except OSError:  # nobody knows
            return False

    def pending(self) -> list[str]:
        """Return the staged snapshots that are to be drained, the oldest first.

        One is done with when the slow storage holds it, or has held it: then there are `keep` newer ones.
        """
        self.require_slow()
        staged = snapshots.names(self.fast)  # first: what is committed between the two lists is then no news
        committed = self.store.sealed()
        superseded = snapshots.sequence(committed[-self.keep]) if len(committed) >= self.keep else -1
        return [name for name in staged if name not in committed and snapshots.sequence(name) > superseded]

    def left(self) -> list[str]:
        """Return the pending snapshots; all of the fast storage's where the slow one does not answer."""
        try:
            return self.pending()
        except (OSError, FolderError):
            return snapshots.names(self.fast)

    def evict_one(self) -> bool:
        """Remove the oldest fast copy that the slow storage has, else a damaged one; False where there is none."""
        staged = snapshots.names(self.fast)
        waiting = self.left()
        folders = [self.fast / name for name in staged if name not in waiting]
        folders += [self.fast / f"damaged-{name}" for name in snapshots.names(self.fast, "damaged")]
        if folders:
            snapshots.remove(folders[0])
        return bool(folders)

    def retain(self) -> None:
        """Remove all but the `keep` newest snapshots from the slow storage, and from the fast one those that it has."""
        for name in self.store.sealed()[: -self.keep]:
            self.store.remove(name)
        staged = snapshots.names(self.fast)
        waiting = self.pending()
        for name in staged[: -self.keep]:
            if name not in waiting:
                snapshots.remove(self.fast / name)


class Question:
    """Whether a bucket, which has no locks, is still this training's; asked while a snapshot is written.

    A folder has locks, and is not asked; why a bucket does not answer is for the drainer to say.
    """

    def __init__(self, sides: Sides) -> None:
        self._sides, self._told = sides, deque[str]()
        self._asking: threading.Thread | None = None

    def ask(self) -> None:
        """Begin to ask, unless the answer to an earlier time is still to come."""
        if self._sides.session and not (self._asking and self._asking.is_alive()):
            self._asking = threading.Thread(target=self._ask, name="whose bucket", daemon=True)
            self._asking.start()

    def answer(self) -> list[str]:
        """Return that it is somebody else's, in words; one that does not come soon is returned by a later call."""
        if self._asking:
            self._asking.join(_ANSWER_S)
        return [self._told.popleft() for _ in range(len(self._told))]

    def _ask(self) -> None:
        try:
            self._sides.require_slow()
        except NotOursError as error:
            self._told.append(f"{error}; what is saved from now on stays on {self._sides.fast} alone")
        except (OSError, FolderError):
            pass
