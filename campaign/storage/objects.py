"""What cells read from an object store: a made dataset, the user's own objects, or a baseline's one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from campaign.errors import EnvironmentFaultError
from campaign.storage import baseline_files
from campaign.storage.locks import lock_path
from jobs.benchmarks import registry
from jobs.benchmarks.engines import datafile
from jobs.data import bucket_dataset, make, manifest, specs
from jobs.errors import DatasetError, JobError
from jobs.objects.address import host_and_port
from jobs.objects.client import PART_BYTES, Client
from jobs.system import files

if TYPE_CHECKING:
    from campaign.cells.cell import Cell
    from campaign.cells.folder import CampaignFolder
    from campaign.console import Progress
    from jobs.model.record import Access, Data
    from jobs.model.settings import Node, Settings
    from jobs.objects.client import Stored

_FOLDER = "datasets"
IMPATIENT: Node = {"timeout_s": 5.0, "retries": 0}  # of who asks a bucket for what may lie there
_LOCKS = "~/.cache/tfio-campaign"
_ODD = {"", ".", ".."}


def prepared(cell: Cell, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    """List what a cell reads, or make it by `processes`; the list is kept with the campaign."""
    settings, disk = cell.settings, cell.access.get("device")
    lock: Data = {"lock": str(bucket_lock(settings["storage"], cell.access, folder))}
    try:
        client = Client(settings["storage"])
        listed = _images(client, settings, folder, progress, processes) if "dataset" in settings else None
        data = _baseline(client, settings, listed, progress) if baseline_files.has_file(settings) else listed
    except JobError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error
    return {**(data or {}), **lock, **({"disk": disk} if disk else {})}


def bucket_lock(storage: Node, access: Access, folder: CampaignFolder) -> Path:
    """Return the lock of a bucket: one for all campaigns of this user, where the home folder is seen.

    Where none can be made there, one in the campaign folder if ``storage.exclusive`` asks for none.
    """
    name = hashlib.sha256(f"{host_and_port(storage['endpoint'])} {storage['bucket']}".encode()).hexdigest()[:10]
    try:
        held = Path(_LOCKS, f"s3-{name}").expanduser().resolve()  # ~/.cache may be a link to a larger disk
        files.make_folder(held, exist_ok=True, parents=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        if access.get("exclusive") == "lock":
            why = f"storage.exclusive=lock: the bucket's lock cannot be in {_LOCKS}: {error}"
            raise EnvironmentFaultError(
                why, "see to that folder, or measure without a lock: storage.exclusive=none"
            ) from error
        held = folder.root
    return lock_path(held, held)


def lacking(storage: Node, wanted: Node) -> tuple[make.Lacking, str]:
    """Return what is to be made of a dataset in a bucket, and its address; of one that does not answer, all of it."""
    spec, below = _made_below(wanted)
    with suppress(JobError):
        place = bucket_dataset.Place(Client({**storage, **IMPATIENT}), below)
        there = place.listed()
        kept = () if manifest.MANIFEST_NAME not in there else range(spec.files)
        return make.lacking_of(spec, kept), place.address
    return make.lacking_of(spec), f"{storage['bucket']}/{below}, unless it is there"


def _made_below(wanted: Node) -> tuple[specs.Spec, str]:
    spec = specs.spec_of({key: wanted[key] for key in wanted.keys() - {"name"}})
    return spec, f"{_FOLDER}/{specs.dataset_id(wanted['name'], spec)}"


def _images(client: Client, settings: Settings, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    wanted, any_kind = settings["dataset"], registry.of(settings).any_kind
    spec, below = (None, wanted["path"].strip("/")) if "path" in wanted else _made_below(wanted)
    held = folder.manifest(f"{client.storage['endpoint']} {client.url_of(below)} {any_kind}")
    if spec is None:
        kind = {"any_kind": True} if any_kind else {"hdf5": hdf5} if (hdf5 := wanted.get("hdf5")) else {}
        found = _listing(client.listed(below), below, client.url_of(below), kind)
        files.write(held / manifest.MANIFEST_NAME, found.to_json())
    else:
        what = f"making dataset {wanted['name']}"

        def show(done: int, total: int) -> None:
            progress(what, done, total, "objects")

        found = bucket_dataset.made(bucket_dataset.Place(client, below), spec, held, processes, show)
    return {
        "path": client.url_of(below),
        "manifest": str(held),
        "checksum": found.checksum,
        "files": len(found.files),
        "bytes": found.total_bytes,
    }


def _baseline(client: Client, settings: Settings, listed: Data | None, progress: Progress) -> Data:
    """Make the object that is read, of random bytes, if it is not there; it stays, as a baseline's file does.

    It is in a folder that is empty or has our marker, as are those that are written: no object of the user's is
    replaced.
    """
    benchmark = settings["benchmark"]
    transfer_mib = benchmark.get("transfer_mib", datafile.TRANSFER_MIB)
    size = datafile.whole_bytes(benchmark["file_mb"], transfer_mib)
    name = f"read-{size}.bin"

    def made() -> Iterator[bytes]:
        for done in range(0, size, PART_BYTES):
            progress(f"making {client.url_of(key)}", done >> 20, size >> 20, "MiB")
            yield os.urandom(min(PART_BYTES, size - done))

    place = bucket_dataset.Place(client, datafile.FOLDER)
    key, there = place.key(name), place.listed()
    bucket_dataset.refuse_foreign(place, datafile.FOLDER, there)
    writes = benchmark["access"] == "write"
    missing = not writes and (name not in there or there[name].size != size)
    if writes or missing:
        client.require_room(size)
    if make.MARKER_NAME not in there:
        client.put(place.key(make.MARKER_NAME), datafile.FOLDER.encode())
    if missing:
        client.put(key, made)
    block = int(-(-listed["bytes"] // listed["files"])) if listed else transfer_mib << 20
    checksum: Data = {"checksum": listed["checksum"]} if listed else {}
    path = listed["path"] if listed else client.url_of(datafile.FOLDER)
    found: Data = {
        "path": path,
        "folder": datafile.FOLDER,
        "file": None if writes else name,
        "bytes": size,
        "block_bytes": block,
    }
    return {**found, **checksum}


def _listing(listed: Iterable[Stored], below: str, url: str, kind: dict[str, Any]) -> manifest.Manifest:
    """Make the manifest of a user's own objects, as `manifest.scan` does of files; consoles mark folders by 0 bytes.

    `kind` is its parameters: ``any_kind``, or ``hdf5``, the data set; of images none.
    """
    suffixes = manifest.suffixes(kind)
    named = {each.key.removeprefix(f"{below}/"): each for each in listed if each.size}
    names = sorted(name for name in named if name.lower().endswith(suffixes) and _ODD.isdisjoint(name.split("/")))
    if not names:
        raise DatasetError(f"no objects in {url} that end in {', '.join(suffixes)}", "see dataset.path, storage.prefix")
    classes = tuple(sorted({str(PurePosixPath(name).parent) for name in names}))
    number = {name: place for place, name in enumerate(classes)}
    return manifest.Manifest(
        kind="folder",
        parameters=kind,
        generator=None,
        files=tuple(
            manifest.ImageFile(name, named[name].size, number[str(PurePosixPath(name).parent)]) for name in names
        ),
        classes=classes,
        objects=tuple((named[name].etag, None) for name in names),
    )
