"""Check or make the data of cells in an object store: a made dataset, the user's own objects, a baseline's object."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import EnvironmentFaultError
from campaign.storage import baseline_files
from campaign.storage.locks import lock_path
from jobs.benchmarks import registry
from jobs.benchmarks.engines import datafile
from jobs.data import make, manifest, specs
from jobs.errors import DatasetError, JobError
from jobs.objects.address import host_and_port
from jobs.objects.client import Client
from jobs.store.bucket import Bucket
from jobs.store.store import error_if_too_large, mark_as_ours, refuse_foreign
from jobs.system import files

if TYPE_CHECKING:
    from campaign.cells.cell import Cell
    from campaign.cells.folder import CampaignFolder
    from campaign.console import Progress
    from jobs.model.record import Access, Data
    from jobs.model.settings import Node, Settings
    from jobs.objects.client import StoredObject

_FOLDER = "datasets"
IMPATIENT: Node = {"timeout_s": 5.0, "retries": 0}  # for requests whose failure does not stop the campaign
_LOCKS = "~/.cache/tfio-campaign"
_NO_NAMES = {"", ".", ".."}  # parts of a key that no file can have as a name


def prepare_objects(cell: Cell, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    """List or make the objects that a cell reads, and return their description.

    The manifest of the objects is written to the campaign folder. `processes` is the number of processes that make
    data.
    """
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
    """Return the lock file of a bucket; it is in the home folder, so that all campaigns of this user share the lock.

    If the home folder is not writable, the lock file is in the campaign folder. With ``storage.exclusive=lock``, raise
    an error instead.
    """
    name = hashlib.sha256(f"{host_and_port(storage['endpoint'])} {storage['bucket']}".encode()).hexdigest()[:10]
    try:
        folder_of_locks = Path(_LOCKS, f"s3-{name}").expanduser().resolve()  # ~/.cache may be a link to a larger disk
        files.make_folder(folder_of_locks, exist_ok=True, parents=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        if access.get("exclusive") == "lock":
            fault = f"storage.exclusive=lock: cannot make the lock file of the bucket in {_LOCKS}: {error}"
            raise EnvironmentFaultError(
                fault, "make that folder writable, or measure without a lock: storage.exclusive=none"
            ) from error
        folder_of_locks = folder.root
    return lock_path(folder_of_locks, folder_of_locks)


def missing_objects(storage: Node, dataset: Node) -> tuple[make.MissingFiles, str]:
    """Return the missing files of a dataset in a bucket, and the address of the dataset.

    If the bucket does not answer, all files count as missing.
    """
    spec, below = _made_below(dataset)
    with suppress(JobError):
        store = _store(Client({**storage, **IMPATIENT}), below)
        return make.missing_files(store, spec, dataset["name"]), str(store)
    return make.missing_files_of_spec(spec), f"{storage['bucket']}/{below}, unless the data set exists already"


def _store(client: Client, below: str) -> Bucket:
    """Return the part of a bucket below a prefix as a store."""
    return Bucket({**client.storage, "prefix": f"{client.prefix}{below}"}, client.url_of(below))


def _made_below(dataset: Node) -> tuple[specs.Spec, str]:
    spec = specs.dataset_spec(dataset)
    return spec, f"{_FOLDER}/{specs.dataset_id(dataset['name'], spec)}"


def _images(client: Client, settings: Settings, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    dataset, any_kind = settings["dataset"], registry.benchmark_of(settings).any_kind
    spec, below = (None, dataset["path"].strip("/")) if "path" in dataset else _made_below(dataset)
    manifest_folder = folder.manifest(f"{client.storage['endpoint']} {client.url_of(below)} {any_kind}")
    if spec is None:
        kind = {"any_kind": True} if any_kind else {"hdf5": hdf5} if (hdf5 := dataset.get("hdf5")) else {}
        manifest_of_objects = _listing(client.list_objects(below), below, client.url_of(below), kind)
    else:
        title = f"making dataset {dataset['name']}"

        def report(done: int, total: int) -> None:
            progress(title, done, total, "objects")

        manifest_of_objects = make.make_dataset(
            _store(client, below), spec, name=dataset["name"], processes=processes, progress=report
        )
    files.write_text(manifest_folder / manifest.MANIFEST_NAME, manifest_of_objects.to_json())
    return {
        "path": client.url_of(below),
        "manifest": str(manifest_folder),
        "checksum": manifest_of_objects.checksum,
        "files": len(manifest_of_objects.files),
        "bytes": manifest_of_objects.total_bytes,
        **({"left_out": dict(left_out)} if (left_out := manifest_of_objects.left_out) else {}),
    }


def _baseline(client: Client, settings: Settings, listed: Data | None, progress: Progress) -> Data:
    """Prepare the object of a baseline in a bucket, and return its name, size and block size.

    A missing object to read is made of random bytes, and remains in the bucket. The objects of baselines have a prefix
    of their own with a marker object. A prefix with other objects is refused, so no object of a user is replaced.
    """
    benchmark = settings["benchmark"]
    transfer_mib = benchmark.get("transfer_mib", datafile.TRANSFER_MIB)
    size = datafile.whole_bytes(benchmark["file_mb"], transfer_mib)
    name = f"read-{size}.bin"

    store, key = _store(client, datafile.FOLDER), f"{datafile.FOLDER}/{name}"
    entries = store.entries()
    refuse_foreign(store, make.MARKER_NAME, datafile.FOLDER)
    writes = benchmark["access"] == "write"
    missing = not writes and (name not in entries or entries[name].size != size)
    if (writes or missing) and (lack := error_if_too_large(store, size)):
        raise DatasetError(lack, store.more_room)
    mark_as_ours(store, make.MARKER_NAME, datafile.FOLDER)
    if missing:
        progress(f"making {client.url_of(key)}", 0, size >> 20, "MiB")
        client.put(key, os.urandom(size))
    block = int(-(-listed["bytes"] // listed["files"])) if listed else transfer_mib << 20
    checksum: Data = {"checksum": listed["checksum"]} if listed else {}
    path = listed["path"] if listed else client.url_of(datafile.FOLDER)
    data: Data = {
        "path": path,
        "folder": datafile.FOLDER,
        "file": None if writes else name,
        "bytes": size,
        "block_bytes": block,
    }
    return {**data, **checksum}


def _listing(listed: Iterable[StoredObject], below: str, url: str, kind: dict[str, Any]) -> manifest.Manifest:
    """Return the manifest of a user's own objects without empty objects, which web consoles make for folders.

    `kind` are the parameters of the manifest: ``any_kind``, or ``hdf5`` with the name of the data set, or empty for
    images.
    """
    suffixes = manifest.file_suffixes(kind)
    by_name = {stored.key.removeprefix(f"{below}/"): stored for stored in listed if stored.size}
    names = [name for name in by_name if name.lower().endswith(suffixes) and _NO_NAMES.isdisjoint(name.split("/"))]
    if not names:
        raise DatasetError(
            f"no objects in {url} that end in {', '.join(suffixes)}", "correct dataset.path or storage.prefix"
        )
    sizes, etags = ({name: getattr(by_name[name], key) for name in names} for key in ("size", "etag"))
    left_out = manifest.count_kinds(by_name.keys() - names)
    return replace(manifest.manifest_of_own_files(kind, sizes, etags), left_out=left_out)
