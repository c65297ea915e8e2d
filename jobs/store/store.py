"""The interface that a folder and a bucket share: files are put under names, as a whole, and found again.

A store has a marker with its owner: a store of another owner is refused before any change. A journal of the durable
items lets a killed task resume. Errors are OSError (FileNotFoundError: the name does not exist), and for a
bucket `jobs.errors.ObjectStoreError`.
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
    """An entry in the list of a store: size, identity and time of one file or object."""

    size: int
    identity: object = None  # ETag of an object, or stamp of a file; it changes with the content
    modified: float = 0.0  # time of the put, in seconds since 1970 by the clock of the store


class StoredFile(NamedTuple):
    """A file that is put together with others: relative path, size in bytes, SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


class PutResult(NamedTuple):
    """The result of a put: size in bytes, and for an object ETag and SHA-256 in hexadecimal."""

    size: int
    etag: str | None = None
    sha256: str | None = None


class Store(Protocol):
    """A store: a folder (`jobs.store.folder.Folder`) or a prefix of a bucket (`jobs.store.bucket.Bucket`)."""

    incomplete_s: ClassVar[float]
    """Seconds after which an incomplete file counts as abandoned; 0: a lock shows whether a writer exists."""
    more_room: ClassVar[str]
    """The cure if there is no room."""

    def distrust(self) -> str:
        """Return why others may have changed the store's files; empty if only this user may write there."""

    def names(self) -> list[str]:
        """Return the sorted names of files and folders at the top."""

    def folders(self, accepts: Callable[[str], bool], file_names: Sequence[str]) -> dict[str, dict[str, StoreEntry]]:
        """Return the files in each top folder that `accepts` allows, by top folder and name below it.

        A bucket returns all our objects, a folder the files named in `file_names`. A folder that is a link has none.
        """

    def entries(self) -> dict[str, StoreEntry]:
        """Return all files, by name."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file of at most `most_bytes` bytes."""

    def put(self, name: str, data: bytes) -> None:
        """Put bytes under a name, as a whole and durably; its folder exists."""

    def write(self, name: str, fill: Callable[[IO[bytes]], None]) -> PutResult:
        """Put the file that `fill` writes, as a whole; durable only after `sync`. Its folder exists."""

    def sync(self) -> None:
        """Make all written files durable."""

    def delete(self, *names: str) -> None:
        """Remove files, durably; missing ones are ignored."""

    def clear(self, below: str) -> None:
        """Remove everything below a name at the top; links are not followed."""

    def free_bytes(self) -> int | None:
        """Return the number of free bytes; None if unknown."""

    def receive(self, below: str, source: Path, listed: Sequence[StoredFile], how: TransferOptions) -> None:
        """Copy files of a folder below a name, durably; a bucket keeps the objects of an earlier attempt."""

    def problems(self, below: str, listed: Sequence[StoredFile], how: TransferOptions) -> list[str]:
        """Read all files below a name; return the problems as texts, empty if all files are as listed."""

    def is_whole(self, listed: Sequence[StoredFile], entries: dict[str, StoreEntry], below: str) -> bool:
        """Return whether `entries` (from `folders`) have all these files; for a folder always True."""


def lack_of_room(store: Store, size: int) -> str:
    """Return a text if `size` more bytes do not fit; empty if they fit or the free room is unknown."""
    free = store.free_bytes()
    if free is None or size <= free:
        return ""
    return f"{store} needs {size / 1e6:,.0f} MB more, and has {free / 1e6:,.0f} MB free"


def refuse_foreign(store: Store, marker_name: str, identity: str) -> bool:
    """Return whether a store has our marker; raise DatasetError if it is not ours or has another marker.

    A folder that others may write to is not ours.
    """
    cure = "name an empty or new folder or bucket, by another root (storage.root=…, storage.prefix=…)"
    if fault := store.distrust():
        raise DatasetError(fault, cure)
    try:
        content = os.fsdecode(store.read(marker_name, _MARKER_BYTES)) or "an empty marker"
    except FileNotFoundError:
        if not (other_files := [name for name in store.names() if not name.startswith(_OWN_PREFIXES)]):
            return False
        content = f"files that are not ours, such as {', '.join(other_files[:3])}"
    except files.OddFileError:
        content = "something else"
    if content not in (identity, f"{identity}\n"):
        raise DatasetError(f"{store} holds {visible(content[:_SHOWN_CHARACTERS])}, not {visible(identity)}", cure)
    return True


def mark_as_ours(store: Store, marker_name: str, identity: str) -> None:
    """Mark a store as ours if it has no marker yet; errors are those of `refuse_foreign`."""
    if not refuse_foreign(store, marker_name, identity):
        store.put(marker_name, os.fsencode(identity))


JOURNAL_PREFIX = ".tfio-journal-"
_INTERVAL_S = 5.0  # seconds of work that a power cut may cost; a sync of a slow disk takes about one second
_JOURNAL_PART_LONGEST = 16 << 20


class _Part(TypedDict):
    origin: str
    put: list[tuple[int, int, str | None, str | None]]


class Journal:
    """The journal of durable items, by number; `origin` describes the source of their bytes."""

    def __init__(self, store: Store, origin: Mapping[str, object]) -> None:
        self._store, self._origin = store, json.dumps(origin, sort_keys=True)
        self._unwritten: dict[int, PutResult] = {}
        self._flushed_at = time.monotonic()

    def read(self, existing: Mapping[str, StoreEntry], names: Sequence[str]) -> dict[int, PutResult]:
        """Return the journaled items that are `existing` under their `names` with equal size and ETag, by number.

        A part of the journal that is damaged, or has another origin, counts as empty.
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
        """Add items that were put; every 5 seconds all new items are made durable and written to the journal."""
        self._unwritten.update(put)
        if time.monotonic() - self._flushed_at > _INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Make the added items durable, then write them to the journal."""
        if self._unwritten:
            self._store.sync()
            part = {"origin": self._origin, "put": [[number, *put] for number, put in self._unwritten.items()]}
            self._store.put(f"{JOURNAL_PREFIX}{secrets.token_hex(8)}", json.dumps(part).encode())
        self._unwritten.clear()
        self._flushed_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Flush, also after an error: if the storage is full, the items that fitted must not be lost."""
        with suppress(OSError) if kind else nullcontext():
            self.flush()
