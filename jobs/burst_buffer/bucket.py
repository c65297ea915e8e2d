"""Snapshots of a burst buffer in a bucket: complete and verified, or not visible, whatever is killed and when.

The files of a snapshot are cut into objects of at most 16 MiB (`jobs.burst_buffer.pieces`). Each is put in one request,
whole or not at all: no multipart upload is begun, whose parts a kill would leave where S3 does not list them. They are
read back and compared with the checksums, and ``<name>/manifest.json`` is put last. A snapshot is visible while its
manifest and all of its objects are listed; its manifest is deleted first. What a kill leaves is listed, then: a drainer
puts it again under the same keys, and what is nobody's is deleted after a day.
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from jobs.burst_buffer import drain_journal, marker, pieces, snapshots
from jobs.burst_buffer.drain_journal import Committed
from jobs.burst_buffer.marker import Marker
from jobs.burst_buffer.snapshots import MANIFEST_NAME, Manifest, edge
from jobs.errors import DamageError, FolderError, ObjectStoreError
from jobs.model.settings import Node
from jobs.objects.address import storage_of
from jobs.objects.client import PART_BYTES, Client, DataError, Stored
from jobs.system import files, untrusted
from jobs.system.transfer import How
from jobs.terminal import visible

_STALE_S = 86400.0  # after which nobody is still draining what has no manifest: other drainers cannot be seen from here
RETRIES = 2  # of a request; a drainer that fails tries again by itself, with longer waits
_OLDER = "an older snapshot may be good"
_MOST_OF_MARKER = 1 << 16
# Among the facts of a manifest: when it was put, in seconds since 1970 by the clock of the drainer.
_ENDED = "drain_ended_at"
_OURS = re.compile(rf"\d{{6,}}|{re.escape(MANIFEST_NAME)}")


class Bucket:
    """The snapshots below a prefix, a slow storage of a burst buffer (`jobs.burst_buffer.slow_storage.Slow`).

    Its address is explained in `jobs.objects.address`. `disk` is what the servers store on (``device``), where that can
    be seen from here.
    """

    def __init__(self, address: str, retries: int = RETRIES) -> None:
        self._address, self._storage = address, {"retries": retries, **storage_of(address)}
        self.disk = Path(device) if (device := self._storage["device"]) and Path(device).exists() else None
        self._client: Client | None = None
        self._known: dict[Stored, Manifest] = {}  # manifests, so that each is read once

    def __str__(self) -> str:
        """Return its address."""
        return self._address

    def pids(self) -> list[int]:
        """Return the numbers of the processes that serve it on this machine."""
        from jobs.objects import servers  # noqa: PLC0415 - psutil: finding the benchmarks is to be fast

        return [each.pid for each in servers.of(self._storage["endpoint"])]

    @contextmanager
    def _asked(self) -> Iterator[Client]:
        """Give a client that has not failed; raises FolderError where the store does, as a folder would."""
        try:
            if self._client is None or self._client.fault:
                self._client = Client(self._storage)
            yield self._client
        except (ObjectStoreError, DataError) as error:
            raise FolderError(error.message, error.hint) from None

    def require_room(self, size: int) -> None:
        """Raise FolderError where so many bytes do not fit, as far as the store says."""
        with self._asked() as client:
            client.require_room(size)

    def marker(self) -> Marker | None:
        """Return the marker, None where there is nothing; raises FolderError where objects of others are."""
        with self._asked() as client:
            try:
                data = bytes(client.get(marker.MARKER_NAME, most=_MOST_OF_MARKER))
            except DataError:
                strangers = [each.key for each in client.listed() if not _snapshot_of(each.key)]
                if found := next(iter(strangers or self._visible(client, self._listed(client))), None):
                    what = f"{self} is no place of snapshots: it holds other objects, such as {visible(found)}"
                    raise FolderError(what, "name a prefix that nothing is below") from None
                return None  # what a killed drainer put late is nobody's
        return marker.parsed(lambda: untrusted.json_value(data), f"{self}: {marker.MARKER_NAME}")

    def mark(self, value: Node) -> None:
        """Put the marker."""
        with self._asked() as client:
            client.put(marker.MARKER_NAME, json.dumps(value).encode())

    def _listed(self, client: Client, below: str = "") -> dict[str, dict[str, Stored]]:
        """Return the objects of all snapshots, or of one, complete or not."""
        found: dict[str, dict[str, Stored]] = defaultdict(dict)
        for each in client.listed(below):
            if name := _snapshot_of(each.key):
                found[name][each.key.removeprefix(f"{name}/")] = each
        return found

    def _visible(self, client: Client, listed: Mapping[str, Mapping[str, Stored]]) -> dict[str, Manifest]:
        """Return the manifests of the complete ones of those that were listed."""
        found, known = {}, {}
        for name, there in listed.items():
            if stored := there.get(MANIFEST_NAME):
                manifest = self._known.get(stored) or pieces.manifest(client, name, stored)
                if manifest and pieces.are_whole(manifest, there):
                    found[name] = known[stored] = manifest
        self._known |= known
        return found

    def states(self) -> list[tuple[str, str]]:
        """Return all snapshots; ``copying`` is one that was, too."""
        with self._asked() as client:
            there = self._listed(client)
            whole = self._visible(client, there)
        return [(name, "committed" if name in whole else "copying") for name in snapshots.ordered(there)]

    def sealed(self) -> list[str]:
        """Return the complete ones."""
        with self._asked() as client:
            return snapshots.ordered(self._visible(client, self._listed(client)))

    def take(self, source: Path, manifest: Manifest, how: How) -> None:
        """Put the objects, read them back, and put the manifest; raises OSError where the bucket kept something else.

        Objects that are there with their size are not put again: the checksums tell whether they are good, and what is
        not goes. A store that failed may then get a snapshot in several attempts.
        """
        name, manifest = manifest.name, replace(manifest, facts={**manifest.facts, pieces.PART: PART_BYTES})
        key = f"{name}/{MANIFEST_NAME}"
        pieces.told(manifest)  # before anything is put
        with self._asked() as client:
            there = self._listed(client, name).get(name, {})
            if MANIFEST_NAME in there:  # invisible, until all is good
                client.delete([key])
            edge("copying")
            pieces.put(client, source, manifest, there, how)
            edge("written")
            if wrong := self._problems(client, manifest, how.streams):
                self.remove(name)
            snapshots.blame(wrong, source, manifest, how, self)
            edge("synced")
            sealed = replace(manifest, facts={**manifest.facts, _ENDED: time.time()})
            client.put(key, pieces.told(sealed))
            if self._visible(client, self._listed(client, name)).get(name) != sealed:
                client.delete([key])
                raise OSError(errno.EIO, "the manifest reads back otherwise than written", f"{self}: {name}")
            edge("copied")

    def _problems(self, client: Client, manifest: Manifest, streams: int = 1) -> list[str]:
        with ThreadPoolExecutor(streams) as pool:
            faults = pool.map(lambda each: pieces.fault(client, manifest.name, *each), pieces.by_file(manifest))
            return [fault for fault in faults if fault]

    def verify(self, name: str) -> list[str] | None:
        """Read one."""
        with self._asked() as client:
            found = self._visible(client, self._listed(client, name)).get(name)
            return self._problems(client, found) if found else None

    def restored(self, name: str, fast: Path) -> Path | None:
        """Bring one to the folder `fast`, where a damaged copy of it makes way; raises DamageError for a bad one.

        None for one that is not there, or was removed meanwhile: another job's drainer removes what newer ones replace.
        """
        with self._asked() as client:
            manifest = self._visible(client, self._listed(client, name)).get(name)
            if manifest is None:
                return None
            if (fast / name).exists():
                snapshots.set_aside(fast / name)
            try:
                snapshots.stage(fast / name, partial(_bring, client, manifest), lambda: manifest.facts)
            except DamageError:
                if name in self._visible(client, self._listed(client, name)):
                    raise
                return None
        return fast / name

    def committed(self, name: str) -> Committed | None:
        """Return when its manifest was put, by the clock of the drainer."""
        with suppress(FolderError), self._asked() as client:
            found = self._visible(client, self._listed(client, name)).get(name)
            return drain_journal.committed(found, found.facts.get(_ENDED)) if found else None
        return None

    def remove(self, name: str) -> None:
        """Take one away, its manifest first."""
        with self._asked() as client:
            self._delete(client, name, self._listed(client, name).get(name, {}))

    def _delete(self, client: Client, name: str, there: Mapping[str, Stored]) -> None:
        self._known = {stored: manifest for stored, manifest in self._known.items() if manifest.name != name}
        for parts in ([MANIFEST_NAME], [part for part in there if part != MANIFEST_NAME]):
            client.delete([f"{name}/{part}" for part in parts if part in there])
            edge("removing" if parts == [MANIFEST_NAME] else "removed")

    def recover(self) -> None:
        """Delete what has been incomplete for a day: another drainer may be putting what is younger."""
        with self._asked() as client:
            listed = self._listed(client)
            for name in listed.keys() - self._visible(client, listed):
                there = listed[name]
                if time.time() - max(each.modified for each in there.values()) > _STALE_S:
                    self._delete(client, name, there)

    def clear(self) -> None:
        """Delete all snapshots and the marker; raises FolderError, and deletes nothing, where objects of others are."""
        if self.marker():
            with self._asked() as client:
                for name, there in self._listed(client).items():
                    self._delete(client, name, there)
                client.delete([marker.MARKER_NAME])


def _snapshot_of(key: str) -> str:
    """Return the name of the snapshot that an object is of; empty for other objects."""
    name, _, part = key.partition("/")
    return name if _OURS.fullmatch(part) and snapshots.ordered([name]) else ""


def _bring(client: Client, manifest: Manifest, folder: Path) -> None:
    for file, parts in pieces.by_file(manifest):
        path = folder / file.name
        files.make_folder(path.parent, exist_ok=True, parents=True)
        with files.whole(path, durable=False) as out:
            if fault := pieces.fault(client, manifest.name, file, parts, out.write):
                raise DamageError(fault, _OLDER)
