"""The interface that a folder and a bucket share: data are put under names, as a whole, and found again.

A store that is ours has a marker of ours: one of another owner is refused before anything changes. By the journal of
its durable items a killed task can resume. Errors are OSError (FileNotFoundError: the name does not exist), and for a
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
from jobs.store.transfer import How
from jobs.system import files, untrusted
from jobs.terminal import visible

_MARKER_BYTES, _SHOWN_CHARACTERS = 1 << 20, 200
_OURS = (".tfio-", "..tfio-")  # names of locks, and of a marker that was being written


class Entry(NamedTuple):
    """An entry in the list of a store: size, identity and time of one file or object."""

    size: int
    identity: object = None  # ETag of an object, or stamp of a file; it changes with the content
    modified: float = 0.0  # time of the put, in seconds since 1970 by the clock of the store


class StoredFile(NamedTuple):
    """A file that is put together with others: relative path, size in bytes, SHA-256 in hexadecimal."""

    name: str
    size: int
    sha256: str


class Put(NamedTuple):
    """The result of a put: size in bytes, and for an object ETag and SHA-256 in hexadecimal."""

    size: int
    etag: str | None = None
    sha256: str | None = None


class Store(Protocol):
    """A store: a folder (`jobs.store.folder.Folder`) or a prefix of a bucket (`jobs.store.bucket.Bucket`)."""

    incomplete_s: ClassVar[float]
    """The seconds for which incomplete files are left to a possible writer; 0 if a lock shows that there is none."""
    more_room: ClassVar[str]
    """The cure if there is no room."""

    def distrust(self) -> str:
        """Return why others may have changed the store's files; empty if only this user may write there."""

    def names(self) -> list[str]:
        """Return the sorted names of files and folders at the top."""

    def folders(self, wanted: Callable[[str], bool], shown: Sequence[str]) -> dict[str, dict[str, Entry]]:
        """Return the files in each top folder for whose name `wanted` is true, by top folder and name below it.

        A bucket returns all our objects, a folder the files named in `shown`: none if the folder is a link.
        """

    def entries(self) -> dict[str, Entry]:
        """Return all files, by name."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a file of at most `most_bytes` bytes."""

    def put(self, name: str, data: bytes) -> None:
        """Put bytes under a name, as a whole and durably; the folder of the name exists."""

    def write(self, name: str, fill: Callable[[IO[bytes]], None]) -> Put:
        """Put the file that `fill` writes, as a whole; durable only after `sync`. The folder of the name exists."""

    def sync(self) -> None:
        """Make all written files durable."""

    def delete(self, *names: str) -> None:
        """Remove files, durably; missing ones are ignored."""

    def clear(self, below: str) -> None:
        """Remove everything below a name at the top; links are not followed."""

    def free_bytes(self) -> int | None:
        """Return the number of free bytes; None if the store does not say."""

    def receive(self, below: str, source: Path, listed: Sequence[StoredFile], how: How) -> None:
        """Copy files of a folder below a name, durably; a bucket keeps the objects of an earlier attempt."""

    def problems(self, below: str, listed: Sequence[StoredFile], how: How) -> list[str]:
        """Read all files below a name and return the problems as texts; empty if all files are as listed."""

    def is_whole(self, listed: Sequence[StoredFile], there: dict[str, Entry], below: str) -> bool:
        """Return whether the entries `there` (from `folders`) can be these files; for a folder always True."""


def lack_of_room(store: Store, size: int) -> str:
    """Return a text that says `size` more bytes do not fit; empty if they fit or the store does not say."""
    free = store.free_bytes()
    if free is None or size <= free:
        return ""
    return f"{store} needs {size / 1e6:,.0f} MB more, and has {free / 1e6:,.0f} MB free"


def refuse_foreign(store: Store, marker_name: str, identity: str) -> bool:
    """Return whether a store has our marker; raise DatasetError if it is not ours, or marked for another purpose.

    A folder that others may write to is not ours.
    """
    elsewhere = "name an empty or a new place, or one with another root (storage.root=…, storage.prefix=…)"
    if fault := store.distrust():
        raise DatasetError(fault, elsewhere)
    try:
        holds = os.fsdecode(store.read(marker_name, _MARKER_BYTES)) or "an empty marker"
    except FileNotFoundError:
        if not (strangers := [name for name in store.names() if not name.startswith(_OURS)]):
            return False
        holds = f"files that are not ours, such as {', '.join(strangers[:3])}"
    except files.OddFileError:
        holds = "something else"
    if holds not in (identity, f"{identity}\n"):
        raise DatasetError(f"{store} holds {visible(holds[:_SHOWN_CHARACTERS])}, not {visible(identity)}", elsewhere)
    return True


def mark_as_ours(store: Store, marker_name: str, identity: str) -> None:
    """Mark a store as ours if it has no marker yet; errors are those of `refuse_foreign`."""
    if not refuse_foreign(store, marker_name, identity):
        store.put(marker_name, os.fsencode(identity))


JOURNAL_PREFIX = ".tfio-journal-"
_INTERVAL_S = 5.0  # what a power cut or a kill may cost; a sync of a slow disk takes about a second
_MOST_BYTES = 16 << 20


class _Part(TypedDict):
    origin: str
    put: list[tuple[int, int, str | None, str | None]]


class Journal:
    """The journal of durable items, by number; `origin` describes the source of the items' bytes."""

    def __init__(self, store: Store, origin: Mapping[str, object]) -> None:
        self._store, self._origin = store, json.dumps(origin, sort_keys=True)
        self._waiting: dict[int, Put] = {}
        self._entered_at = time.monotonic()

    def read(self, there: Mapping[str, Entry], names: Sequence[str]) -> dict[int, Put]:
        """Return the entered items that are still `there` under their `names`, with unchanged size and ETag, by number.

        A part of the journal that is damaged, or has another origin, counts as empty.
        """
        put: dict[int, Put] = {}
        for name in there:
            with suppress(OSError, ValueError):
                if name.startswith(JOURNAL_PREFIX):
                    part = reading.checked(untrusted.json_value(self._store.read(name, _MOST_BYTES)), _Part)
                    if part["origin"] == self._origin:
                        put |= {number: Put(size, etag, digest) for number, size, etag, digest in part["put"]}
        entries = {number: there.get(name) for number, name in enumerate(names) if number in put}
        return {
            number: put[number]
            for number, entry in entries.items()
            if entry and put[number].size == entry.size and put[number].etag in (None, entry.identity)
        }

    def add(self, put: Mapping[int, Put]) -> None:
        """Add items that were put; every 5 seconds all new items are made durable and written to the journal."""
        self._waiting.update(put)
        if time.monotonic() - self._entered_at > _INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Make the added items durable, then write them to the journal."""
        if self._waiting:
            self._store.sync()
            part = {"origin": self._origin, "put": [[number, *put] for number, put in self._waiting.items()]}
            self._store.put(f"{JOURNAL_PREFIX}{secrets.token_hex(8)}", json.dumps(part).encode())
        self._waiting.clear()
        self._entered_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Write the added items also after an error: a full device must not cost the items that fitted on it."""
        with suppress(OSError) if kind else nullcontext():
            self.flush()
