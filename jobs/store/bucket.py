"""Store files as objects below a prefix of a bucket.

`Bucket.copy_in` divides a list of files into objects of at most `PIECE_BYTES`. The objects are named ``000000``,
``000001`` and so on, in the order of the list. No object contains parts of two files. One request stores one object,
completely or not at all (`jobs.objects.client.Client.put`). After a kill, a second call of `Bucket.copy_in` stores only
the objects that are missing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from jobs.errors import DamageError
from jobs.model.settings import Node
from jobs.objects.address import storage_of
from jobs.objects.client import ROOM_CURE, Client, DataError, MissingError, StoredObject
from jobs.store.store import PutResult, StoredFile, StoreEntry
from jobs.store.transfer import BandwidthLimit, TransferOptions
from jobs.system import files

_OWN_NAME = re.compile(r"[a-z]+/\d{6,}|[a-z]+\.json")  # names of this program's objects below a top name
PIECE_BYTES = 16 << 20  # a change needs a new schema, because stored snapshots have objects of this size
RETRIES = 2  # retries of a request; a caller repeats a failed operation itself, with longer pauses


class _Piece(NamedTuple):
    """An object that contains a piece of a file."""

    name: str  # of the object
    file: StoredFile
    span: range  # bytes of the file that the object contains


class Bucket:
    """A store of objects below a prefix of a bucket, with the interface `jobs.store.store.Store`.

    `address` is the address of the bucket for messages. The attribute `disk` is the disk of the servers (the setting
    ``device``), or None if this machine has no such disk.
    """

    incomplete_s: ClassVar[float] = 86400.0  # one day, because this machine cannot see writers on other machines
    more_room: ClassVar[str] = ROOM_CURE

    def __init__(self, storage: Node, address: str) -> None:
        self._storage, self._address = storage, address
        self.disk = Path(device) if (device := storage.get("device")) and Path(device).exists() else None
        self._client: Client | None = None

    @classmethod
    def at(cls, address: str, retries: int = RETRIES) -> Bucket:
        """Return the bucket at an address (`jobs.objects.address`); raise FolderError if the address is invalid."""
        return cls({"retries": retries, **storage_of(address)}, address)

    def __getstate__(self) -> tuple[Node, str]:
        """Return the state that is pickled for another process; the state has no credentials."""
        return self._storage, self._address

    def __setstate__(self, state: tuple[Node, str]) -> None:
        """Restore the state in another process."""
        self.__init__(*state)  # type: ignore[misc]

    def __str__(self) -> str:
        """Return the address of the bucket."""
        return self._address

    def pids(self) -> list[int]:
        """Return the process ids of the store's servers on this machine."""
        from jobs.objects import servers  # noqa: PLC0415 - the import of psutil is slow

        return [process.pid for process in servers.processes_of(self._storage["endpoint"])]

    @property
    def client(self) -> Client:
        """Return a client without a fault; after a fault, make a new client."""
        if self._client is None or self._client.fault:
            self._client = Client(self._storage)
        return self._client

    def reason_to_distrust(self) -> str:
        """Return "": this program trusts the owner of the bucket, who decides which users may write to the bucket."""
        return ""

    def names(self) -> list[str]:
        """Return the sorted parts of all object names before the first slash."""
        return sorted({name.partition("/")[0] for name in self.entries()})

    def folders(self, accepts: Callable[[str], bool], file_names: Sequence[str]) -> dict[str, dict[str, StoreEntry]]:  # noqa: ARG002 - only a folder uses it
        """Return this program's objects below each top name that `accepts` allows, by top name and name."""
        by_top: dict[str, dict[str, StoreEntry]] = defaultdict(dict)
        for name, entry in self.entries().items():
            top, _, key = name.partition("/")
            if accepts(top) and _OWN_NAME.fullmatch(key):
                by_top[top][key] = entry
        return by_top

    def entries(self, below: str = "") -> dict[str, StoreEntry]:
        """Return all objects in the store, or only the objects below the name `below`, by name."""
        return {
            stored.key: StoreEntry(stored.size, stored.etag, stored.modified)
            for stored in self.client.list_objects(below)
        }

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of an object of at most `most_bytes` bytes."""
        try:
            return bytes(self.client.get(name, most=most_bytes))
        except MissingError as error:
            raise FileNotFoundError(errno.ENOENT, error.message, name) from None
        except DataError as error:
            raise files.OddFileError(error.message, Path(name)) from None

    def put(self, name: str, data: bytes) -> None:
        """Store bytes as an object."""
        self.client.put(name, data)

    def write(self, name: str, fill: Callable[[IO[bytes]], None]) -> PutResult:
        """Let `fill` write a temporary file on this machine, and store the file as an object."""
        with tempfile.NamedTemporaryFile() as file:  # HDF5 needs a file that has a name
            fill(file)
            size = file.seek(0, os.SEEK_END)
            file.flush()
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            return PutResult(size, self.client.put(name, Path(file.name)), sha256)

    def sync(self) -> None:
        """Do nothing, because an object is durable as soon as its put request has ended."""

    def delete(self, *names: str) -> None:
        """Delete objects; missing objects are ignored."""
        self.client.delete(names)

    def clear(self, below: str) -> None:
        """Delete this program's objects below a top name."""
        self.client.delete(
            [name for name in self.entries(below) if _OWN_NAME.fullmatch(name.removeprefix(f"{below}/"))]
        )

    def free_bytes(self) -> int | None:
        """Return the number of bytes that the quota of the bucket still allows, or None if the quota is unknown."""
        room = self.client.bucket_space()
        return room.most_bytes - room.used_bytes if room and room.most_bytes is not None else None

    def copy_in(self, below: str, source: Path, listed: Sequence[StoredFile], how: TransferOptions) -> None:
        """Store the `listed` files as objects below `below`, except objects that exist with the right size.

        The content of existing objects is not checked here: `verify_files` checks the content.
        """
        cap, client, entries = BandwidthLimit(how.mb_per_s), self.client, self.entries(below)

        def put(piece: _Piece) -> None:
            with os.fdopen(files.open_file(source / piece.file.name), "rb") as file:
                file.seek(piece.span.start)
                data = file.read(len(piece.span))
            cap.wait_for(len(data))
            client.put(f"{below}/{piece.name}", data)

        missing = [piece for piece in _pieces(listed) if not _is_in(entries, f"{below}/{piece.name}", piece)]
        with ThreadPoolExecutor(how.streams) as pool:
            list(pool.map(put, missing))

    def verify_files(self, below: str, listed: Sequence[StoredFile], how: TransferOptions) -> list[str]:
        """Read the objects of the `listed` files, and return a text for each file that is damaged or missing."""
        with ThreadPoolExecutor(how.streams) as pool:
            faults = pool.map(lambda file_and_pieces: self._find_fault(below, *file_and_pieces), _by_file(listed))
            return [fault for fault in faults if fault]

    def has_all_files(self, listed: Sequence[StoredFile], entries: dict[str, StoreEntry], below: str) -> bool:
        """Return whether all objects of the `listed` files exist with the right sizes."""
        return all(_is_in(entries, f"{below}/{piece.name}", piece) for piece in _pieces(listed))

    def copy_out(self, below: str, listed: Sequence[StoredFile], folder: Path) -> None:
        """Copy the `listed` files from the bucket to a folder, each file completely or not at all.

        Raises DamageError if a file differs from `listed`.
        """
        for file, pieces in _by_file(listed):
            path = folder / file.name
            files.make_folder(path.parent, exist_ok=True, parents=True)
            with files.write_whole(path, durable=False) as stream:
                if fault := self._find_fault(below, file, pieces, stream.write):
                    raise DamageError(fault, "an older snapshot may be good")

    def _find_fault(
        self, below: str, file: StoredFile, pieces: Sequence[_Piece], write: Callable[[Any], object] | None = None
    ) -> str:
        """Read all pieces of a file, and return a text about its damage, or "" for a good file."""
        digest = hashlib.sha256()
        try:
            for piece in pieces:
                key = f"{below}/{piece.name}"
                data = self.client.get(key, StoredObject(key, len(piece.span)))
                digest.update(data)
                if write:
                    write(data)
        except DataError as error:
            return f"{file.name}: {error.message}"
        return "" if digest.hexdigest() == file.sha256 else f"{file.name} has other bytes: its SHA-256 differs"


def _pieces(listed: Sequence[StoredFile]) -> Iterator[_Piece]:
    starts = ((file, start) for file in listed for start in range(0, file.size, PIECE_BYTES))
    for number, (file, start) in enumerate(starts):
        yield _Piece(f"{number:06d}", file, range(start, min(start + PIECE_BYTES, file.size)))


def _by_file(listed: Sequence[StoredFile]) -> list[tuple[StoredFile, list[_Piece]]]:
    pieces_of = {id(file): (file, list[_Piece]()) for file in listed}
    for piece in _pieces(listed):
        pieces_of[id(piece.file)][1].append(piece)
    return [*pieces_of.values()]


def _is_in(entries: dict[str, StoreEntry], name: str, piece: _Piece) -> bool:
    return name in entries and entries[name].size == len(piece.span)
