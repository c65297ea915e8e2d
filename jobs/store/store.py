"""Define the common interface of a folder and a bucket: store files under names, list files and read files.

A marker file in a store names the owner of the store. Before any change, this program refuses a store with another
marker. A journal lists the durable files, so that a killed task can resume. The methods raise OSError; a missing name
raises FileNotFoundError. The methods of a bucket also raise `jobs.errors.ObjectStoreError`.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, ClassVar, NamedTuple, Protocol, Self, TypedDict

from jobs.errors import DatasetError
from jobs.model import reading
from jobs.store.transfer import TransferOptions
from jobs.system import files, untrusted
from jobs.terminal import visible

_MARKER_BYTES, _SHOWN_CHARACTERS = 1 << 20, 200
_OWN_PREFIXES = (".tfio-", "..tfio-")  # prefixes of the names of locks and temporary markers


class StoreEntry(NamedTuple):
    """The size, the identity and the time of one file or object in a store."""

    size: int
    identity: object = None  # ETag of an object, or times and inode of a file; changes when the content changes
    modified: float = 0.0  # time of the put, in seconds since 1970 by the clock of the store


class StoredFile(NamedTuple):
    """A file in a list of files to store together: relative path, size in bytes, SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


class PutResult(NamedTuple):
    """The size in bytes of a stored file; for an object also the ETag and the SHA-256 in hexadecimal."""

    size: int
    etag: str | None = None
    sha256: str | None = None


class Store(Protocol):
    """A place for files: a folder (`jobs.store.folder.Folder`) or a prefix of a bucket (`jobs.store.bucket.Bucket`)."""

    incomplete_s: ClassVar[float]
    """Seconds after which an incomplete file counts as abandoned; 0 if a lock shows whether a writer exists."""
    more_room: ClassVar[str]
    """The cure in an error message if the files do not fit into the store."""

    def reason_to_distrust(self) -> str:
        """Return why other users may have changed files in the store, or "" if only this user may write there."""

    def names(self) -> list[str]:
        """Return the sorted names of the files and folders at the top of the store."""

    def folders(self, accepts: Callable[[str], bool], file_names: Sequence[str]) -> dict[str, dict[str, StoreEntry]]:
        """Return the files in each top folder that `accepts` allows, by name of the folder and name of the file.

        A bucket returns all objects of this program. A folder returns only the files named in `file_names`. A top
        folder that is a link counts as empty.
        """

    def entries(self) -> dict[str, StoreEntry]:
        """Return all files in the store, by name."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file of at most `most_bytes` bytes."""

    def put(self, name: str, data: bytes) -> None:
        """Store bytes under a name, completely and durably. The folder of the file must exist."""

    def write(self, name: str, fill: Callable[[IO[bytes]], None]) -> PutResult:
        """Store the file that `fill` writes, completely or not at all. The file is durable only after `sync`.

        The folder of the file must exist.
        """

    def sync(self) -> None:
        """Make all written files durable."""

    def delete(self, *names: str) -> None:
        """Remove files durably; missing files are ignored."""

    def clear(self, below: str) -> None:
        """Remove all files below a top folder; links are not followed."""

    def free_bytes(self) -> int | None:
        """Return the number of free bytes, or None if it is unknown."""

    def copy_in(self, below: str, source: Path, listed: Sequence[StoredFile], how: TransferOptions) -> None:
        """Copy the `listed` files of the folder `source` to names below `below`, durably.

        A bucket does not copy objects again that an earlier attempt has copied.
        """

    def verify_files(self, below: str, listed: Sequence[StoredFile], how: TransferOptions) -> list[str]:
        """Read all files below `below`, and return a text for each difference from `listed`."""

    def has_all_files(self, listed: Sequence[StoredFile], entries: dict[str, StoreEntry], below: str) -> bool:
        """Return whether `entries` (from `folders`) contain all `listed` files; for a folder always True."""


