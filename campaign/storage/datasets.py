"""Check or make the data that cells read, before any run starts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from campaign import console
from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.config.rules_of_data_and_storage import check_enough_data
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError, environment_fault
from campaign.storage import baseline_files, checkpoint_targets, objects, provenance
from campaign.storage.locks import lock_path
from campaign.storage.roots import device_number, is_ours, own_folder, own_path, require_folder_on_ranks, storage_root
from jobs.benchmarks import command, registry
from jobs.data import make, manifest, specs, staged_copies
from jobs.data.synthetic_images import ImageSpec
from jobs.errors import DatasetError
from jobs.model.record import Data
from jobs.model.settings import Node, Settings, flat_items
from jobs.system import files, lustre

FOLDER = "datasets"
"""The name of the folder below a storage's root in which the campaign makes datasets."""


def prepare_datasets(
    entries: Sequence[PlannedCell],
    folder: CampaignFolder,
    progress: Progress,
    *,
    redo: bool,
    processes: int | None = None,
) -> dict[str, Data]:
    """Make or check the data of all cells, and return the data by cell id.

    Call `require_possible` before. Without `redo`, raise an error if the data of a cell differ from the data of its
    earlier runs. Cells with earlier runs and cells with the user's own files come first, because their errors are found
    quickly. `processes` is the number of processes that make data; None means one process per processor.
    """
    by_cell: dict[str, Data] = {}
    prepared: dict[str, Data] = {}
    for entry in sorted(entries, key=lambda entry: (entry.state == "planned", *_makes(entry.cell.settings))):
        settings, key = entry.cell.settings, data_key(entry.cell.settings)
        if key not in prepared:
            cores = processes or len(os.sched_getaffinity(0))
            prepared[key] = _dataset(entry.cell, folder, progress, cores)
        _check_enough(settings, prepared[key])
        if not redo:
            _check_same_as_before(entry, prepared[key], folder)
        by_cell[entry.cell.id] = prepared[key]
    return by_cell


def require_possible(entries: Sequence[PlannedCell], *, here: bool = False) -> None:
    """Raise an error if the data of a cell cannot be read or made; write no file.

    `here` says that the cells run on this machine and not on a compute node. Objects in an object store are checked
    later, when the objects are listed.
    """
    files_of: dict[str, Data | None] = {}
    for settings in (entry.cell.settings for entry in entries if entry.cell.settings["storage"].get("kind") != "s3"):
        if (key := data_key(settings)) not in files_of:
            files_of[key] = _count_own_files(settings)
        if (own_files := files_of[key]) is not None:
            _check_enough(settings, own_files)
            for line in unread_in_words(own_files):
                console.say(line)
            if here and (registry.benchmark_of(settings).data, settings["cache"]) == ("files", "warm"):
                with _errors_with_cures(settings, Path(settings["dataset"]["path"])):
                    command.require_memory(own_files["bytes"])


def _count_own_files(settings: Settings) -> Data | None:
    """Return the number and the total size of the user's own files, or None if the campaign makes the data.

    Raise an error if the files cannot be read.
    """
    require_folder_on_ranks(settings)
    root = storage_root(settings["storage"], make=False)
    with _errors_with_cures(settings, root):
        if baseline_files.has_file(settings):
            baseline_files.require_possible(settings, root)
        if "path" not in settings.get("dataset", {}):
            return None
        path, listed = manifest.manifest_root(Path(settings["dataset"]["path"])), list_own_files(settings)
        _on_storage([path / file.name for file in listed.files], root, settings["storage"]["name"])
    return {"files": len(listed.files), "bytes": listed.total_bytes, **_unread(settings, listed)}


