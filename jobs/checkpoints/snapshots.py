"""The snapshots of a training in a store: a snapshot is either complete and verified or ignored, even after a kill.

A snapshot is a folder ``<name>/`` with the user's files in ``files/``. The file ``manifest.json`` beside ``files/`` has
the names, sizes and SHA-256 of the files. When a snapshot is saved, the manifest is written last, when every file is
durable and verified. When a snapshot is removed, the manifest is removed first. Therefore the store alone determines
the state of a snapshot:

===========  ==========================================================================================
complete     the snapshot has a manifest; in a bucket, all of its objects exist, too
unreadable   the manifest cannot be read; the snapshot is ignored, but not removed
damaged      the files differ from the manifest, which is now ``damaged.json``; removed if space is needed
incomplete   the snapshot is being written, is being removed, or was left by a killed process
===========  ==========================================================================================
"""

from __future__ import annotations

import errno
import json
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from jobs.errors import DamageError, FolderError, RoomError
from jobs.model import reading
from jobs.store import transfer
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.store.store import Store, StoredFile, StoreEntry
from jobs.store.transfer import TransferOptions
from jobs.system import clock, files, untrusted

SCHEMA = 1
MANIFEST_NAME, DAMAGED_NAME, FILES = "manifest.json", "damaged.json", "files"
PREFIX = "ckpt"  # prefix of the names of TensorFlow's files in a snapshot
ENDED = "drain_ended"
"""The key of a manifest's facts that has the end of the drain (`jobs.system.clock.Moment`)."""
_MANIFEST_LONGEST = 16 << 20  # largest size of a manifest in bytes
_DAMAGE_CURE = "use an older snapshot, which may be good"
_NAME = re.compile(r"\d{8,}-step\d+-[0-9a-f]{8}")


class _Stored(TypedDict):
    name: str
    step: int
    files: Annotated[list[tuple[str, Annotated[int, Meta(ge=0)], str]], Meta(min_length=1)]
    facts: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a snapshot: the list of the snapshot's files, and facts such as times."""

    name: str
    step: int
    files: tuple[StoredFile, ...]
    # The trainer's facts are ``saved_at`` (seconds since 1970, for people), ``write_s`` and ``waited_s``. On the slow
    # storage, the times of the drain are facts, too.
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the sizes of the snapshot's files in bytes."""
        return sum(file.size for file in self.files)

    def encoded(self) -> bytes:
        """Return the manifest as JSON bytes; raise OSError if there are more bytes than a reader accepts."""
        data = json.dumps({**asdict(self), "files": [list(file) for file in self.files]}, indent=1).encode()
        if len(data) > _MANIFEST_LONGEST:
            raise OSError(errno.EFBIG, f"a manifest of {len(data)} bytes is more than {_MANIFEST_LONGEST}", self.name)
        return data


def new_snapshot_name(sequence: int, step: int) -> str:
    """Return a new snapshot name from the sequence number, the training step and a random token.

    The token makes the name unique, because a restarted training can save the same step again.
    """
    return f"{sequence:08d}-step{step}-{secrets.token_hex(4)}"


def is_snapshot_name(text: str) -> bool:
    """Return whether a text has the form of a snapshot name."""
    return _NAME.fullmatch(text) is not None


def sequence_number(name: str) -> int:
    """Return the sequence number in a snapshot's name; the newest snapshot has the highest number."""
    return int(name.partition("-")[0])


def training_step(name: str) -> int:
    """Return the training step in a snapshot's name."""
    return int(name.split("-")[1].removeprefix("step"))


def store_of(word: Store | Path | str) -> Folder | Bucket:
    """Return the store for a path, for the address of a bucket, or for a store itself."""
    if isinstance(word, Folder | Bucket):
        return word
    return Bucket.at(str(word)) if "://" in str(word) else Folder(files.resolve_links(str(word)))


