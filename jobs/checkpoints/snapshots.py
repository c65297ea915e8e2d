"""The snapshots of a training in a store: each is complete and verified, or absent, whatever is killed and when.

A snapshot is a folder ``<name>/`` with the user's files in ``files/`` and ``manifest.json`` beside them: names, sizes
and SHA-256. The manifest is put last, when every file is durable and verified, and removed first. So the state of a
snapshot follows from the store alone:

===========  ==========================================================================================
complete     it has its manifest (in a bucket: and all objects exist)
unreadable   its manifest cannot be read: it is ignored, and not removed
damaged      its files differ from its manifest, which is ``damaged.json`` now; kept until room is needed
incomplete   all others: being written, being removed, or left by a kill
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
from jobs.store.store import Entry, Store, StoredFile
from jobs.store.transfer import How
from jobs.system import clock, files, untrusted

SCHEMA = 1
MANIFEST_NAME, DAMAGED_NAME, FILES = "manifest.json", "damaged.json", "files"
PREFIX = "ckpt"  # of the names of the files that TensorFlow writes there
ENDED = "drain_ended"
"""The fact of a manifest with the moment at which it was put (`jobs.system.clock.Moment`)."""
_MOST_BYTES = 16 << 20  # of a manifest
_OLDER = "an older snapshot may be good"
_NAME = re.compile(r"\d{8,}-step\d+-[0-9a-f]{8}")


class _Stored(TypedDict):
    name: str
    step: int
    files: Annotated[list[tuple[str, Annotated[int, Meta(ge=0)], str]], Meta(min_length=1)]
    facts: NotRequired[dict[str, Any]]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a snapshot: its files, and facts such as times."""

    name: str
    step: int
    files: tuple[StoredFile, ...]
    # Of the trainer `saved_at` (seconds since 1970, for people alone), `write_s` and `waited_s`; on the slow storage
    # also the moments of the drain.
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)

    def encoded(self) -> bytes:
        """Return the stored form of the manifest; raise OSError if it is too large to be read again."""
        data = json.dumps({**asdict(self), "files": [list(file) for file in self.files]}, indent=1).encode()
        if len(data) > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"a manifest of {len(data)} bytes is more than {_MOST_BYTES}", self.name)
        return data


def new_name(sequence: int, step: int) -> str:
    """Return a new snapshot name: sequence number, step, and a random token, because a step may be saved again."""
    return f"{sequence:08d}-step{step}-{secrets.token_hex(4)}"


def is_name(text: str) -> bool:
    """Return whether this is the name of a snapshot."""
    return _NAME.fullmatch(text) is not None


def sequence(name: str) -> int:
    """Return the sequence number of a snapshot; a higher number is newer."""
    return int(name.partition("-")[0])


def step(name: str) -> int:
    """Return the training step of a snapshot."""
    return int(name.split("-")[1].removeprefix("step"))


def store_of(word: Store | Path | str) -> Folder | Bucket:
    """Return the store at a path or at the address of a bucket."""
    if isinstance(word, Folder | Bucket):
        return word
    return Bucket.at(str(word)) if "://" in str(word) else Folder(Path(str(word)).resolve())