def _unread(settings: Settings, listed: manifest.Manifest) -> Data:
    """Return what a cell leaves out of the user's own data; raise UsageError for rows that the files do not have."""
    data: Data = {"left_out": dict(listed.left_out)} if listed.left_out else {}
    if "channels" not in settings["benchmark"] or not listed.data_set:
        return data
    channels, rows = settings["benchmark"]["channels"], int(listed.data_set["rows"])
    if channels and max(channels) >= rows:
        raise UsageError(
            f"benchmark.channels={channels}: {settings['dataset']['hdf5']} of {listed.files[0].name} has {rows} rows",
            "benchmark.channels=null reads all rows",
        )
    read = len(channels) if channels else rows
    return {**data, "rows_read": read, "rows": rows, "file_share": listed.data_set["file_share"] * read / max(1, rows)}


def unread_in_words(data: Data) -> Iterator[str]:
    """Yield sentences on what is not read of the user's own files, and which share of a file is read."""
    if left_out := data.get("left_out"):
        kinds = ", ".join(f"{count} {kind}" for kind, count in left_out.items())
        yield f"not read: {sum(left_out.values())} of {data['files'] + sum(left_out.values())} files ({kinds})"
    if "rows" in data:
        yield f"read: {data['rows_read']} of {data['rows']} rows, {data['file_share']:.1%} of a file's bytes"


def _makes(settings: Settings) -> tuple[bool, bool]:
    """Return a sort key: whether the campaign makes a baseline's file, and whether it makes a data set."""
    return baseline_files.has_file(settings), "path" not in settings.get("dataset", {})


def data_key(settings: Settings) -> str:
    """Return a key that is equal for all cells that read the same data."""
    benchmark = settings["benchmark"]
    baseline = benchmark if baseline_files.has_file(settings) else None
    copies = settings.get("staging"), benchmark.get("stage")
    kind = registry.benchmark_of(settings).any_kind, benchmark.get("channels")
    return str((settings.get("dataset"), settings["storage"], baseline, *copies, *kind))


def datasets_for_jobs(
    entries: Sequence[PlannedCell], folder: CampaignFolder, progress: Progress, processes: int, by_jobs: Collection[str]
) -> dict[str, Data | None]:
    """Make or check the data of cells that run in Slurm jobs, and return the data by cell id.

    The value is None if the data are not made here. Each node makes or checks data on its own storage, and a job makes
    the data of the cells in `by_jobs`. The worker on the node decides whether earlier runs of a cell may be continued
    (`campaign.worker.session`).
    """
    shared = [entry for entry in entries if entry.cell.access["shared"]]
    require_possible(shared)
    entries_here = [entry for entry in shared if entry.cell.id not in by_jobs]
    for storage in [entry.cell.settings["storage"] for entry in entries if entry.cell.id in by_jobs]:
        if "root" in storage:
            storage_root(storage)  # raises an error if an absolute root is missing, and creates a relative root
    data = prepare_datasets(entries_here, folder, progress, redo=True, processes=processes)
    return dict.fromkeys((entry.cell.id for entry in entries), None) | data


def dataset_on_this_node(cell: Cell, folder: CampaignFolder, progress: Progress = lambda *_: None) -> Data:
    """Make or check the data of one cell on this node, which will read the data, and return their description."""
    data = _dataset(cell, folder, progress, len(os.sched_getaffinity(0)))
    _check_enough(cell.settings, data)
    return data


def _check_enough(settings: Settings, data: Data) -> None:
    if registry.benchmark_of(settings).data == "images":
        check_enough_data(dict(flat_items(settings)), data["files"])


