"""The slow storage of a burst buffer: a folder, or objects in a bucket (`jobs.burst_buffer.bucket`)."""

from __future__ import annotations

import errno
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from jobs.burst_buffer import snapshots
from jobs.burst_buffer.snapshots import FILES, edge
from jobs.errors import DamageError
from jobs.model import reading
from jobs.system import files, transfer

if TYPE_CHECKING:
    from jobs.burst_buffer.bucket import Bucket
    from jobs.burst_buffer.drain_journal import Committed
    from jobs.burst_buffer.snapshots import Manifest
    from jobs.system.transfer import How

    Place: TypeAlias = Path | Bucket
    Slow: TypeAlias = "Folder | Bucket"


class _DrainFacts(TypedDict):
    """What a manifest on the slow storage says of its drain."""

    drain_started_at: float
    drain_retries: int


def event(manifest: Manifest, at: object) -> Committed | None:
    """Return what the manifest of a snapshot that became visible `at` that time says of its drain."""
    if not isinstance(at, float) or reading.fault(manifest.facts, _DrainFacts):
        return None
    began, retries = manifest.facts["drain_started_at"], manifest.facts["drain_retries"]
    return {"event": "committed", "name": manifest.name, "at": at, "started_at": began, "retries": retries}


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
            return event(snapshots.read(self.root / name), (self.root / name).stat().st_ctime)
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
    blame(wrong, source, manifest, how, target)


def blame(wrong: list[str], source: Path, manifest: Manifest, how: How, target: object) -> None:
    """Raise OSError for a copy that is `wrong`, DamageError where its source is, too."""
    if not wrong:
        return
    if damaged := snapshots.problems(source, manifest.files, streams=how.streams):
        raise DamageError(f"{source.parent}: {', '.join(damaged)}", "an older snapshot may be good")
    raise OSError(errno.EIO, f"read back otherwise than written: {', '.join(wrong)}", str(target))


def of(slow: Place) -> Slow:
    """Return what does the work there."""
    return Folder(slow) if isinstance(slow, Path) else slow
