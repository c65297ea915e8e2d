"""The data that campaigns make on storages.

`to_make` returns what is missing before cells can run. What was made is found by its markers (`made_below`) and removed
if no campaign uses it (`remove_made`).
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
from campaign.cells.cell_plan import Entry
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

_OF_A_BASELINE = re.compile(r"\.{0,2}\.tfio-baseline.*|\.?(read-\d+|written-[\w.-]+)\.bin(\..*)?")
_SOON_S = 1.0  # a lock that is not free within this time is held
_SAMPLE_BYTES = 16 << 20  # random bytes made to estimate the time for a file


@dataclass(frozen=True)
class Made:
    """A folder that a campaign has made, with a marker of ours."""

    kind: str  # data set, baseline, staged copies or snapshots
    path: Path
    root: Path  # root of its storage
    bytes: int
    files: int
    made_s: float  # when its marker was written, in seconds since 1970
    used: bool = False  # whether one of the given campaigns reads it


class _Kind(NamedTuple):
    name: str
    folder: str  # below the root of a storage
    marker: str
    remove: Callable[[Path], str]  # returns why not


def made_below(roots: Collection[Path], used: Collection[Path]) -> list[Made]:
    """Return the folders made below the roots of storages, the largest first; `used`: folders that campaigns read.

    Only folders of this user (or root) with a marker of ours count; no link is followed.
    """
    things = [
        folder_made
        for root in dict.fromkeys(root.resolve() for root in roots if os.path.isdir(root))  # noqa: PTH112 - no error
        for kind in _KINDS
        for folder in _folders(kind, root)
        if (folder_made := _made(kind, root, folder, used))
    ]
    return sorted(things, key=lambda folder_made: (-folder_made.bytes, folder_made.path))


def _folders(kind: _Kind, root: Path) -> Iterator[Path]:
    """Yield the folders below a root that may be of a kind (a baseline has one folder per layout)."""
    for parent in dict.fromkeys((root / kind.folder, own_path(root, kind.folder))):
        with suppress(OSError):
            if kind.name == "baseline":
                names = files.names(parent.parent)
                yield from (parent.parent / name for name in names if name.startswith(kind.folder))
            else:
                yield from (parent / name for name in files.names(parent))


def _made(kind: _Kind, root: Path, folder: Path, used: Collection[Path]) -> Made | None:
    with suppress(OSError):
        if files.distrust(folder):
            return None
        tree = files.tree(folder)
        if kind.marker not in tree or not stat.S_ISREG(tree[kind.marker].st_mode):
            return None
        sizes = [status.st_size for status in tree.values() if stat.S_ISREG(status.st_mode)]
        return Made(kind.name, folder, root, sum(sizes), len(sizes), tree[kind.marker].st_mtime, folder in used)
    return None


def remove_made(made: Made, campaign: Path) -> str:
    """Remove a made folder; return the reason if it was left (a run holds its storage, or a file is not ours), else "".

    If a storage's root cannot be written, its lock is in the folder of the `campaign`.
    """
    kind = next(kind for kind in _KINDS if kind.name == made.kind)
    lock = locks.lock_path(made.root, campaign)  # of the storage: a run holds it
    try:
        with _held(lock, mode=0o666) if lock.parent.is_dir() else nullcontext():
            return kind.remove(made.path)
    except Timeout as error:
        return f"{error.lock_file} is held: a run, or who makes it, uses it"
    except (JobError, OSError) as error:
        return str(error)


def _held(path: Path, mode: int = 0o644) -> AbstractContextManager[FileLock]:
    return FileLock(path, mode=mode, fallback_to_soft=False).acquire(timeout=_SOON_S)


def _remove_dataset(folder: Path) -> str:
    with _held(folder / make.LOCK_NAME):
        try:
            names = {file.name for file in manifest.load(folder).files}
        except DatasetError:  # it is half made
            names = {name for name in files.tree(folder) if name.lower().endswith(manifest.SUFFIXES_OF_OURS)}
        return _removed(folder, make.MARKER_NAME, lambda name: name in names)


def _remove_baseline(folder: Path) -> str:
    with _held(folder / datafile.LOCK):
        return _removed(folder, datafile.MARKER, lambda name: bool(_OF_A_BASELINE.fullmatch(name)))


def _remove_copies(folder: Path) -> str:
    source = Path(os.fsdecode(files.read(folder / staged_copies.MARKER)))
    with staged_copies.locked(folder, source, _SOON_S):
        _, left = staged_copies.remove_copies(source, folder)
    return f"{left[0]} is no copy of a file that is still as it was copied" if left else ""


def _remove_snapshots(folder: Path) -> str:
    lease.clear([Folder(folder)], _SOON_S)
    return f"{folder} has files that are not ours" if folder.exists() else ""


def _has_name_of_ours(name: str) -> bool:
    """Return whether a name is that of a marker, lock, journal, manifest or unfinished file of ours."""
    last = name.rpartition("/")[2]
    return last.startswith((".tfio-", "..tfio-")) or name.endswith(files.TEMPORARY) or name == manifest.MANIFEST_NAME


def _removed(folder: Path, marker: str, is_ours: Callable[[str], bool]) -> str:
    """Remove a folder; if a file in it is not ours (or a link), remove nothing and return a sentence on that file.

    The manifest is removed first, so that it is no data set any more; the marker last, so that a kill leaves it.
    """
    tree = files.tree(folder)
    for name, status in tree.items():
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())
        if not (stat.S_ISDIR(status.st_mode) or (is_own and (_has_name_of_ours(name) or is_ours(name)))):
            return f"it holds {name}, which is not ours"
    files.remove(folder / manifest.MANIFEST_NAME, missing_ok=True)
    for name in sorted(tree.keys() - {marker, manifest.MANIFEST_NAME}, reverse=True):  # a folder after what is in it
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
class ToMake:
    """A missing data set or file: its size, the place where it will lie, and the cells that need it."""

    what: str
    place: str
    files: int
    bytes: int
    processor_s: float  # time that one process takes to make it
    shared: bool = True  # made once, not on each node
    no_room: str = ""  # sentence on missing room on its storage, if known here
    cells: set[str] = field(default_factory=set)


def to_make(entries: Sequence[Entry]) -> list[ToMake]:
    """Return the missing data of these cells; nothing is written. A bucket is asked once per data, for 5 s at most."""
    of_data: dict[str, list[ToMake]] = {}
    things: dict[tuple[str, str], ToMake] = {}
    for entry in entries:
        key = datasets.data_key(entry.cell.settings)
        if key not in of_data:
            of_data[key] = [things.setdefault((each.what, each.place), each) for each in _missing(entry.cell)]
        for thing in of_data[key]:
            thing.cells.add(entry.cell.id)
    return list(things.values())


def _missing(cell: Cell) -> Iterator[ToMake]:
    settings = cell.settings
    storage, dataset = settings["storage"], settings.get("dataset", {"path": ""})
    if storage.get("kind") == "s3":
        if "path" not in dataset:
            yield from _dataset(dataset, *objects.lacking(storage, dataset))
        return
    root, shared = Path(storage["root"]).expanduser().resolve(), cell.access.get("shared", True)
    for thing in _files_below(root, settings, dataset):
        yield replace(thing, shared=shared, no_room=_no_room(root, thing.bytes) if shared else "")


def _files_below(root: Path, settings: Settings, dataset: Node) -> Iterator[ToMake]:
    layout = datasets.layout_of(settings["storage"])
    if "path" not in dataset:
        folders = datasets.folders_of(dataset, root, layout)
        if not any(os.access(folder / manifest.MANIFEST_NAME, os.F_OK) for folder in folders):
            missing = make.lacking(Folder(folders[-1]), specs.spec_of(dataset), dataset["name"])
            yield from _dataset(dataset, missing, str(folders[-1]))
    if baseline_files.has_file(settings) and baseline.reads(settings):
        size = baseline.file_bytes(settings)
        folder = own_path(root, f"{datafile.FOLDER}{layout.suffix}")
        if missing_bytes := datafile.lacking(folder, size):
            path = str(datafile.named(folder, size))
            yield ToMake("file of a baseline", path, 1, missing_bytes, _random_s(missing_bytes))


def _dataset(dataset: Node, missing: make.Lacking, where: str) -> Iterator[ToMake]:
    if missing.indices:
        took_s = specs.processor_s(specs.spec_of(dataset), missing.indices)
        yield ToMake(f"data set {dataset['name']}", where, len(missing.indices), missing.bytes, took_s)


def _no_room(root: Path, size: int) -> str:
    """Return the sentence that a storage lacks room; empty if it has room, or if it cannot be read here."""
    there = next(folder for folder in (root, *root.parents) if folder.is_dir())
    with suppress(OSError):
        return files.lack_of_room(there, size)
    return ""


def _random_s(size: int) -> float:
    began = time.perf_counter()
    os.urandom(_SAMPLE_BYTES)
    return (time.perf_counter() - began) * size / _SAMPLE_BYTES