def _dataset(cell: Cell, folder: CampaignFolder, progress: Progress, processes: int) -> Data:
    """Make or check the files or objects that one cell reads, and return their description."""
    settings, storage = cell.settings, cell.settings["storage"]
    if storage.get("kind") == "s3":
        return objects.prepare_objects(cell, folder, progress, processes)
    own_folder = settings.get("dataset", {}).get("path")
    root = storage_root(storage, make=own_folder is None or baseline_files.has_file(settings))
    layout = stripe_layout(storage)
    # A relative root is the default `data` in the current folder, so the user's own files may not be below the root.
    is_below_root = own_folder is None or Path(storage["root"]).is_absolute()
    lock: Data = {"lock": str(lock_path(root, folder.root, own_folder if is_below_root else str(root)))}
    with _errors_with_cures(settings, root):
        if registry.benchmark_of(settings).data == "nothing":
            return {**lock, "path": str(root)}
        if baseline_files.has_file(settings):
            data_set = _images(settings, root, folder, progress, processes) if "dataset" in settings else None
            images = data_set[::2] if data_set else None
            return {**lock, **baseline_files.prepare_file(settings, root, layout, images, progress)}
        path, manifest_folder, listed = _images(settings, root, folder, progress, processes)
        newest_ns = _on_storage([path / file.name for file in listed.files], root, storage["name"])
        staged, newest_ns = _staged(settings, path, listed, folder, newest_ns)
        stripe = cast("Data", lustre.striping_of(path, path / listed.files[0].name, layout))
    return {
        "path": str(path),
        "manifest": str(manifest_folder),
        **lock,
        "checksum": listed.checksum,
        "files": len(listed.files),
        "bytes": listed.total_bytes,
        "listed_ns": newest_ns,
        **_unread(settings, listed),
        **stripe,
        **staged,
    }


@contextmanager
def _errors_with_cures(settings: Settings, root: Path) -> Iterator[None]:
    """Convert a DatasetError or an OSError in the ``with`` block into an EnvironmentFaultError with a cure."""
    try:
        yield
    except DatasetError as error:
        is_filled = settings["storage"].get("node_root") and not os.access(root, os.W_OK)
        fill = "as root, with the settings of this campaign: python -m campaign testbed fill …"
        raise EnvironmentFaultError(error.message, fill if is_filled else error.hint) from error
    except OSError as error:
        problem = f"cannot prepare the data in {root}: {error.filename or root}"
        raise environment_fault(error, problem, "set storage.root=… to a folder that you may write to") from error


def _staged(
    settings: Settings, path: Path, listed: manifest.Manifest, folder: CampaignFolder, newest_ns: int
) -> tuple[Data, int]:
    """Return the staged copies that a cell reads, and the latest ctime (ns) of all files and copies."""
    if stage := settings["benchmark"].get("stage"):  # the run makes and removes the copies
        return {"staged": {"root": stage.replace("{rank}", "0")}}, newest_ns
    if "staging" not in settings:
        return {}, newest_ns
    map_path = folder.staging / f"{settings['staging']}.json"
    staged_map = staged_copies.load_map(map_path)
    copies = [copy for file in listed.files if (copy := staged_map.path_of(path / file.name)) != path / file.name]
    if not copies:
        raise UsageError(f"{map_path} has no copy of a file in {path}", "make the plan from a profile of this data set")
    listing = "".join(sorted(map(str, copies)))
    facts = {
        "map": str(map_path),
        "root": str(staged_map.root),
        "files": len(copies),
        "bytes": sum(copy.stat().st_size for copy in copies),
        "checksum": hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()[:10],
    }
    return {"staged": facts}, max(newest_ns, *(copy.stat().st_ctime_ns for copy in copies))


def _images(
    settings: Settings, root: Path, folder: CampaignFolder, progress: Progress, processes: int
) -> tuple[Path, Path, manifest.Manifest]:
    """Make the images if they are missing; return their folder, the folder of the manifest, and the manifest."""
    dataset = settings["dataset"]
    if "path" not in dataset:
        path, listed = _made_dataset(dataset, root, stripe_layout(settings["storage"]), progress, processes)
        return path, path, listed
    path, listed = manifest.manifest_root(Path(dataset["path"])), list_own_files(settings)
    # The campaign never writes into the user's own folder, so the manifest of that folder is in the campaign folder.
    kind = "/any" * registry.benchmark_of(settings).any_kind or dataset.get("hdf5") or ""
    manifest_folder = folder.manifest(f"{dataset['path']}{kind}{dataset.get('list') or ''}")
    files.write_text(manifest_folder / manifest.MANIFEST_NAME, listed.to_json())
    return path, manifest_folder, listed


def stripe_layout(storage: Node) -> lustre.StripeLayout:
    """Return the Lustre stripe layout for new files on a storage."""
    return lustre.StripeLayout(storage["stripe_count"], storage["stripe_size_mib"])


