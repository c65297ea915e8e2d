"""Make, check and remove the files of baselines, and find the engine that reads or writes these files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from campaign.console import Progress
from campaign.errors import EnvironmentFaultError
from campaign.storage.roots import own_folder, own_path
from jobs.benchmarks import baseline, registry
from jobs.benchmarks.engines import datafile
from jobs.data.manifest import Manifest
from jobs.errors import EngineError
from jobs.model.record import Data, Record, RecordedCell
from jobs.model.settings import Settings
from jobs.model.work import FileRequest, WorkItem
from jobs.system import files, lustre


def prepare_file(
    settings: Settings,
    root: Path,
    layout: lustre.StripeLayout,
    images: tuple[Path, Manifest] | None,
    progress: Progress,
) -> Data:
    """Prepare the file of a baseline, and return its path, size and block size.

    A file to read is made if it is missing. For a file to write, the free space is checked. `images` are the folder and
    the manifest of a dataset, or None. The mean size of the dataset's files becomes the block size. The cost of a read
    has a part per seek and a part per byte, so blocks of the mean size cost as much as the files.
    """
    folder = own_folder(root, f"{datafile.FOLDER}{layout.suffix}")
    if layout.is_requested:
        lustre.set_layout(folder, layout)
    path, manifest = images or (folder, None)
    mean_bytes = manifest.total_bytes / len(manifest.files) if manifest else None

    def report(done: int, total: int) -> None:
        progress(f"making the file of {root}", done, total, "MiB")

    file, size, block_bytes = baseline.prepare_file(settings, folder, mean_bytes, report)
    data: Data = {"path": str(path), "folder": str(folder), "file": file.name if file else None}
    data |= {"bytes": size, "block_bytes": block_bytes}
    if manifest:
        data["checksum"] = manifest.checksum
    return {**data, **cast("Data", lustre.striping_of(folder, file, layout))} if file else data


def require_possible(settings: Settings, root: Path) -> None:
    """Raise DatasetError if the storage has too little free space for a baseline's file.

    An existing file to read needs no further space.
    """
    layout = lustre.StripeLayout(settings["storage"]["stripe_count"], settings["storage"]["stripe_size_mib"])
    folder = own_path(root, f"{datafile.FOLDER}{layout.suffix}") if root.is_dir() else root
    size = baseline.file_bytes(settings)
    missing = datafile.missing_bytes(folder, size) if baseline.must_exist_before(settings) else size
    existing_folder = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    datafile.require_free_space(existing_folder, missing)


def has_file(settings: Settings) -> bool:
    """Return whether a benchmark reads or writes a file that the campaign makes, as a baseline does."""
    return registry.benchmark_of(settings).data == "file"


def engine_here(settings: Settings) -> str | None:
    """Return the name of the engine that a baseline uses on this machine; all runs of a cell must use the same engine.

    Return None if the cell is no baseline, or if the engine is missing. Without an engine, the run itself fails later
    and reports the missing engine.
    """
    with suppress(EngineError):
        return baseline.engine_name(settings) if has_file(settings) else None
    return None


def require_engine(settings: Settings) -> None:
    """Raise EnvironmentFaultError if the engine of a baseline is missing on this machine."""
    try:
        if has_file(settings):
            baseline.engine_name(settings)
    except EngineError as error:
        hint = "install the engine or load its module; benchmark.engine=builtin needs no other program"
        raise EnvironmentFaultError(str(error), hint) from error


def file_request(item: WorkItem, raw: Path) -> FileRequest | None:
    """Return the file that a baseline's run reads or writes, with its sizes, or None if the cell is no baseline.

    `raw` is the path for the engine's own output.
    """
    if not has_file(item["settings"]):
        return None
    data = item["dataset"]
    file = Path(data["folder"]) / (data["file"] or _written_name(item))
    return {"file": str(file), "file_bytes": data["bytes"], "block_bytes": data["block_bytes"], "raw": str(raw)}


@contextmanager
def remove_written_file(item: WorkItem) -> Iterator[None]:
    """Remove the file that a baseline's run has written when the ``with`` block ends.

    In an object store, the next run removes the object instead.
    """
    try:
        yield
    finally:
        settings = item["settings"]
        if has_file(settings) and item["dataset"]["file"] is None and "kind" not in settings["storage"]:
            with suppress(OSError):
                files.remove(Path(item["dataset"]["folder"]) / _written_name(item))


def leftover_file(recorded: Record) -> list[Path]:
    """Return the file that an interrupted run of a cell has left on the storage, or an empty list.

    The next run removes such a file.
    """
    data = recorded.get("dataset") or {}
    file = Path(data.get("folder", "/nowhere")) / _written_name(recorded["cell"])
    return [file] if file.is_file() else []


def _written_name(cell: RecordedCell | WorkItem) -> str:
    """Return the name of the file that a cell's runs write; all runs use one name, so a run replaces the old file."""
    return f"written-{cell['id']}.bin"
