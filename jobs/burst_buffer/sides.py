"""The two storages of one burst buffer together: what is to be drained, and what may go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.burst_buffer import claim, slow, snapshots
from jobs.errors import FolderError

if TYPE_CHECKING:
    from jobs.burst_buffer.slow import Place, Slow


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
        return slow.of(self.slow)

    def require_slow(self) -> None:
        """Raise FolderError where the slow folder is not ours any more, OSError where it does not answer."""
        claim.require(self.slow, self.buffer_id, self.session)

    def idle(self) -> bool:
        """Return whether the fast storage holds nothing of this buffer: it is empty, gone, or of another buffer."""
        try:
            claim.require(self.fast, self.buffer_id)
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
