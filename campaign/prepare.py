"""Make sure that what the cells read is there, before anything is started."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign import limits, record
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.worker import lock_path
from jobs import dataset, manifest
from jobs.durable import write_whole
from jobs.images import ImageSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from campaign.folder import CampaignFolder
    from campaign.plan import Entry

    Progress = Callable[[str, int, int], None]


def datasets(
    entries: Sequence[Entry], folder: CampaignFolder, progress: Progress, *, redo: bool
) -> dict[str, dict[str, Any]]:
    """Make or look through the dataset of each entry; unless `redo`, it must be what earlier runs of the cell read.

    Returns
    -------
    dict
        For each cell id what its work list says of the data: ``path``, ``manifest`` (folder that holds the manifest),
        ``lock``, ``checksum``, ``files``, ``bytes``.

    Raises
    ------
    UsageError, EnvironmentFaultError
        The dataset does not fit the cell, cannot be made, or is not what its manifest or an earlier run says.
    """
    found: dict[str, dict[str, Any]] = {}
    prepared: dict[str, dict[str, Any]] = {}
    for entry in entries:
        settings = entry.cell.settings
        key = f"{settings['dataset']} {settings['storage']}"
        if key not in prepared:
            prepared[key] = _dataset(settings, folder, progress)
        limits.enough_images(settings["iterations"], settings["batch_size"], prepared[key]["files"])
        if not redo:
            _same_as_before(entry, prepared[key], folder)
        found[entry.cell.id] = prepared[key]
    return found


def storage_root(storage: Mapping[str, Any]) -> Path:
    """Find the root folder of a storage.

    A relative root belongs to the folder that the campaign is started from and is made. An absolute one must be
    there: a device that is not mounted must not be mistaken for the disk under its mount point.
    """
    root = Path(storage["root"]).expanduser()
    try:
        if not root.is_absolute():
            root = root.absolute()
            root.mkdir(parents=True, exist_ok=True)
        if not root.is_dir():
            raise EnvironmentFaultError(
                f"storage {storage['name']}: there is no folder {root}", "mount it, or set storage.root=…"
            )
    except OSError as error:
        raise EnvironmentFaultError(
            f"storage {storage['name']}: cannot use {root}: {error.strerror}", "set storage.root=… to another folder"
        ) from error
    return root


def _dataset(settings: Mapping[str, Any], folder: CampaignFolder, progress: Progress) -> dict[str, Any]:
    root = storage_root(settings["storage"])
    wanted = settings["dataset"]
    try:
        if "path" in wanted:
            path = Path(wanted["path"])
            found, held = _scanned(path, folder)
        else:
            path, found = _made(wanted, root, progress)
            held = path
    except manifest.DatasetError as error:
        raise EnvironmentFaultError(error.message, error.hint) from error
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot prepare the dataset {wanted['name']} in {root}: {error}",
            "set storage.root=… to a folder that you may write to",
        ) from error
    return {
        "path": str(path),
        "manifest": str(held),
        "lock": str(lock_path(root, folder.root)),
        "checksum": found.checksum,
        "files": len(found.files),
        "bytes": found.total_bytes,
    }


def _made(wanted: Mapping[str, Any], root: Path, progress: Progress) -> tuple[Path, manifest.Manifest]:
    name = wanted["name"]
    spec = ImageSpec(**{key: value for key, value in wanted.items() if key != "name"})
    path = root / "datasets" / dataset.dataset_id(name, spec)
    if not (path / manifest.MANIFEST_NAME).exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = dataset.make(
            path,
            spec,
            name=name,
            processes=len(os.sched_getaffinity(0)),
            progress=lambda done, total: progress(name, done, total),
        )
    else:
        found = manifest.load(path)
    manifest.verify(path, found)
    return path, found


def _scanned(path: Path, folder: CampaignFolder) -> tuple[manifest.Manifest, Path]:
    """Scan the user's own folder; its manifest is kept with the campaign, for the folder is never written to."""
    found = manifest.scan(path)
    held = folder.manifests / hashlib.sha256(str(path).encode()).hexdigest()[:10]
    held.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(held / manifest.MANIFEST_NAME, found.to_json())
    return found, held


def _same_as_before(entry: Entry, data: Mapping[str, Any], folder: CampaignFolder) -> None:
    """Refuse to continue a cell on other data than its recorded runs read."""
    if entry.state in ("planned", "damaged"):
        return
    before = (record.read(folder.record(entry.cell.id)) or {}).get("dataset", {})
    for key in ("path", "checksum"):
        if key in before and before[key] != data[key]:
            raise UsageError(
                f"{entry.cell.id} was measured on other data ({key} was {before[key]}, is {data[key]})",
                "measure it anew with redo=true, or keep both in two folders: campaign_dir=…",
            )