def error_if_too_large(store: Store, size: int) -> str:
    """Return an error text if `size` more bytes do not fit into a store.

    Returns "" if the bytes fit, or if the free space is unknown.
    """
    free = store.free_bytes()
    if free is None or size <= free:
        return ""
    return f"{store} needs {files.format_bytes(size)} more, and has {files.format_bytes(free)} free"


def refuse_foreign(store: Store, marker_name: str, identity: str) -> bool:
    """Return whether a store has the marker `identity`, or False if the store is empty.

    Raises DatasetError if the store has another marker or other files, or if other users may write to the folder.
    """
    cure = "name another folder or bucket, which is new or empty (storage.root=…, storage.prefix=…)"
    if fault := store.reason_to_distrust():
        raise DatasetError(fault, cure)
    try:
        content = os.fsdecode(store.read(marker_name, _MARKER_BYTES)) or "an empty marker"
    except FileNotFoundError:
        if not (other_files := [name for name in store.names() if not name.startswith(_OWN_PREFIXES)]):
            return False
        content = f"files that this program did not make, such as {', '.join(other_files[:3])}"
    except files.OddFileError:
        content = "something else"
    if content not in (identity, f"{identity}\n"):
        raise DatasetError(f"{store} contains {visible(content[:_SHOWN_CHARACTERS])}, not {visible(identity)}", cure)
    return True


def mark_as_ours(store: Store, marker_name: str, identity: str) -> None:
    """Write the marker `identity` into a store that has no marker yet. Raises the errors of `refuse_foreign`."""
    if not refuse_foreign(store, marker_name, identity):
        store.put(marker_name, os.fsencode(identity))


JOURNAL_PREFIX = ".tfio-journal-"
_INTERVAL_S = 5.0  # a power cut may cost this many seconds of work; a sync of a slow disk takes about one second
_JOURNAL_PART_LONGEST = 16 << 20


class _Part(TypedDict):
    origin: str
    put: list[tuple[int, int, str | None, str | None]]


class Journal:
    """A journal of the numbered files that are durable in a store; `origin` describes how their bytes were made."""

    def __init__(self, store: Store, origin: Mapping[str, object]) -> None:
        self._store, self._origin = store, json.dumps(origin, sort_keys=True)
        self._unwritten: dict[int, PutResult] = {}
        self._flushed_at = time.monotonic()

    def read(self, existing: Mapping[str, StoreEntry], names: Sequence[str]) -> dict[int, PutResult]:
        """Return the files of the journal that exist with unchanged size and ETag, by number.

        `existing` has all files in the store. `names` has the name of each number. A part of the journal that is
        damaged, or has another origin, counts as empty.
        """
        put: dict[int, PutResult] = {}
        for name in existing:
            with suppress(OSError, ValueError):
                if name.startswith(JOURNAL_PREFIX):
                    part = reading.check_value(
                        untrusted.json_value(self._store.read(name, _JOURNAL_PART_LONGEST)), _Part
                    )
                    if part["origin"] == self._origin:
                        put |= {number: PutResult(size, etag, digest) for number, size, etag, digest in part["put"]}
        entries = {number: existing.get(name) for number, name in enumerate(names) if number in put}
        return {
            number: put[number]
            for number, entry in entries.items()
            if entry and put[number].size == entry.size and put[number].etag in (None, entry.identity)
        }

    def add(self, put: Mapping[int, PutResult]) -> None:
        """Add stored files by number; every 5 seconds, `flush` writes the added files to the journal."""
        self._unwritten.update(put)
        if time.monotonic() - self._flushed_at > _INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Make the added files durable, then write their numbers to the journal."""
        if self._unwritten:
            self._store.sync()
            part = {"origin": self._origin, "put": [[number, *put] for number, put in self._unwritten.items()]}
            self._store.put(f"{JOURNAL_PREFIX}{secrets.token_hex(8)}", json.dumps(part).encode())
        self._unwritten.clear()
        self._flushed_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Flush the journal, also after an error: if the storage is full, the files that did fit must not be lost."""
        with suppress(OSError) if kind else nullcontext():
            self.flush()
