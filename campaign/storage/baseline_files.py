"""What a baseline reads or writes, on which storage, and by which engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from campaign.console import Progress
from campaign.errors import EnvironmentFaultError
from campaign.storage.roots import own_folder, place
from jobs.benchmarks import baseline, registry
from jobs.benchmarks.engines import datafile
from jobs.data.manifest import Manifest
from jobs.errors import EngineError
from jobs.model.record import Data, Record, RecordedCell
from jobs.model.request import FileRequest
from jobs.model.settings import Settings
from jobs.model.work import WorkItem
from jobs.system import files, lustre


def prepared(
    settings: Settings, root: Path, layout: lustre.Layout, images: tuple[Path, Manifest] | None, progress: Progress
) -> Data:
    """Make what a baseline reads, or see that there is room for what it writes.

    `images` are folder and manifest of the dataset that gives the mean size of the blocks, where it reads such: a read
    costs about a seek and its bytes, so blocks of the mean cost what the files do; those of the median would cost less.
    """
    folder = own_folder(root, f"{datafile.FOLDER}{layout.suffix}")
    if layout.asked:
        lustre.set_layout(folder, layout)
    path, listing = images or (folder, None)
    mean = listing.total_bytes / len(listing.files) if listing else None

    def made(done: int, total: int) -> None:
        progress(f"making the file of {root}", done, total, "MiB")

    file, size, block_bytes = baseline.prepared(settings, folder, mean, made)
    found: Data = {"path": str(path), "folder": str(folder), "file": file.name if file else None}
    found |= {"bytes": size, "block_bytes": block_bytes}
    if listing:
        found["checksum"] = listing.checksum
    return {**found, **cast("Data", lustre.stripe(folder, file, layout))} if file else found


def require_possible(settings: Settings, root: Path) -> None:
    """See that a file that is written, or is not there yet, has room; raises DatasetError where it has not."""
    layout = lustre.Layout(settings["storage"]["stripe_count"], settings["storage"]["stripe_size_mib"])
    folder = place(root, f"{datafile.FOLDER}{layout.suffix}") if root.is_dir() else root
    size = baseline.file_bytes(settings)
    missing = datafile.lacking(folder, size) if baseline.reads(settings) else size
    datafile.require_room(next(each for each in (folder, *folder.parents) if each.is_dir()), missing)


def has_file(settings: Settings) -> bool:
    """Return whether a benchmark reads or writes a file of ours."""
    return registry.of(settings).data == "file"


def engine(settings: Settings) -> str | None:
    """Return which engine a baseline has on this machine: its runs share it, or their median would mix.

    Nothing for another cell, or where the engine is missing: then a run fails and says so.
    """
    with suppress(EngineError):
        return baseline.engine_of(settings) if has_file(settings) else None
    return None


def require_engine(settings: Settings) -> None:
    """See that the engine of a baseline is here."""
    try:
        if has_file(settings):
            baseline.engine_of(settings)
    except EngineError as error:
        hint = "install or load it; benchmark.engine=builtin needs no other program"
        raise EnvironmentFaultError(str(error), hint) from error


def request(item: WorkItem, raw: Path) -> FileRequest | None:
    """Return what a run reads or writes, as `jobs.model.request.FileRequest` has it.

    None for a cell that is no baseline.
    """
    if not has_file(item["settings"]):
        return None
    data = item["dataset"]
    file = Path(data["folder"]) / (data["file"] or _written(item))
    return {"file": str(file), "file_bytes": data["bytes"], "block_bytes": data["block_bytes"], "raw": str(raw)}


@contextmanager
def tidied(item: WorkItem) -> Iterator[None]:
    """Remove what a run has written, also where it was killed; of an object store the next run does."""
    try:
        yield
    finally:
        settings = item["settings"]
        if has_file(settings) and item["dataset"]["file"] is None and "kind" not in settings["storage"]:
            with suppress(OSError):
                files.remove(Path(item["dataset"]["folder"]) / _written(item))


def left(recorded: Record) -> list[Path]:
    """List what a cell's last run, which was cut, has written and could not take away; its next run does."""
    data = recorded.get("dataset") or {}
    file = Path(data.get("folder", "/nowhere")) / _written(recorded["cell"])
    return [file] if file.is_file() else []


def _written(cell: RecordedCell | WorkItem) -> str:
    """Name the file that the runs of a cell write: the same for all of them, so that a dead one's goes."""
    return f"written-{cell['id']}.bin"