class Snapshots:
    """The snapshots in a store. Errors are those of the store, and FolderError for files of a newer version."""

    def __init__(self, store: Folder | Bucket) -> None:
        self.store = store
        self._known: dict[str, tuple[Entry, Manifest]] = {}  # so that each manifest is read once

    def states(self) -> dict[str, str]:
        """Return the state of each snapshot by name, the newest last."""
        entries = self._entries()
        return {
            name: self._state(name, entries[name]) for name in sorted(entries, key=lambda name: (sequence(name), name))
        }

    def _entries(self, name: str | None = None) -> dict[str, dict[str, Entry]]:
        wanted = (lambda top: top == name) if name else is_name
        return self.store.folders(wanted, (MANIFEST_NAME, DAMAGED_NAME))

    def _state(self, name: str, there: dict[str, Entry]) -> str:
        if (entry := there.get(MANIFEST_NAME)) is None:
            return "damaged" if DAMAGED_NAME in there else "incomplete"
        if name not in self._known or self._known[name][0] != entry:
            try:
                self._known[name] = entry, self.read(name)
            except DamageError:
                return "unreadable"
        return "complete" if self.store.is_whole(self._known[name][1].files, there, FILES) else "incomplete"

    def names(self, *states: str) -> list[str]:
        """Return the names of the snapshots in these states, by default of the complete ones, the newest last."""
        return [name for name, state in self.states().items() if state in (states or ("complete",))]

    def find(self, name: str) -> Manifest | None:
        """Return the manifest of a complete snapshot; None if there is none of this name."""
        there = self._entries(name)
        return self._known[name][1] if there and self._state(name, there[name]) == "complete" else None

    def read(self, name: str, manifest_name: str = MANIFEST_NAME) -> Manifest:
        """Return the manifest of a snapshot; raise DamageError if there is no good one, FolderError if it is newer."""
        path = f"{self.store}/{name}/{manifest_name}"
        try:
            data = untrusted.json_value(self.store.read(f"{name}/{manifest_name}", _MOST_BYTES))
            value: Any = reading.checked(data, _Stored, SCHEMA)
            manifest = Manifest(**{**value, "files": tuple(StoredFile(*file) for file in value["files"])})
            if strays := [file.name for file in manifest.files if not files.is_below(file.name)]:
                raise ValueError(f"{strays[0]!r} is no file in a snapshot")  # noqa: TRY301 - told as the rest
        except (FileNotFoundError, files.OddFileError, ValueError, TypeError) as error:
            raise DamageError(f"{path} cannot be read: {error}", _OLDER) from error
        except reading.NewerFileError as error:
            raise FolderError(f"{path} has {error}, newer than {SCHEMA}", "use the newer version") from error
        if (manifest.name, manifest.step) != (name, step(name)):
            raise DamageError(f"{path} is of another snapshot", _OLDER)
        return manifest

    def require_room(self, size: int, copies: int = 1) -> None:
        """Raise RoomError if `copies` snapshots of `size` bytes do not fit, even after our older ones are removed."""
        free = self.store.free_bytes()
        if free is None:
            return
        free += sum(manifest.total_bytes for _, manifest in map(self._known.__getitem__, self.names()))
        if free < size * copies:
            what = "a snapshot of {:.0f} MB does" if copies == 1 else f"{copies} snapshots of {{:.0f}} MB do"
            raise RoomError(
                f"{what.format(size / 1e6)} not fit on {self.store}: {free / 1e6:.0f} MB are free",
                self.store.more_room + ("" if copies == 1 else ", or keep fewer snapshots"),
            )

    def stage(
        self, name: str, write: Callable[[Path], object], facts: Callable[[], Mapping[str, Any]], streams: int = 1
    ) -> Manifest:
        """Call `write` to fill a snapshot in a folder; return its manifest when it is complete and durable.

        `facts` is called for the manifest when every file is durable. If `write` raises, files could not be restored
        or a storage fails, nothing is left. The folder above is not made anew.
        """
        folder = self.path(name).parent
        try:
            files.make_folder(folder)
            files.make_folder(folder / FILES)
            write(folder / FILES)
            manifest = Manifest(name, step(name), _fingerprint(folder / FILES, streams), facts())
            self.store.put(f"{name}/{MANIFEST_NAME}", manifest.encoded())
        except BaseException:
            with suppress(OSError):  # the first error is the one to raise; the next trainer tidies up
                self.delete(name)
            raise
        return manifest

    def path(self, name: str) -> Path:
        """Return the folder with the files of a snapshot, in a store that is a folder."""
        return Path(str(self.store), name, FILES)

    def take(self, source: Snapshots, manifest: Manifest, how: How) -> None:
        """Copy a snapshot from a folder and read it back; raise DamageError if the source is damaged.

        Raises OSError if the store has other bytes. Objects left in a bucket by a failure are not put again.
        """
        name, below = manifest.name, f"{manifest.name}/{FILES}"
        manifest.encoded()  # before anything is put
        if self.store.incomplete_s:
            self.store.delete(f"{name}/{MANIFEST_NAME}")  # invisible, until all is good
        else:
            self.delete(name)
        try:
            with suppress(FileNotFoundError):  # the checksums will show which file is missing, and on which side
                self.store.receive(below, source.path(name), manifest.files, how)
            wrong = self.store.problems(below, manifest.files, how)
        except OSError:
            if not self.store.incomplete_s:
                self._give_up(name)
            raise
        try:
            if wrong and (damaged := source.store.problems(below, manifest.files, how)):
                raise DamageError(f"{source.store}/{name}: {', '.join(damaged)}", _OLDER)  # noqa: TRY301
            if wrong:
                raise OSError(errno.EIO, f"read back otherwise than written: {', '.join(wrong)}", str(self.store))  # noqa: TRY301
            self._seal(replace(manifest, facts={**manifest.facts, ENDED: clock.moment()}))
        except (DamageError, OSError):
            self._give_up(name)
            raise

    def _seal(self, manifest: Manifest) -> None:
        """Put a manifest and read it back."""
        self.store.put(f"{manifest.name}/{MANIFEST_NAME}", manifest.encoded())
        if self.find(manifest.name) != manifest:
            why = "the manifest reads back otherwise than written"
            raise OSError(errno.EIO, why, f"{self.store}/{manifest.name}")

    def _give_up(self, name: str) -> None:
        with suppress(OSError):  # a storage that is read-only keeps it until it can be written again
            self.delete(name)

    def verify(self, name: str) -> list[str] | None:
        """Read a snapshot and return the problems of its files; empty for a good one.

        None if the snapshot is missing, or was removed meanwhile.
        """

        def manifest_name() -> str:
            there = self._entries(name).get(name, {})
            return next((each for each in (MANIFEST_NAME, DAMAGED_NAME) if each in there), "")

        if not (stored_as := manifest_name()):
            return None
        try:
            wrong = self.store.problems(f"{name}/{FILES}", self.read(name, stored_as).files, How())
        except DamageError as error:
            wrong = [error.message]
        except files.OddFileError as error:
            wrong = [f"{error.filename}: {error.strerror}"]
        except FileNotFoundError as error:
            wrong = [f"{error.filename} is missing"]
        return None if wrong and not manifest_name() else wrong

    def restored(self, name: str, first: Snapshots) -> Path | None:
        """Return the folder with the files of a snapshot; files in a bucket are copied to the `first` store.

        A copy of that name there is replaced. Raises DamageError for a bad snapshot; None if it is missing, or was
        removed meanwhile: another job's drainer removes snapshots that newer ones replace.
        """
        if isinstance(self.store, Folder):
            return self.path(name)
        if (manifest := self.find(name)) is None:
            return None
        first.delete(name)
        try:
            first.stage(name, partial(self.store.bring, f"{name}/{FILES}", manifest.files), lambda: manifest.facts)
        except DamageError:
            if self.find(name):
                raise
            return None
        return first.path(name)

    def delete(self, name: str) -> None:
        """Remove a snapshot, its manifest first; nothing happens if another process was faster."""
        self._known.pop(name, None)
        self.store.delete(f"{name}/{MANIFEST_NAME}", f"{name}/{DAMAGED_NAME}")
        self.store.clear(name)

    def set_aside(self, name: str) -> None:
        """Mark a snapshot in a folder as damaged."""
        folder = self.path(name).parent
        files.rename(folder / MANIFEST_NAME, folder / DAMAGED_NAME)
        files.sync_folder(folder)

    def recover(self) -> None:
        """Remove incomplete snapshots of dead processes; in a bucket after a day, as others may still write them."""
        entries = self._entries()
        for name, there in entries.items():
            age_s = time.time() - max((each.modified for each in there.values()), default=0.0)
            is_left = age_s > self.store.incomplete_s or not self.store.incomplete_s  # whatever the clock says
            if is_left and self._state(name, there) == "incomplete":
                self.delete(name)


def _fingerprint(folder: Path, streams: int) -> tuple[StoredFile, ...]:
    """Make all files below a folder durable and return them; raise DamageError if they could not be restored.

    There must be a file, no irregular one, and no more than `files.DEEPEST` folders in each other.
    """
    try:
        kinds = {name: stat.S_IFMT(status.st_mode) for name, status in files.tree(folder).items()}
    except files.OddFileError as error:
        raise DamageError(f"{folder} cannot be saved: {error.strerror}", "write files in fewer folders") from error
    odd = [name for name, kind in kinds.items() if kind not in (stat.S_IFREG, stat.S_IFDIR)]
    names = sorted(name for name, kind in kinds.items() if kind == stat.S_IFREG)
    if odd or not names:
        why = f"{folder / odd[0]} is no regular file" if odd else f"nothing was written to {folder}"
        raise DamageError(why, "write files")
    with ThreadPoolExecutor(1) as pool:  # the storage writes while the processor hashes
        synced = pool.submit(transfer.sync_tree, folder, [folder.parent, folder.parent.parent], streams)
        hashes = transfer.hash_files([folder / name for name in names], streams=streams)
        synced.result()
    return tuple(StoredFile(name, size, digest) for name, (size, digest) in zip(names, hashes, strict=True))
