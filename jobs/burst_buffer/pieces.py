"""How a snapshot lies in a bucket: its files cut into objects, each put in one request, and a manifest.

``<name>/000000`` and so on, in the order of the manifest; no object has parts of two files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from jobs.burst_buffer import snapshots
from jobs.burst_buffer.snapshots import Manifest, StoredFile
from jobs.errors import DamageError
from jobs.objects.client import PART_BYTES, Client, DataError, Stored
from jobs.system import files, transfer, untrusted
from jobs.system.transfer import How

PART = "part_bytes"
"""Among the facts of a manifest: the bytes of each of its objects, but the last of a file."""
_MOST_BYTES = PART_BYTES  # of an object that is read into memory


class Piece(NamedTuple):
    """One object of a snapshot: its name there, the file it is of, and which bytes of it."""

    part: str
    file: str
    span: range

    def is_in(self, there: Mapping[str, Stored]) -> bool:
        """Tell whether it is among the objects of its snapshot, with its size."""
        return self.part in there and there[self.part].size == len(self.span)


def of(manifest: Manifest) -> Iterator[Piece]:
    """Yield the objects of a snapshot in their order."""
    most = manifest.facts[PART]
    spans = ((file, at) for file in manifest.files for at in range(0, file.size, most))
    for number, (file, at) in enumerate(spans):
        yield Piece(f"{number:06d}", file.name, range(at, min(at + most, file.size)))


def by_file(manifest: Manifest) -> list[tuple[StoredFile, list[Piece]]]:
    """Return the files of a snapshot, each with its objects."""
    found: dict[str, list[Piece]] = {file.name: [] for file in manifest.files}
    for piece in of(manifest):
        found[piece.file].append(piece)
    return [(file, found[file.name]) for file in manifest.files]


def are_whole(manifest: Manifest, there: Mapping[str, Stored]) -> bool:
    """Tell whether all objects of a snapshot are there."""
    return all(piece.is_in(there) for piece in of(manifest))


def told(manifest: Manifest) -> bytes:
    """Return the object of a manifest; raises OSError for one that nobody would read."""
    if len(data := json.dumps(snapshots.told(manifest)).encode()) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"a manifest of {len(data)} bytes is more than {_MOST_BYTES}", manifest.name)
    return data


def manifest(client: Client, name: str, stored: Stored) -> Manifest | None:
    """Read a manifest; None where none is good."""
    if stored.size <= _MOST_BYTES:
        with suppress(DamageError, DataError):  # DataError: it goes, or is another one by now
            data = bytes(client.get(stored.key, stored))
            found = snapshots.parsed(lambda: untrusted.json_value(data), name, stored.key)
            most = found.facts.get(PART)
            return found if isinstance(most, int) and 0 < most <= _MOST_BYTES else None
    return None


def put(client: Client, source: Path, manifest: Manifest, there: Mapping[str, Stored], how: How) -> None:
    """Put the objects that are not there yet."""
    cap = transfer.Cap(how.mb_per_s)

    def one(piece: Piece) -> None:
        with os.fdopen(files.opened(source / piece.file), "rb") as file:
            file.seek(piece.span.start)
            data = file.read(len(piece.span))
        cap.take(len(data))
        client.put(f"{manifest.name}/{piece.part}", data)

    missing = [piece for piece in of(manifest) if not piece.is_in(there)]
    with suppress(FileNotFoundError), ThreadPoolExecutor(how.streams) as pool:  # the checksums tell which one
        list(pool.map(one, missing))


def fault(
    client: Client, name: str, file: StoredFile, parts: Sequence[Piece], write: Callable[[Any], object] | None = None
) -> str:
    """Return what is wrong with a file in the bucket, having read all of it; empty for a good one."""
    digest = hashlib.sha256()
    try:
        for piece in parts:
            key = f"{name}/{piece.part}"
            data = client.get(key, Stored(key, len(piece.span)))
            digest.update(data)
            if write:
                write(data)
    except DataError as error:
        return f"{file.name}: {error.message}"
    return "" if digest.hexdigest() == file.sha256 else f"{file.name} has other bytes: its SHA-256 differs"