class Snapshots:
    """The snapshots in a store.

    The methods raise the errors of the store, and FolderError if a newer version of this project has written a file.
    """

    def __init__(self, store: Folder | Bucket) -> None:
        self.store = store
        self._manifests: dict[str, tuple[StoreEntry, Manifest]] = {}  # cache, so that a manifest is read only once

    def states(self) -> dict[str, str]:
        """Return the state of each snapshot by name, such as ``complete``; the newest snapshot is the last."""
        entries = self._entries()
        return {
            name: self._state(name, entries[name])
            for name in sorted(entries, key=lambda name: (sequence_number(name), name))
        }

    def _entries(self, name: str | None = None) -> dict[str, dict[str, StoreEntry]]:
        is_wanted = (lambda top: top == name) if name else is_snapshot_name
        return self.store.folders(is_wanted, (MANIFEST_NAME, DAMAGED_NAME))

    def _state(self, name: str, entries: dict[str, StoreEntry]) -> str:
        if (entry := entries.get(MANIFEST_NAME)) is None:
            return "damaged" if DAMAGED_NAME in entries else "incomplete"
        if name not in self._manifests or self._manifests[name][0] != entry:
            try:
                self._manifests[name] = entry, self.read(name)
            except DamageError:
                return "unreadable"
        return "complete" if self.store.has_all_files(self._manifests[name][1].files, entries, FILES) else "incomplete"

    def names(self, *states: str) -> list[str]:
        """Return the names of the snapshots in these states (by default the complete snapshots), the newest last."""
        return [name for name, state in self.states().items() if state in (states or ("complete",))]

    def find(self, name: str) -> Manifest | None:
        """Return the manifest of a complete snapshot, or None if no complete snapshot has this name."""
        entries = self._entries(name)
        return self._manifests[name][1] if entries and self._state(name, entries[name]) == "complete" else None

    def read(self, name: str, manifest_name: str = MANIFEST_NAME) -> Manifest:
        """Read and return the manifest of a snapshot.

        Raises DamageError if the manifest is missing or invalid. Raises FolderError if a newer version has written it.
        """
        path = f"{self.store}/{name}/{manifest_name}"
        try:
            data = untrusted.json_value(self.store.read(f"{name}/{manifest_name}", _MANIFEST_LONGEST))
            value: Any = reading.check_value(data, _Stored, SCHEMA)
            manifest = Manifest(**{**value, "files": tuple(StoredFile(*file) for file in value["files"])})
            if outside := [file.name for file in manifest.files if not files.is_possible_name_below(file.name)]:
                raise ValueError(f"{outside[0]!r} is no file in a snapshot")  # noqa: TRY301 - becomes a DamageError
        except (FileNotFoundError, files.OddFileError, ValueError, TypeError) as error:
            raise DamageError(f"{path} cannot be read: {error}", _DAMAGE_CURE) from error
        except reading.NewerFileError as error:
            raise FolderError(
                f"{path} has {error}, newer than {SCHEMA}", "use the newer version of tfio-campaign"
            ) from error
        if (manifest.name, manifest.step) != (name, training_step(name)):
            raise DamageError(f"{path} is the manifest of another snapshot", _DAMAGE_CURE)
        return manifest

    def require_room(self, size: int, copies: int = 1) -> None:
        """Raise RoomError if `copies` snapshots of `size` bytes do not fit, even if all old snapshots are removed."""
        free = self.store.free_bytes()
        if free is None:
            return
        free += sum(manifest.total_bytes for _, manifest in map(self._manifests.__getitem__, self.names()))
        if free < size * copies:
            subject = "a snapshot of {:.0f} MB does" if copies == 1 else f"{copies} snapshots of {{:.0f}} MB do"
            raise RoomError(
                f"{subject.format(size / 1e6)} not fit on {self.store}: {free / 1e6:.0f} MB are free",
                self.store.more_room + ("" if copies == 1 else ", or keep fewer snapshots"),
            )

    def stage(
        self, name: str, write: Callable[[Path], object], facts: Callable[[], Mapping[str, Any]], streams: int = 1
    ) -> Manifest:
        """Save a snapshot to this store, which must be a folder; return the manifest when the snapshot is durable.

        `write` is called with an empty folder, and must write the files of the snapshot to this folder. `facts` is
        called when every file is durable, and returns the facts for the manifest. If `write` raises an error, if a file
        is no regular file, or if the storage fails, all files of the snapshot are removed. The store's folder must
        exist.
        """
        folder = self.path(name).parent
        try:
            files.make_folder(folder)
            files.make_folder(folder / FILES)
            with transfer.flush_meanwhile(folder / FILES):
                write(folder / FILES)
                stored = _fingerprint(folder / FILES, streams)
            manifest = Manifest(name, training_step(name), stored, facts())
            self.store.put(f"{name}/{MANIFEST_NAME}", manifest.encoded())
        except BaseException:
            with suppress(OSError):  # the first error is raised; the next trainer removes the remaining files
                self.delete(name)
            raise
        return manifest

    def path(self, name: str) -> Path:
        """Return the path of the folder with the files of a snapshot; the store must be a folder."""
        return Path(str(self.store), name, FILES)

    def take(self, source: Snapshots, manifest: Manifest, how: TransferOptions) -> None:
        """Copy a snapshot from the folder `source` to this store, and read the copy back.

        Raises DamageError if the files in `source` are damaged. Raises OSError if the copy has other bytes than the
        files in `source`. After a failure, complete objects stay in a bucket, and the next attempt does not write them
        again.
        """
        name, files_name = manifest.name, f"{manifest.name}/{FILES}"
        manifest.encoded()  # raises an error for a manifest that is too large, before any file is written
        source.require_as_listed(manifest)
        if self.store.incomplete_s:
            self.store.delete(f"{name}/{MANIFEST_NAME}")  # so that the snapshot is not listed before it is complete
        else:
            self.delete(name)
        try:
            with suppress(FileNotFoundError):  # `problems` finds out which file is missing in which store
                self.store.copy_in(files_name, source.path(name), manifest.files, how)
            problems = self.store.verify_files(files_name, manifest.files, how)
        except OSError:
            if not self.store.incomplete_s:
                self._try_delete(name)
            raise
        try:
            if problems and (source_problems := source.store.verify_files(files_name, manifest.files, how)):
                raise DamageError(f"{source.store}/{name}: {', '.join(source_problems)}", _DAMAGE_CURE)  # noqa: TRY301
            if problems:
                faults = ", ".join(problems)
                raise OSError(errno.EIO, f"the copy differs from the original: {faults}", str(self.store))  # noqa: TRY301
            self._seal(replace(manifest, facts={**manifest.facts, ENDED: clock.current_moment()}))
        except (DamageError, OSError):
            self._try_delete(name)
            raise

    def require_as_listed(self, manifest: Manifest) -> None:
        """Raise DamageError if the folder of a snapshot has other files, or files of other sizes, than its manifest."""
        found = _versions(self.path(manifest.name))
        sizes = {name: size[0] for name, (mode, *size) in found.items() if stat.S_ISREG(mode)}
        if sizes != (listed := {file.name: file.size for file in manifest.files}):
            name = min(name for name in sizes.keys() | listed.keys() if sizes.get(name) != listed.get(name))
            fault = "was written after the save" if name in sizes else "is missing"
            raise DamageError(f"{self.store}/{manifest.name}: {name} {fault}", _DAMAGE_CURE)

    def _seal(self, manifest: Manifest) -> None:
        """Write a manifest to the store and read it back; raise OSError if the manifest has changed."""
        self.store.put(f"{manifest.name}/{MANIFEST_NAME}", manifest.encoded())
        if self.find(manifest.name) != manifest:
            message = "the manifest reads back other bytes than were written"
            raise OSError(errno.EIO, message, f"{self.store}/{manifest.name}")

    def _try_delete(self, name: str) -> None:
        with suppress(OSError):  # on a read-only storage, the snapshot stays until the storage is writable again
            self.delete(name)

    def verify(self, name: str) -> list[str] | None:
        """Read all files of a snapshot, compare them with the manifest, and return the problems as texts.

        The list is empty for a good snapshot. The result is None if the snapshot is missing or was removed meanwhile.
        """

        def find_manifest() -> str:
            entries = self._entries(name).get(name, {})
            return next((key for key in (MANIFEST_NAME, DAMAGED_NAME) if key in entries), "")

        if not (manifest_name := find_manifest()):
            return None
        try:
            problems = self.store.verify_files(
                f"{name}/{FILES}", self.read(name, manifest_name).files, TransferOptions()
            )
        except DamageError as error:
            problems = [error.message]
        except files.OddFileError as error:
            problems = [f"{error.filename}: {error.strerror}"]
        except FileNotFoundError as error:
            problems = [f"{error.filename} is missing"]
        return None if problems and not find_manifest() else problems

    def restored_folder(self, name: str, target: Snapshots) -> Path | None:
        """Return the path of the folder with the files of a snapshot; files in a bucket are copied to `target` first.

        An older copy of the snapshot in `target` is replaced. Raises DamageError if the snapshot is damaged. Return
        None if the snapshot is missing, or if the drainer of another job has removed the snapshot meanwhile.
        """
        if isinstance(self.store, Folder):
            return self.path(name)
        if (manifest := self.find(name)) is None:
            return None
        target.delete(name)
        try:
            target.stage(name, partial(self.store.copy_out, f"{name}/{FILES}", manifest.files), lambda: manifest.facts)
        except DamageError:
            if self.find(name):
                raise
            return None
        return target.path(name)

    def delete(self, name: str) -> None:
        """Remove a snapshot, the manifest first; no error is raised if another process has already removed it."""
        self._manifests.pop(name, None)
        self.store.delete(f"{name}/{MANIFEST_NAME}", f"{name}/{DAMAGED_NAME}")
        self.store.clear(name)

    def set_aside(self, name: str) -> None:
        """Mark a snapshot as damaged, by renaming its manifest; the store must be a folder."""
        folder = self.path(name).parent
        files.rename(folder / MANIFEST_NAME, folder / DAMAGED_NAME)
        files.sync_folder(folder)

    def recover(self) -> None:
        """Remove incomplete snapshots of dead processes; in a bucket, remove them only after a day."""
        entries = self._entries()
        for name, entries_of_name in entries.items():
            age_s = time.time() - max((entry.modified for entry in entries_of_name.values()), default=0.0)
            # For a folder, `incomplete_s` is 0, so that the clock of the file system does not matter.
            is_abandoned = age_s > self.store.incomplete_s or not self.store.incomplete_s
            if is_abandoned and self._state(name, entries_of_name) == "incomplete":
                self.delete(name)


