"""The slow storage of a burst buffer: a folder, or objects in a bucket."""

from __future__ import annotations

import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from jobs.burst_buffer import drain_journal, snapshots
from jobs.burst_buffer.bucket import RETRIES, Bucket
from jobs.burst_buffer.drain_journal import Committed
from jobs.burst_buffer.snapshots import FILES, Manifest, edge
from jobs.errors import DamageError
from jobs.system import files, transfer
from jobs.system.transfer import How

Place: TypeAlias = Path | Bucket
Slow: TypeAlias = "Folder | Bucket"


@dataclass(frozen=True)
class Folder:
    """A folder, where a rename makes a snapshot visible.

    A `jobs.burst_buffer.bucket.Bucket` has the same methods. All raise OSError or FolderError where the storage fails.
    """

    root: Path

    def states(self) -> list[tuple[str, str]]:
        """Return the names of all snapshots, each with its state (`jobs.burst_buffer.snapshots`)."""
        known = (("staging", "staging"), ("copying", "copying"), (None, "committed"))
        return [(name, word) for state, word in known for name in snapshots.names(self.root, state)]

    def sealed(self) -> list[str]:
        """Return the names of the visible ones that have their manifest, the newest last."""
        return snapshots.sealed(self.root)

    def remove(self, name: str) -> None:
        """Take one away: invisible first."""
        snapshots.remove(self.root / name)

    def recover(self) -> None:
        """Finish or roll back what a dead drainer left.

        Durably, for fast copies may go now: it died between its rename and this, perhaps.
        """
        snapshots.recover(self.root, ["copying"])
        files.sync_folder(self.root)

    def verify(self, name: str) -> list[str] | None:
        """Read one and return what is wrong with it; None for one that is not there."""
        return snapshots.verify(self.root / name)

    def restored(self, name: str, fast: Path) -> Path | None:  # noqa: ARG002 - of a bucket
        """Return the folder of one, brought to the folder `fast` where it is none here; None where it is gone."""
        return self.root / name

    def committed(self, name: str) -> Committed | None:
        """Return what its drainer could not record before it died, or None: its rename left the time."""
        try:
            return drain_journal.committed(snapshots.read(self.root / name), (self.root / name).stat().st_ctime)
        except (OSError, DamageError):
            return None

    def take(self, source: Path, manifest: Manifest, how: How) -> None:
        """Copy, read back and make visible, all or nothing; raises DamageError for a source that is damaged."""
        copying = self.root / f"copying-{manifest.name}"
        try:
            _copy(source, copying / FILES, manifest, how)
            snapshots.seal(copying, manifest)
            edge("copied")
            snapshots.publish(copying, manifest.name)
        except (DamageError, OSError):
            with suppress(OSError):  # a storage that is read-only keeps it until it can be written again
                snapshots.remove(copying)
            raise


def _copy(source: Path, target: Path, manifest: Manifest, how: How) -> None:
    """Copy, make durable and read back; raises DamageError for a bad source, OSError for a bad copy."""
    files.make_folder(target.parent)  # without its parents: a slow storage that is gone is not made anew
    files.make_folder(target)
    edge("copying")
    sizes = [(file.name, file.size) for file in manifest.files]
    with suppress(FileNotFoundError):  # the checksums tell which file is missing, and where
        transfer.copy(source, target, sizes, how)
    edge("written")
    copied = {target / name: stat.S_ISDIR(status.st_mode) for name, status in files.tree(target).items()}
    folders = [path for path, is_folder in copied.items() if is_folder]
    transfer.sync(copied.keys() - folders, [*folders, target, target.parent, target.parent.parent])
    edge("synced")
    wrong = snapshots.problems(target, manifest.files, direct=how.direct, streams=how.streams)
    snapshots.blame(wrong, source, manifest, how, target)


def of(slow: Place) -> Slow:
    """Return what does the work there."""
    return Folder(slow) if isinstance(slow, Path) else slow


def place_of(word: Place | str, retries: int = RETRIES) -> Place:
    """Return what a slow storage is named by: a path, or the address of a bucket."""
    return Bucket(str(word), retries) if "://" in str(word) else Path(str(word)).resolve()
