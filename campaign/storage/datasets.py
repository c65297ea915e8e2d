"""The data that cells read: checked or made before anything is started."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from campaign.cells import record
from campaign.cells.cell_plan import Entry
from campaign.cells.folder import CampaignFolder
from campaign.config.rules_of_data_and_storage import check_enough_data
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage import baseline_files, checkpoint_targets, objects, provenance
from campaign.storage.locks import lock_path
from campaign.storage.roots import device_number, is_ours, own_folder, own_path, require_seen, storage_root
from jobs.benchmarks import command, registry
from jobs.data import make, manifest, specs, staged_copies
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.model.record import Data
from jobs.model.settings import Node, Settings, flat
from jobs.system import files, lustre

FOLDER = "datasets"
"""The folder of made datasets below a storage's root."""


def datasets(
    entries: Sequence[Entry], folder: CampaignFolder, progress: Progress, *, redo: bool, processes: int | None = None
) -> dict[str, Data]:
    """Return the data of each entry by cell id, made or checked; without `redo` it must be what earlier runs read.

    Call `require_possible` before. Begun cells and users' own files come first, data that must be made last.
    `processes`: number of processes that make it; None: one per processor.
    """
    by_cell: dict[str, Data] = {}
    prepared: dict[str, Data] = {}
    for entry in sorted(entries, key=lambda each: (each.state == "planned", *_makes(each.cell.settings))):
        settings, key = entry.cell.settings, data_key(entry.cell.settings)
        if key not in prepared:
            cores = processes or len(os.sched_getaffinity(0))
            prepared[key] = (
                objects.prepared(entry.cell, folder, progress, cores)
                if settings["storage"].get("kind") == "s3"
                else _dataset(settings, folder, progress, cores)
            )
        _check_enough(settings, prepared[key])
        if not redo:
            _check_same_as_before(entry, prepared[key], folder)
        by_cell[entry.cell.id] = prepared[key]
    return by_cell


def require_possible(entries: Sequence[Entry], *, here: bool = False) -> None:
    """Raise an error if the data of an entry cannot be read or made, `here` or on a node; nothing is made or written.

    Objects in a store are checked later, when they are listed.
    """
    files_of: dict[str, Data | None] = {}
    for settings in (entry.cell.settings for entry in entries if entry.cell.settings["storage"].get("kind") != "s3"):
        if (key := data_key(settings)) not in files_of:
            files_of[key] = _count_own_files(settings)
        if (own := files_of[key]) is not None:
            _check_enough(settings, own)
            if here and (registry.of(settings).data, settings["cache"]) == ("files", "warm"):
                with _errors_with_cures(settings, Path(settings["dataset"]["path"])):
                    command.require_room(own["bytes"])


def _count_own_files(settings: Settings) -> Data | None:
    """Return the count of the user's own files (None: data of ours); raise if the storage, room or folder is wrong."""
    require_seen(settings)
    root = storage_root(settings["storage"], make=False)
    with _errors_with_cures(settings, root):
        if baseline_files.has_file(settings):
            baseline_files.require_possible(settings, root)
        if "path" not in settings.get("dataset", {}):
            return None
        path, listed = manifest.top_of(Path(settings["dataset"]["path"])), _listed(settings)
        _on_storage([path / file.name for file in listed.files], root, settings["storage"]["name"])
    return {"files": len(listed.files), "bytes": listed.total_bytes}


def _makes(settings: Settings) -> tuple[bool, bool]:
    """Return whether a baseline's file and whether a data set must be made, as a key: cells without both sort first."""
    return baseline_files.has_file(settings), "path" not in settings.get("dataset", {})


def data_key(settings: Settings) -> str:
    """Return a key that cells have in common if they read the same data."""
    benchmark = settings["benchmark"]
    own = benchmark if baseline_files.has_file(settings) else None
    copies = settings.get("staging"), benchmark.get("stage")
    return str((settings.get("dataset"), settings["storage"], own, *copies, registry.of(settings).any_kind))


def for_jobs(
    entries: Sequence[Entry], folder: CampaignFolder, progress: Progress, processes: int, by_jobs: Collection[str]
) -> dict[str, Data | None]:
    """Return the data by cell id, made or checked, on storages that every node sees; None if a node's own storage.

    None also for the cells in `by_jobs`, whose data a job makes. The node decides whether earlier runs of a cell may be
    continued (`campaign.worker.session`).
    """
    shared = [entry for entry in entries if entry.cell.access["shared"]]
    require_possible(shared)
    here = [entry for entry in shared if entry.cell.id not in by_jobs]
    for storage in [entry.cell.settings["storage"] for entry in entries if entry.cell.id in by_jobs]:
        if "root" in storage:
            storage_root(storage)  # the root must exist; a relative one is made
    data = datasets(here, folder, progress, redo=True, processes=processes)
    return dict.fromkeys((entry.cell.id for entry in entries), None) | data


