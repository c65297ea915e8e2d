"""Make sure that what the cells read is there, before anything is started."""

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
from campaign.config.rules_of_data import enough_data
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.storage import baseline_files, checkpoint_targets, objects, provenance
from campaign.storage.locks import lock_path
from campaign.storage.roots import device_number, is_ours, own_folder, place, require_seen, storage_root
from jobs.benchmarks import command, registry
from jobs.data import make, manifest, specs, staged_copies
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.model.record import Data
from jobs.model.settings import Node, Settings, flat
from jobs.system import files, lustre

FOLDER = "datasets"
"""Where, below a storage's root, made datasets lie."""


def datasets(
    entries: Sequence[Entry], folder: CampaignFolder, progress: Progress, *, redo: bool, processes: int | None = None
) -> dict[str, Data]:
    """Make or check the dataset of each entry, by cell id; unless `redo`, it must be what earlier runs of it read.

    `require_possible` goes before. Begun cells and users' own files come before what is to be made. `processes` make
    it; None: one for each processor.
    """
    found: dict[str, Data] = {}
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
        _enough(settings, prepared[key])
        if not redo:
            _same_as_before(entry, prepared[key], folder)
        found[entry.cell.id] = prepared[key]
    return found


def require_possible(entries: Sequence[Entry], *, here: bool = False) -> None:
    """Refuse what cannot be read or made where it is asked for, `here` or on a node; nothing is made or written.

    Of objects in a store it is found out when they are listed.
    """
    files_of: dict[str, Data | None] = {}
    for settings in (entry.cell.settings for entry in entries if entry.cell.settings["storage"].get("kind") != "s3"):
        if (key := data_key(settings)) not in files_of:
            files_of[key] = _examined(settings)
        if (own := files_of[key]) is not None:
            _enough(settings, own)
            if here and (registry.of(settings).data, settings["cache"]) == ("files", "warm"):
                with _explained(settings, Path(settings["dataset"]["path"])):
                    command.require_room(own["bytes"])


def _examined(settings: Settings) -> Data | None:
    """Refuse a storage that is not here, a file without room and a folder elsewhere; count the user's own files."""
    require_seen(settings)
    root = storage_root(settings["storage"], make=False)
    with _explained(settings, root):
        if baseline_files.has_file(settings):
            baseline_files.require_possible(settings, root)
        if "path" not in settings.get("dataset", {}):
            return None
        path, listed = manifest.top_of(Path(settings["dataset"]["path"])), _listed(settings)
        _on_storage([path / file.name for file in listed.files], root, settings["storage"]["name"])
    return {"files": len(listed.files), "bytes": listed.total_bytes}


def _makes(settings: Settings) -> tuple[bool, bool]:
    """Return whether a baseline's file is to be made, and whether a data set is: what makes nothing sorts first."""
    return baseline_files.has_file(settings), "path" not in settings.get("dataset", {})


def data_key(settings: Settings) -> str:
    """Return what cells that read the same data have in common."""
    benchmark = settings["benchmark"]
    own = benchmark if baseline_files.has_file(settings) else None
    copies = settings.get("staging"), benchmark.get("stage")
    return str((settings.get("dataset"), settings["storage"], own, *copies, registry.of(settings).any_kind))


def for_jobs(
    entries: Sequence[Entry], folder: CampaignFolder, progress: Progress, processes: int, by_jobs: Collection[str]
) -> dict[str, Data | None]:
    """Make or check the datasets that every node sees; None for a cell whose node has its own storage.

    None, too, for the cells `by_jobs`, whose data a job makes. Whether earlier runs of a cell may be continued is found
    out on the node (`campaign.worker.session`).
    """
    shared = [entry for entry in entries if entry.cell.access["shared"]]
    require_possible(shared)
    here = [entry for entry in shared if entry.cell.id not in by_jobs]
    for storage in [entry.cell.settings["storage"] for entry in entries if entry.cell.id in by_jobs]:
        if "root" in storage:
            storage_root(storage)  # it is there, or is made where it is relative
    made = datasets(here, folder, progress, redo=True, processes=processes)
    return dict.fromkeys((entry.cell.id for entry in entries), None) | made


def on_this_node(settings: Settings, folder: CampaignFolder, progress: Progress = lambda *_: None) -> Data:
    """Make or check the dataset of one cell where it is read."""
    found = _dataset(settings, folder, progress, len(os.sched_getaffinity(0)))
    _enough(settings, found)
    return found


def _enough(settings: Settings, data: Data) -> None:
    if registry.of(settings).data == "images":
        enough_data(dict(flat(settings)), data["files"])


