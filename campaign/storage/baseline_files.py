"""The files of baselines: made, checked, removed; and the engine that reads or writes them."""

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


def prepared(
    settings: Settings, root: Path, layout: lustre.Layout, images: tuple[Path, Manifest] | None, progress: Progress
) -> Data:
    """Return the facts on a baseline's file, which is made if it is read; if it is written, the room is checked.

    `images`: folder and manifest of the dataset whose mean size the blocks have, if any. A read costs about a seek and
    its bytes, so blocks of the mean size cost as much as the files; blocks of the median size would cost less.
    """
    folder = own_folder(root, f"{datafile.FOLDER}{layout.suffix}")
    if layout.is_requested:
        lustre.set_layout(folder, layout)
    path, listing = images or (folder, None)
    mean = listing.total_bytes / len(listing.files) if listing else None

    def made(done: int, total: int) -> None:
        progress(f"making the file of {root}", done, total, "MiB")

    file, size, block_bytes = baseline.prepared(settings, folder, mean, made)
    data: Data = {"path": str(path), "folder": str(folder), "file": file.name if file else None}
    data |= {"bytes": size, "block_bytes": block_bytes}
    if listing:
        data["checksum"] = listing.checksum
    return {**data, **cast("Data", lustre.stripe_folder(folder, file, layout))} if file else data


def require_possible(settings: Settings, root: Path) -> None:
    """Raise DatasetError if there is no room for a baseline's file that is written or does not exist yet."""
    layout = lustre.Layout(settings["storage"]["stripe_count"], settings["storage"]["stripe_size_mib"])
    folder = own_path(root, f"{datafile.FOLDER}{layout.suffix}") if root.is_dir() else root
    size = baseline.file_bytes(settings)
    missing = datafile.lacking(folder, size) if baseline.reads(settings) else size
    datafile.require_room(next(each for each in (folder, *folder.parents) if each.is_dir()), missing)


def has_file(settings: Settings) -> bool:
    """Return whether a benchmark reads or writes a file of ours."""
    return registry.of(settings).data == "file"


def engine(settings: Settings) -> str | None:
    """Return the engine of a baseline on this machine, which all its runs must share.

    None for other cells, and if the engine is missing: then a run fails and says so.
    """
    with suppress(EngineError):
        return baseline.engine_of(settings) if has_file(settings) else None
    return None


def require_engine(settings: Settings) -> None:
    """Raise EnvironmentFaultError if the engine of a baseline is missing on this machine."""
    try:
        if has_file(settings):
            baseline.engine_of(settings)
    except EngineError as error:
        hint = "install or load it; benchmark.engine=builtin needs no other program"
        raise EnvironmentFaultError(str(error), hint) from error


def request(item: WorkItem, raw: Path) -> FileRequest | None:
    """Return the request of a baseline's run: the file it reads or writes, with sizes.

    None if the cell is no baseline.
    """
    if not has_file(item["settings"]):
        return None
    data = item["dataset"]
    file = Path(data["folder"]) / (data["file"] or _written(item))
    return {"file": str(file), "file_bytes": data["bytes"], "block_bytes": data["block_bytes"], "raw": str(raw)}


@contextmanager
def tidied(item: WorkItem) -> Iterator[None]:
    """Remove at the end of the block the file that a run has written; in an object store the next run removes it."""
    try:
        yield
    finally:
        settings = item["settings"]
        if has_file(settings) and item["dataset"]["file"] is None and "kind" not in settings["storage"]:
            with suppress(OSError):
                files.remove(Path(item["dataset"]["folder"]) / _written(item))


def left(recorded: Record) -> list[Path]:
    """Return the file that a cell's last, interrupted run wrote and left; the next run removes it."""
    data = recorded.get("dataset") or {}
    file = Path(data.get("folder", "/nowhere")) / _written(recorded["cell"])
    return [file] if file.is_file() else []


def _written(cell: RecordedCell | WorkItem) -> str:
    """Return the name of the file that a cell's runs write: one name for all, so that an old one is replaced."""
    return f"written-{cell['id']}.bin"