def on_this_node(settings: Settings, folder: CampaignFolder, progress: Progress = lambda *_: None) -> Data:
    """Return the data of one cell, made or checked on the node that reads it."""
    data = _dataset(settings, folder, progress, len(os.sched_getaffinity(0)))
    _check_enough(settings, data)
    return data


def _check_enough(settings: Settings, data: Data) -> None:
    if registry.of(settings).data == "images":
        check_enough_data(dict(flat(settings)), data["files"])


def _dataset(settings: Settings, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    """Return the data that one cell reads, or a baseline's file, made or checked."""
    storage, own = settings["storage"], settings.get("dataset", {}).get("path")
    root = storage_root(storage, make=own is None or baseline_files.has_file(settings))
    layout = layout_of(storage)
    # A relative root is the default, `data` in the current folder; the user's own files may lie elsewhere.
    theirs = own if own is None or Path(storage["root"]).is_absolute() else str(root)
    lock: Data = {"lock": str(lock_path(root, folder.root, theirs))}
    with _errors_with_cures(settings, root):
        if registry.of(settings).data == "nothing":
            return {**lock, "path": str(root)}
        if baseline_files.has_file(settings):
            data_set = _images(settings, root, folder, progress, processes) if "dataset" in settings else None
            images = data_set[::2] if data_set else None
            return {**lock, **baseline_files.prepared(settings, root, layout, images, progress)}
        path, manifest_folder, listed = _images(settings, root, folder, progress, processes)
        newest_ns = _on_storage([path / file.name for file in listed.files], root, storage["name"])
        staged, newest_ns = _staged(settings, path, listed, folder, newest_ns)
        stripe = cast("Data", lustre.stripe_folder(path, path / listed.files[0].name, layout))
    return {
        "path": str(path),
        "manifest": str(manifest_folder),
        **lock,
        "checksum": listed.checksum,
        "files": len(listed.files),
        "bytes": listed.total_bytes,
        "listed_ns": newest_ns,
        **stripe,
        **staged,
    }


@contextmanager
def _errors_with_cures(settings: Settings, root: Path) -> Iterator[None]:
    """Turn errors of data sets and of the operating system into an EnvironmentFaultError with a cure."""
    try:
        yield
    except DatasetError as error:
        is_filled = settings["storage"].get("node_root") and not os.access(root, os.W_OK)
        fill = "as root, with the words of this campaign: python -m campaign testbed fill …"
        raise EnvironmentFaultError(error.message, fill if is_filled else error.hint) from error
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot prepare what is to be read in {root}: {error}",
            "set storage.root=… to a folder that you may write to",
        ) from error


def _staged(
    settings: Settings, path: Path, listed: manifest.Manifest, folder: CampaignFolder, newest_ns: int
) -> tuple[Data, int]:
    """Return the facts on staged copies that are read, and the latest change (ctime, ns) of any file or copy."""
    if stage := settings["benchmark"].get("stage"):  # the run makes and removes the copies
        return {"staged": {"root": stage.replace("{rank}", "0")}}, newest_ns
    if "staging" not in settings:
        return {}, newest_ns
    map_path = folder.staging / f"{settings['staging']}.json"
    staged_map = staged_copies.load_map(map_path)
    copies = [copy for file in listed.files if (copy := staged_map.path_of(path / file.name)) != path / file.name]
    if not copies:
        raise UsageError(f"{map_path} stages nothing of {path}", "plan from a profile of this very data set")
    listing = "".join(sorted(map(str, copies)))
    facts = {
        "map": str(map_path),
        "root": str(staged_map.root),
        "files": len(copies),
        "bytes": sum(each.stat().st_size for each in copies),
        "checksum": hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()[:10],
    }
    return {"staged": facts}, max(newest_ns, *(each.stat().st_ctime_ns for each in copies))