def _dataset(settings: Settings, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    """Make or check what one cell reads, or what a baseline reads or writes."""
    storage = settings["storage"]
    root = storage_root(storage)
    layout = layout_of(storage)
    lock: Data = {"lock": str(lock_path(root, folder.root))}
    with _explained(settings, root):
        if registry.of(settings).data == "nothing":
            return {**lock, "path": str(root)}
        if baseline_files.has_file(settings):
            listed = _images(settings, root, folder, progress, processes) if "dataset" in settings else None
            images = listed[::2] if listed else None
            return {**lock, **baseline_files.prepared(settings, root, layout, images, progress)}
        path, held, found = _images(settings, root, folder, progress, processes)
        newest_ns = _on_storage([path / file.name for file in found.files], root, storage["name"])
        staged, newest_ns = _staged(settings, path, found, folder, newest_ns)
        stripe = cast("Data", lustre.stripe(path, path / found.files[0].name, layout))
    return {
        "path": str(path),
        "manifest": str(held),
        **lock,
        "checksum": found.checksum,
        "files": len(found.files),
        "bytes": found.total_bytes,
        "listed_ns": newest_ns,
        **stripe,
        **staged,
    }


@contextmanager
def _explained(settings: Settings, root: Path) -> Iterator[None]:
    """Turn what a data set or the operating system complains of into an EnvironmentFaultError with a cure."""
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
    """Return what is read from copies, and the latest change of any file, the copies included."""
    if stage := settings["benchmark"].get("stage"):  # the run makes and removes the copies
        return {"staged": {"root": stage.replace("{rank}", "0")}}, newest_ns
    if "staging" not in settings:
        return {}, newest_ns
    held = folder.staging / f"{settings['staging']}.json"
    found = staged_copies.load(held)
    copies = [copy for file in listed.files if (copy := found.path_of(path / file.name)) != path / file.name]
    if not copies:
        raise UsageError(f"{held} stages nothing of {path}", "plan from a profile of this very data set")
    listing = "".join(sorted(map(str, copies)))
    facts = {
        "map": str(held),
        "root": str(found.root),
        "files": len(copies),
        "bytes": sum(each.stat().st_size for each in copies),
        "checksum": hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()[:10],
    }
    return {"staged": facts}, max(newest_ns, *(each.stat().st_ctime_ns for each in copies))


def _images(
    settings: Settings, root: Path, folder: CampaignFolder, progress: Progress, processes: int
) -> tuple[Path, Path, manifest.Manifest]:
    """Find or make the images: their folder, the folder of their manifest, and the manifest."""
    wanted = settings["dataset"]
    if "path" not in wanted:
        path, found = _made(wanted, root, layout_of(settings["storage"]), progress, processes)
        return path, path, found
    path, found = manifest.top_of(Path(wanted["path"])), _listed(settings)
    # The user's own folder is never written to: its manifest is kept with the campaign.
    kind = "/any" * registry.of(settings).any_kind or wanted.get("hdf5") or ""
    held = folder.manifest(f"{wanted['path']}{kind}{wanted.get('list') or ''}")
    files.write(held / manifest.MANIFEST_NAME, found.to_json())
    return path, held, found


def layout_of(storage: Node) -> lustre.Layout:
    """Return the layout that files made on a storage are to have."""
    return lustre.Layout(storage["stripe_count"], storage["stripe_size_mib"])


def folders_of(wanted: Node, root: Path, layout: lustre.Layout) -> list[Path]:
    """List the folders in which a dataset may lie; the last one is where it is made."""
    own = f"{specs.dataset_id(wanted['name'], spec_of(wanted))}{layout.suffix}"
    return [folder / own for folder in dict.fromkeys((root / FOLDER, place(root, FOLDER)))]


def spec_of(wanted: Node) -> specs.Spec:
    """Return what the files of a node ``dataset`` are like, which are made."""
    return specs.spec_of({key: value for key, value in wanted.items() if key != "name"})


def _listed(settings: Settings) -> manifest.Manifest:
    """List the files of a user's own folder."""
    wanted = settings["dataset"]
    listed = Path(wanted["list"]) if wanted.get("list") else None
    any_kind = registry.of(settings).any_kind
    return manifest.scan(Path(wanted["path"]), wanted.get("hdf5"), any_kind=any_kind, listed=listed)


def _made(
    wanted: Node, root: Path, layout: lustre.Layout, progress: Progress, processes: int
) -> tuple[Path, manifest.Manifest]:
    name, spec = wanted["name"], spec_of(wanted)
    what = "images" if isinstance(spec, ImageSpec) else "files"
    for folder in folders_of(wanted, root, layout):
        if os.access(folder / manifest.MANIFEST_NAME, os.F_OK) and (found := _whole(folder, spec)):
            return folder, found
    path = own_folder(root, FOLDER) / folder.name
    if layout.asked:
        lustre.set_layout(path, layout)
    found = make.make(
        path,
        spec,
        name=name,
        processes=processes,
        progress=lambda done, total: progress(f"making dataset {name}", done, total, what),
    )
    manifest.verify(path, found)
    return path, found


def _on_storage(files: Sequence[Path], root: Path, storage: str) -> int:
    """Refuse to call files by the name of a storage that they do not lie on, a link's target too.

    Returns the latest change of any of them (ctime, ns): one that changes after this is not what was listed.
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


def _whole(path: Path, spec: specs.Spec) -> manifest.Manifest | None:
    """Return the manifest of a dataset that is what it says; None where another user's is not: ours is made instead."""
    try:
        found = manifest.load(path)
        manifest.verify(path, found)
        make.require(found, spec, path)
    except DatasetError:
        if is_ours(path):
            raise
        return None
    return found


def _same_as_before(entry: Entry, data: Data, folder: CampaignFolder) -> None:
    """Refuse to continue a cell on other data, another machine or another TensorFlow than its recorded runs had."""
    if entry.state in ("planned", "damaged"):
        return
    recorded = record.read(folder.record(entry.cell.id))
    if not any(run["status"] == "ended" for run in (recorded or {"runs": []})["runs"]):
        return  # it was begun where its storage had gone, say: nothing was measured
    settings = entry.cell.settings
    copies = data.get("staged", {}).get("root")
    here = provenance.node(settings, data.get("disk", data["path"]), checkpoint_targets.roots(settings), copies)
    found = recorded and provenance.difference(recorded, data, here, shared=False)
    if found:
        what, key, before, now = found
        raise UsageError(
            f"{entry.cell.id} was measured on {what} ({key} was {before}, is {now})",
            "measure it again with redo=true, or keep both in two folders: campaign_dir=…",
        )
