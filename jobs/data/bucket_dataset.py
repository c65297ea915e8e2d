"""Datasets in a bucket: made there as in a folder, whole or not at all; a user's own is listed and never written to.

An object appears whole: a put, or a multipart upload, that is cut off leaves none. What was put is entered in a journal
of small objects every few seconds, with size, ETag and SHA-256; a make that resumes keeps what has that size and ETag
in the store's listing. ``manifest.json`` is put last: it alone makes the dataset exist.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from jobs.data import make, manifest, specs
from jobs.data.make import Progress
from jobs.data.manifest import Manifest
from jobs.data.pool import PoolBrokenError, fill, make_files
from jobs.data.specs import Spec
from jobs.errors import DatasetError
from jobs.objects.client import PART_BYTES, Client, DataError, Stored
from jobs.system import files, untrusted
from jobs.terminal import visible

_JOURNAL = ".tfio-journal"
_INTERVAL_S = 5.0  # what a kill may cost
_SMALL_BYTES = 1 << 20
_MORE = "give the same command again: what is there is kept"


@dataclass(frozen=True)
class Place:
    """Where a dataset is or is to be, below the prefix of a bucket."""

    client: Client
    below: str

    @property
    def address(self) -> str:
        """How messages name it."""
        return self.client.url_of(self.below)

    def key(self, name: str) -> str:
        """Return the key, below the prefix, of a file of the dataset."""
        return f"{self.below}/{name}"

    def listed(self) -> dict[str, Stored]:
        """Return what is there, by name."""
        return {each.key.removeprefix(f"{self.below}/"): each for each in self.client.listed(self.below)}


def made(place: Place, spec: Spec, held: Path, processes: int, progress: Progress) -> Manifest:
    """Make a dataset, or complete or repair what is there of it; its manifest is kept in the folder `held`, too.

    The place ends in its `jobs.data.specs.dataset_id`; `processes` and `progress` are those of `make` there. Raises
    DatasetError where something else is there, ObjectStoreError where the store refuses or does not answer.
    """
    identity, there = place.below.rpartition("/")[2], place.listed()
    refuse_foreign(place, identity, there)
    found = _complete(place, spec, held, there)
    if found is None:
        place.client.put(place.key(make.MARKER_NAME), identity.encode())
        found = _make(place, spec, there, processes, progress)
        _verify(place, found, place.listed())
        place.client.put(place.key(manifest.MANIFEST_NAME), found.to_json().encode())
        files.write(held / manifest.MANIFEST_NAME, found.to_json())
    progress(spec.files, spec.files)
    return found


def _verify(place: Place, listed: Manifest, there: Mapping[str, Stored]) -> None:
    """Raise DatasetError where names, sizes or ETags are not those of the manifest."""
    counted = {name: each for name, each in there.items() if name.lower().endswith(manifest.SUFFIXES_OF_OURS)}
    etags = zip(listed.files, listed.objects or (), strict=False)
    changed = [file.name for file, (etag, _) in etags if file.name in counted and counted[file.name].etag != etag]
    if complaint := manifest.difference(listed, {name: each.size for name, each in counted.items()}, changed):
        raise _damaged(place, f"{place.address} {complaint}")


def _damaged(place: Place, message: str) -> DatasetError:
    return DatasetError(message, f"remove {place.address}/{manifest.MANIFEST_NAME} and {_MORE}")


def refuse_foreign(place: Place, identity: str, there: Mapping[str, Stored]) -> None:
    """Raise DatasetError where something else is there than what has `identity` in its marker."""
    marker = there.get(make.MARKER_NAME)
    if there and marker is None:
        holds = f"objects that are not ours, such as {min(there)}"
    elif marker:
        holds = _read(place, marker).decode(errors="replace") if marker.size <= _SMALL_BYTES else "something else"
    if there and holds != identity:
        raise DatasetError(f"{place.address} holds {visible(holds)}", "name another storage.prefix=…")


def _complete(place: Place, spec: Spec, held: Path, there: Mapping[str, Stored]) -> Manifest | None:
    """Return the manifest of a dataset that is there; None where it is not, or not yet."""
    stored = there.get(manifest.MANIFEST_NAME)
    if stored is None:
        return None
    if stored.size > manifest.MOST_BYTES:
        raise _damaged(place, f"{place.address}/{manifest.MANIFEST_NAME} has {stored.size} bytes")
    with files.whole(held / manifest.MANIFEST_NAME) as file:
        file.write(_read(place, stored))
    try:
        found = manifest.load(held)
    except DatasetError as error:
        raise _damaged(place, f"{place.address}/{manifest.MANIFEST_NAME} is damaged") from error
    if found.objects is None or not make.is_of(found, spec):
        raise _damaged(place, f"{place.address} has the manifest of another dataset")
    _verify(place, found, there)
    return found


def _read(place: Place, stored: Stored) -> bytes:
    return bytes(place.client.get(stored.key, stored))


def _make(place: Place, spec: Spec, there: Mapping[str, Stored], processes: int, progress: Progress) -> Manifest:
    """Upload the objects of the data set that the bucket does not have yet."""
    journal = _Journal(place, json.dumps(specs.versions(spec), sort_keys=True))
    put = {
        index: each
        for index, each in journal.read(there).items()
        if (stored := there.get(spec.name(index))) and (stored.size, stored.etag) == each[:2]
    }
    missing = [index for index in range(spec.files) if index not in put]
    sizes = spec.sizes()
    place.client.require_room(int(sum(sizes[index] for index in missing)))
    to_bucket = _ToBucket(json.dumps(place.client.storage), place.below)
    batches = make_files(to_bucket, spec, missing, processes)
    with _explained(place), closing(batches), closing(journal):
        for batch in batches:
            put |= batch
            journal.add(batch)
            progress(len(put), spec.files)
    return make.manifest_of(spec, {index: size for index, (size, _, _) in put.items()}, {i: put[i][1:] for i in put})


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    """Turn what befalls the processes that make the files into a DatasetError with a cure."""
    try:
        yield
    except PoolBrokenError as error:
        message = f"a process that made objects for {place.address} was killed, most likely for lack of memory"
        raise DatasetError(message, f"use fewer processes; {_MORE}") from error
    except OSError as error:
        message = f"cannot make what is to be put to {place.address}: {error.strerror or error}"
        raise DatasetError(message, f"see to {tempfile.gettempdir()} ($TMPDIR); {_MORE}") from error


@cache
def _client(storage: str) -> Client:
    """Return the one client of a process."""
    return Client(json.loads(storage))


@dataclass(frozen=True)
class _ToBucket:
    """Puts objects; it is sent to the processes that make them, and has no credentials in it."""

    storage: str
    below: str

    def __call__(self, spec: Spec, index: int, size: int) -> tuple[int, str | None, str]:
        """Put one; returns its size, ETag and SHA-256."""
        place = Place(_client(self.storage), self.below)
        with tempfile.NamedTemporaryFile() as file:  # with a name, by which HDF5 opens it
            size = fill(file, spec, index, size)
            file.flush()
            file.seek(0)
            digest = _digest(file)
            etag = place.client.put(place.key(spec.name(index)), Path(file.name))
        return size, etag, digest


def _digest(file: IO[bytes]) -> str:
    made = hashlib.sha256()
    while data := file.read(_SMALL_BYTES):
        made.update(data)
    return made.hexdigest()


class _Journal:
    """What has been put: objects of lists of index, size, ETag and SHA-256, each with what the bytes follow from."""

    def __init__(self, place: Place, origin: str) -> None:
        self._place, self._origin = place, origin
        self._waiting: dict[int, tuple[int, str | None, str]] = {}
        self._put_at = time.monotonic()

    def read(self, there: Mapping[str, Stored]) -> dict[int, tuple[int, str | None, str]]:
        """Return what was entered; a part that is damaged, or of another origin, counts as empty."""
        found: dict[int, tuple[int, str | None, str]] = {}
        for name, stored in there.items():
            if name.startswith(f"{_JOURNAL}/") and stored.size <= PART_BYTES:
                with suppress(ValueError, TypeError, KeyError, DataError):
                    said = untrusted.json_value(_read(self._place, stored))
                    if said["origin"] == self._origin:
                        found |= {int(index): (int(size), etag, str(sha)) for index, size, etag, sha in said["put"]}
        return found

    def add(self, put: Mapping[int, tuple[int, str | None, str]]) -> None:
        """Note what has been put; every few seconds it is entered."""
        self._waiting.update(put)
        if time.monotonic() - self._put_at > _INTERVAL_S:
            self.close()

    def close(self) -> None:
        """Enter what was noted."""
        if self._waiting:
            lines = [[index, *facts] for index, facts in self._waiting.items()]
            text = json.dumps({"origin": self._origin, "put": lines})
            self._place.client.put(self._place.key(f"{_JOURNAL}/{secrets.token_hex(8)}"), text.encode())
        self._waiting.clear()
        self._put_at = time.monotonic()