def _images(
    settings: Settings, root: Path, folder: CampaignFolder, progress: Progress, processes: int
) -> tuple[Path, Path, manifest.Manifest]:
    """Return the folder of the images (found or made), the folder of their manifest, and the manifest."""
    wanted = settings["dataset"]
    if "path" not in wanted:
        path, listed = _made_dataset(wanted, root, layout_of(settings["storage"]), progress, processes)
        return path, path, listed
    path, listed = manifest.top_of(Path(wanted["path"])), _listed(settings)
    # The user's own folder is never written to: its manifest is kept with the campaign.
    kind = "/any" * registry.of(settings).any_kind or wanted.get("hdf5") or ""
    manifest_folder = folder.manifest(f"{wanted['path']}{kind}{wanted.get('list') or ''}")
    files.write(manifest_folder / manifest.MANIFEST_NAME, listed.to_json())
    return path, manifest_folder, listed


def layout_of(storage: Node) -> lustre.Layout:
    """Return the stripe layout for files that are made on a storage."""
    return lustre.Layout(storage["stripe_count"], storage["stripe_size_mib"])


def folders_of(wanted: Node, root: Path, layout: lustre.Layout) -> list[Path]:
    """Return the folders in which a dataset may lie; a new one is made in the last."""
    own = f"{specs.dataset_id(wanted['name'], specs.spec_of(wanted))}{layout.suffix}"
    return [folder / own for folder in dict.fromkeys((root / FOLDER, own_path(root, FOLDER)))]


def _listed(settings: Settings) -> manifest.Manifest:
    """Return a manifest of the files in a user's own folder."""
    wanted = settings["dataset"]
    listed = Path(wanted["list"]) if wanted.get("list") else None
    any_kind = registry.of(settings).any_kind
    return manifest.scan(Path(wanted["path"]), wanted.get("hdf5"), any_kind=any_kind, listed=listed)


def _made_dataset(
    wanted: Node, root: Path, layout: lustre.Layout, progress: Progress, processes: int
) -> tuple[Path, manifest.Manifest]:
    name, spec = wanted["name"], specs.spec_of(wanted)
    what = "images" if isinstance(spec, ImageSpec) else "files"
    for folder in folders_of(wanted, root, layout):
        if os.access(folder / manifest.MANIFEST_NAME, os.F_OK) and (listed := _intact_manifest(folder, spec)):
            return folder, listed
    path = own_folder(root, FOLDER) / folder.name
    if layout.is_requested:
        lustre.set_layout(path, layout)
    listed = make.make(
        path,
        spec,
        name=name,
        processes=processes,
        progress=lambda done, total: progress(f"making dataset {name}", done, total, what),
    )
    return path, listed


def _on_storage(files: Sequence[Path], root: Path, storage: str) -> int:
    """Return the latest change (ctime, ns) of files; raise UsageError if a file or link's target is not on the storage.

    A file that changes later than that is not the listed one any more.
    """
    device, newest_ns = device_number(root), 0
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue  # for the benchmark to count
        if status.st_dev != device:
            raise UsageError(
                f"{file} does not lie on storage {storage} ({root})",
                "leave the storage away, and it is the file system that dataset.path lies on; or say where it lies:"
                " storage.name=… storage.root=… with a folder of the same file system",
            )
        newest_ns = max(newest_ns, status.st_ctime_ns)
    return newest_ns


def _intact_manifest(path: Path, spec: specs.Spec) -> manifest.Manifest | None:
    """Return the manifest of an intact dataset; None if another user's is damaged, and raise an error if ours is."""
    try:
        listed = manifest.load(path)
        manifest.verify(path, listed)
        make.require(listed, spec, path)
    except DatasetError:
        if is_ours(path):
            raise
        return None
    return listed


def _check_same_as_before(entry: Entry, data: Data, folder: CampaignFolder) -> None:
    """Raise UsageError if a cell's recorded runs had other data, another machine or another TensorFlow."""
    if entry.state in ("planned", "damaged"):
        return
    recorded = record.read_record(folder.record(entry.cell.id))
    if not any(run["status"] == "ended" for run in (recorded or {"runs": []})["runs"]):
        return  # for example its storage was missing: nothing was measured
    settings = entry.cell.settings
    copies = data.get("staged", {}).get("root")
    here = provenance.node(settings, data.get("disk", data["path"]), checkpoint_targets.roots(settings), copies)
    difference = recorded and provenance.difference(recorded, data, here, shared=False)
    if difference:
        what, key, before, now = difference
        raise UsageError(
            f"{entry.cell.id} was measured on {what} ({key} was {before}, is {now})",
            "measure it again with redo=true, or keep both in two folders: campaign_dir=…",
        )