def possible_folders(dataset: Node, root: Path, layout: lustre.StripeLayout) -> list[Path]:
    """Return the folders that may contain a made dataset; the last folder is used for a new dataset."""
    name = f"{specs.dataset_id(dataset['name'], specs.dataset_spec(dataset))}{layout.suffix}"
    return [folder / name for folder in dict.fromkeys((root / FOLDER, own_path(root, FOLDER)))]


def list_own_files(settings: Settings) -> manifest.Manifest:
    """Return a manifest of the files in a user's own folder."""
    dataset = settings["dataset"]
    list_file = Path(dataset["list"]) if dataset.get("list") else None
    any_kind = registry.benchmark_of(settings).any_kind
    return manifest.scan_folder(Path(dataset["path"]), dataset.get("hdf5"), any_kind=any_kind, listed=list_file)


def _made_dataset(
    dataset: Node, root: Path, layout: lustre.StripeLayout, progress: Progress, processes: int
) -> tuple[Path, manifest.Manifest]:
    name, spec = dataset["name"], specs.dataset_spec(dataset)
    unit = "images" if isinstance(spec, ImageSpec) else "files"
    for folder in possible_folders(dataset, root, layout):
        if os.access(folder / manifest.MANIFEST_NAME, os.F_OK) and (listed := _intact_manifest(folder, spec)):
            return folder, listed
    path = own_folder(root, FOLDER) / folder.name
    if layout.is_requested:
        lustre.set_layout(path, layout)
    listed = make.make_dataset(
        path,
        spec,
        name=name,
        processes=processes,
        progress=lambda done, total: progress(f"making dataset {name}", done, total, unit),
    )
    return path, listed


def _on_storage(files: Sequence[Path], root: Path, storage: str) -> int:
    """Return the latest ctime (ns) of the files; raise UsageError if a file is not on the storage.

    The ctime is recorded, so that a later change of a file can be found. For a link, the target of the link counts.
    """
    device, newest_ns = device_number(root), 0
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue  # the benchmark counts unreadable files later
        if status.st_dev != device:
            raise UsageError(
                f"{file} does not lie on storage {storage} ({root})",
                "the data of a cell lie on one file system, and a link counts where it points to: name data of one file"
                " system, and leave out storage=… or set storage.name=… and storage.root=… to a folder on it",
            )
        newest_ns = max(newest_ns, status.st_ctime_ns)
    return newest_ns


def _intact_manifest(path: Path, spec: specs.Spec) -> manifest.Manifest | None:
    """Return the manifest of an intact dataset, or None for a damaged dataset of another user.

    Raise DatasetError for a damaged dataset of this user.
    """
    try:
        listed = manifest.load_manifest(path)
        manifest.verify_files(path, listed)
        make.require_same_spec(listed, spec, path)
    except DatasetError:
        if is_ours(path):
            raise
        return None
    return listed


def _check_same_as_before(entry: PlannedCell, data: Data, folder: CampaignFolder) -> None:
    """Raise UsageError if a cell was measured before with other data, on another machine or with other software."""
    if entry.state in ("planned", "damaged"):
        return
    recorded = record.read_record(folder.record(entry.cell.id))
    if not any(run["status"] == "ended" for run in (recorded or {"runs": []})["runs"]):
        return  # no run was measured, for example because the storage was missing
    settings = entry.cell.settings
    copies = data.get("staged", {}).get("root")
    present_provenance = provenance.node_provenance(
        settings, data.get("disk", data["path"]), checkpoint_targets.target_roots(settings), copies
    )
    difference = recorded and provenance.provenance_difference(recorded, data, present_provenance, shared=False)
    if difference:
        difference_in_words, key, old_value, new_value = difference
        raise UsageError(
            f"{entry.cell.id} was measured on {difference_in_words} ({key} was {old_value}, is {new_value})",
            "measure the cell again with redo=true, or in another campaign folder: campaign_dir=…",
        )
