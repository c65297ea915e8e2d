"""Find the data that campaigns make on storages, and remove such data.

`missing_data` returns the data that cells still lack. `made_folders` finds the folders that a campaign has made by
their marker files. `remove_made` removes such a folder.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from campaign.cells.cell import Cell
from campaign.cells.cell_plan import PlannedCell
from campaign.storage import baseline_files, datasets, locks, objects
from campaign.storage.roots import own_path
from jobs.benchmarks import baseline
from jobs.benchmarks.engines import datafile
from jobs.checkpoints import lease
from jobs.checkpoints.lease import MARKER_NAME
from jobs.checkpoints.run_snapshots import FOLDER as CHECKPOINTS
from jobs.data import make, manifest, specs, staged_copies
from jobs.errors import DatasetError, JobError
from jobs.model.settings import Node, Settings
from jobs.store.folder import Folder
from jobs.system import files

_BASELINE_NAME = re.compile(r"\.{0,2}\.tfio-baseline.*|\.?(read-\d+|written-[\w.-]+)\.bin(\..*)?")
_SOON_S = 1.0  # a lock that is not free within this time counts as in use
_SAMPLE_BYTES = 16 << 20  # number of random bytes that are made to estimate the time to make a file


@dataclass(frozen=True)
class MadeFolder:
    """A folder that a campaign has made; the folder has a marker file."""

    kind: str  # data set, baseline, staged copies or snapshots
    path: Path
    root: Path  # root of the storage that has the folder
    bytes: int
    files: int
    made_s: float  # time at which the marker file was written, in seconds since 1970


class _Kind(NamedTuple):
    name: str
    folder: str  # below the root of a storage
    marker: str
    remove: Callable[[Path], str]  # removes a folder; returns "", or the reason why nothing was removed


def made_folders(roots: Collection[Path]) -> list[MadeFolder]:
    """Return the folders that campaigns have made below the roots of storages, the largest folder first.

    Only folders of this user or of root with a campaign's marker file count. No link is followed.
    """
    made_folders = [
        made
        for root in dict.fromkeys(root.resolve() for root in roots if os.path.isdir(root))  # noqa: PTH112 - no error
        for kind in _KINDS
        for folder in _candidates(kind, root)
        if (made := _describe_made(kind, root, folder))
    ]
    return sorted(made_folders, key=lambda made: (-made.bytes, made.path))


def _candidates(kind: _Kind, root: Path) -> Iterator[Path]:
    """Yield the folders below a root that may be of the kind `kind`; baselines have one folder per stripe layout."""
    for parent in dict.fromkeys((root / kind.folder, own_path(root, kind.folder))):
        with suppress(OSError):
            if kind.name == "baseline":
                names = files.names_in_folder(parent.parent)
                yield from (parent.parent / name for name in names if name.startswith(kind.folder))
            else:
                yield from (parent / name for name in files.names_in_folder(parent))


def _describe_made(kind: _Kind, root: Path, folder: Path) -> MadeFolder | None:
    """Return the description of a folder that a campaign has made.

    Return None if the folder has no marker file of a campaign, or if another user may write to the folder.
    """
    with suppress(OSError):
        if files.reason_to_distrust(folder):
            return None
        tree = files.folder_tree(folder)
        if kind.marker not in tree or not stat.S_ISREG(tree[kind.marker].st_mode):
            return None
        sizes = [status.st_size for status in tree.values() if stat.S_ISREG(status.st_mode)]
        return MadeFolder(kind.name, folder, root, sum(sizes), len(sizes), tree[kind.marker].st_mtime)
    return None


def remove_made(made: MadeFolder, campaign: Path) -> str:
    """Remove a folder that a campaign has made, and return ""; if nothing is removed, return the reason.

    Nothing is removed if the folder is in use, or if a file in it was not made by a campaign. `campaign` is the folder
    for the lock file of a storage with a read-only root.
    """
    kind = next(kind for kind in _KINDS if kind.name == made.kind)
    lock = locks.lock_path(made.root, campaign)  # the lock of the storage, which each run on the storage holds
    try:
        with _try_lock(lock, mode=0o666) if lock.parent.is_dir() else nullcontext():
            return kind.remove(made.path)
    except Timeout as error:
        return f"{error.lock_file} is locked: a run uses the data, or a process makes the data now"
    except (JobError, OSError) as error:
        return str(error)


def _try_lock(path: Path, mode: int = 0o644) -> AbstractContextManager[FileLock]:
    return FileLock(path, mode=mode, fallback_to_soft=False).acquire(timeout=_SOON_S)


def _remove_dataset(folder: Path) -> str:
    with _try_lock(folder / make.LOCK_NAME):
        try:
            names = {file.name for file in manifest.load_manifest(folder).files}
        except DatasetError:  # the data set is incomplete and has no manifest
            names = {name for name in files.folder_tree(folder) if name.lower().endswith(manifest.SUFFIXES_OF_OURS)}
        return _remove_own_files(folder, make.MARKER_NAME, lambda name: name in names)


def _remove_baseline(folder: Path) -> str:
    with _try_lock(folder / datafile.LOCK):
        return _remove_own_files(folder, datafile.MARKER, lambda name: bool(_BASELINE_NAME.fullmatch(name)))


def _remove_copies(folder: Path) -> str:
    source = Path(os.fsdecode(files.read_file(folder / staged_copies.MARKER)))
    with staged_copies.lock_copies(folder, source, _SOON_S):
        _, uncertain = staged_copies.remove_copies(source, folder)
    return f"{uncertain[0]} is not a copy of an unchanged original file" if uncertain else ""


def _remove_snapshots(folder: Path) -> str:
    lease.clear_stores([Folder(folder)], _SOON_S)
    return f"{folder} has files that no campaign has made" if folder.exists() else ""


def _has_name_of_ours(name: str) -> bool:
    """Return whether a campaign uses the file name for a marker, lock, journal, manifest or temporary file."""
    last = name.rpartition("/")[2]
    return last.startswith((".tfio-", "..tfio-")) or name.endswith(files.TEMPORARY) or name == manifest.MANIFEST_NAME


def _remove_own_files(folder: Path, marker: str, is_ours: Callable[[str], bool]) -> str:
    """Remove a folder and return "".

    If a file in the folder is a link or was not made by a campaign, remove nothing and return an error message. The
    manifest is removed first, because a folder without a manifest is no data set. The marker file is removed last, so
    that the remaining files are still found if this process is killed.
    """
    tree = files.folder_tree(folder)
    for name, status in tree.items():
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())
        if not (stat.S_ISDIR(status.st_mode) or (is_own and (_has_name_of_ours(name) or is_ours(name)))):
            return f"no campaign has made the file {name} in this folder"
    files.remove(folder / manifest.MANIFEST_NAME, missing_ok=True)
    # In reverse order, the files of a folder come before the folder.
    for name in sorted(tree.keys() - {marker, manifest.MANIFEST_NAME}, reverse=True):
        if stat.S_ISDIR(tree[name].st_mode):
            files.remove_empty(folder / name)
        else:
            files.remove(folder / name, missing_ok=True)
    files.remove(folder / marker)
    files.remove_empty(folder)
    return ""


_KINDS = (
    _Kind("data set", datasets.FOLDER, make.MARKER_NAME, _remove_dataset),
    _Kind("baseline", datafile.FOLDER, datafile.MARKER, _remove_baseline),
    _Kind("staged copies", staged_copies.FOLDER, staged_copies.MARKER, _remove_copies),
    _Kind("snapshots", CHECKPOINTS, MARKER_NAME, _remove_snapshots),
)


@dataclass
class MissingData:
    """A missing data set or file: its size, its future path, and the cells that need it."""

    description: str  # a phrase for messages, for example ``data set demo``
    place: str  # path or address
    files: int
    bytes: int
    processor_s: float  # time that a single process needs to make the data
    shared: bool = True  # True: the data are made once for all nodes; False: they are made on each node
    no_room: str = ""  # error message if the storage has too little space; empty if it has enough, or if unknown
    cells: set[str] = field(default_factory=set)


def missing_data(entries: Sequence[PlannedCell]) -> list[MissingData]:
    """Return the data that the cells lack; write no file.

    The objects of a data set in a bucket are listed once, with a timeout of 5 s.
    """
    missing_by_key: dict[str, list[MissingData]] = {}
    all_missing: dict[tuple[str, str], MissingData] = {}
    for entry in entries:
        key = datasets.data_key(entry.cell.settings)
        if key not in missing_by_key:
            missing_by_key[key] = [
                all_missing.setdefault((data.description, data.place), data) for data in _missing_data(entry.cell)
            ]
        for data in missing_by_key[key]:
            data.cells.add(entry.cell.id)
    return list(all_missing.values())


def _missing_data(cell: Cell) -> Iterator[MissingData]:
    settings = cell.settings
    storage, dataset = settings["storage"], settings.get("dataset", {"path": ""})
    if storage.get("kind") == "s3":
        if "path" not in dataset:
            yield from _missing_dataset(dataset, *objects.missing_objects(storage, dataset))
        return
    if storage["root"] is None:
        return
    root, shared = files.resolve_links(storage["root"]), cell.access.get("shared", True)
    for data in _missing_files(root, settings, dataset):
        yield replace(data, shared=shared, no_room=_no_room(root, data.bytes) if shared else "")


def _missing_files(root: Path, settings: Settings, dataset: Node) -> Iterator[MissingData]:
    layout = datasets.stripe_layout(settings["storage"])
    if "path" not in dataset:
        folders = datasets.possible_folders(dataset, root, layout)
        if not any(os.access(folder / manifest.MANIFEST_NAME, os.F_OK) for folder in folders):
            missing = make.missing_files(Folder(folders[-1]), specs.dataset_spec(dataset), dataset["name"])
            yield from _missing_dataset(dataset, missing, str(folders[-1]))
    if baseline_files.has_file(settings) and baseline.must_exist_before(settings):
        size = baseline.file_bytes(settings)
        folder = own_path(root, f"{datafile.FOLDER}{layout.suffix}")
        if missing_bytes := datafile.missing_bytes(folder, size):
            path = str(datafile.data_file_path(folder, size))
            yield MissingData("file of a baseline", path, 1, missing_bytes, _random_s(missing_bytes))


def _missing_dataset(dataset: Node, missing: make.MissingFiles, place: str) -> Iterator[MissingData]:
    if missing.indices:
        processor_s = specs.estimate_seconds(specs.dataset_spec(dataset), missing.indices)
        yield MissingData(f"data set {dataset['name']}", place, len(missing.indices), missing.bytes, processor_s)


def _no_room(root: Path, size: int) -> str:
    """Return an error message if a storage has too little space for `size` bytes.

    Return an empty text if the space is enough, or if this machine cannot find out.
    """
    existing_folder = next(folder for folder in (root, *root.parents) if folder.is_dir())
    with suppress(OSError):
        return files.error_if_too_large(existing_folder, size)
    return ""


def _random_s(size: int) -> float:
    """Return the estimated seconds to make `size` random bytes."""
    began = time.perf_counter()
    os.urandom(_SAMPLE_BYTES)
    return (time.perf_counter() - began) * size / _SAMPLE_BYTES