def _versions(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return mode, size, modification time and inode of each file below a folder, by name; folders have no time."""
    return {
        name: (status.st_mode, *((status.st_size, status.st_mtime_ns, status.st_ino) * stat.S_ISREG(status.st_mode)))
        for name, status in files.folder_tree(folder).items()
    }


def _fingerprint(folder: Path, streams: int) -> tuple[StoredFile, ...]:
    """Make all files below a folder durable, and return their names, sizes and hashes.

    Raises DamageError if there is no file, if a file is no regular file or is still written, or if there are more than
    `files.DEEPEST` levels of folders, because such a snapshot could not be restored.
    """
    try:
        before = _versions(folder)
        kinds = {name: stat.S_IFMT(mode) for name, (mode, *_) in before.items()}
    except files.OddFileError as error:
        raise DamageError(f"{folder} cannot be saved: {error.strerror}", "write files in fewer folders") from error
    irregular = [name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR)]
    names = sorted(name for name, kind in kinds.items() if kind == stat.S_IFREG)
    if irregular or not names:
        reason = f"{folder / irregular[0]} is no regular file" if irregular else f"nothing was written to {folder}"
        raise DamageError(reason, "write only regular files, and at least one file")
    with ThreadPoolExecutor(1) as pool:  # a second thread flushes the files while this thread hashes them
        sync = pool.submit(transfer.sync_tree, folder, [folder.parent, folder.parent.parent], streams)
        hashes = transfer.hash_files([folder / name for name in names], streams=streams)
        sync.result()
    after = _versions(folder)
    written = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    written |= {name for name in names if name not in written and files.is_open_for_writing(folder / name)}
    if written:
        raise DamageError(f"{folder / min(written)} is still written", "return from `write` when the saver has ended")
    return tuple(StoredFile(name, size, digest) for name, (size, digest) in zip(names, hashes, strict=True))
