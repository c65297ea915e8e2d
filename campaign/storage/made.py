"""What campaigns have made on storages, known by its markers: found, measured, and taken away where nobody uses it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from campaign.storage import datasets, locks
from campaign.storage.roots import place
from jobs.benchmarks.engines import datafile
from jobs.burst_buffer import reclaim
from jobs.burst_buffer.marker import MARKER_NAME
from jobs.checkpoints.run_snapshots import FOLDER as CHECKPOINTS
from jobs.data import make, manifest, staged_copies
from jobs.errors import DatasetError, JobError
from jobs.system import files

_OF_A_BASELINE = re.compile(r"\.{0,2}\.tfio-baseline.*|\.?(read-\d+|written-[\w.-]+)\.bin(\..*)?")
_SOON_S = 1.0  # in which a lock is free that nobody holds


@dataclass(frozen=True)
class Made:
    """One thing that was made: a folder with a marker of ours."""

    kind: str  # data set, baseline, staged copies or snapshots
    path: Path
    root: Path  # of the storage that it lies on
    bytes: int
    files: int
    made_s: float  # when its marker was written, in seconds since 1970
    used: bool = False  # whether a campaign that was asked about reads it


class _Kind(NamedTuple):
    name: str
    folder: str  # below the root of a storage
    marker: str
    remove: Callable[[Path], str]  # returns why not


def made_below(roots: Collection[Path], used: Collection[Path]) -> list[Made]:
    """List what was made below the roots of storages, the largest first; `used` are folders that campaigns read.

    A folder counts that is ours (or root's) alone and has a marker of ours; no link is followed.
    """
    things = [
        made
        for root in dict.fromkeys(root.resolve() for root in roots if os.path.isdir(root))  # noqa: PTH112 - no error
        for kind in _KINDS
        for folder in _folders(kind, root)
        if (made := _made(kind, root, folder, used))
    ]
    return sorted(things, key=lambda made: (-made.bytes, made.path))


def _folders(kind: _Kind, root: Path) -> Iterator[Path]:
    """Yield the folders below a root that may be of a kind: of a baseline each layout has its own."""
    for above in dict.fromkeys((root / kind.folder, place(root, kind.folder))):
        with suppress(OSError):
            if kind.name == "baseline":
                names = files.names(above.parent)
                yield from (above.parent / name for name in names if name.startswith(kind.folder))
            else:
                yield from (above / name for name in files.names(above))


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


def remove(made: Made, campaign: Path) -> str:
    """Take a thing away; returns why not, where it was left: a run holds its storage, or not all in it is ours.

    The lock of a storage whose root cannot be written is in the folder of the `campaign`.
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
    with staged_copies.held(folder, source, _SOON_S):
        _, left = staged_copies.taken_away(source, folder)
    return f"{left[0]} is no copy of a file that is still as it was copied" if left else ""


def _remove_snapshots(folder: Path) -> str:
    reclaim.clear([folder], _SOON_S)
    return f"{folder} has files that are not ours" if folder.exists() else ""


def _has_name_of_ours(name: str) -> bool:
    """Return whether a name is that of a marker, a lock, a journal, a manifest, or of a file that is half written."""
    last = name.rpartition("/")[2]
    return last.startswith((".tfio-", "..tfio-")) or name.endswith(files.TEMPORARY) or name == manifest.MANIFEST_NAME


def _removed(folder: Path, marker: str, is_ours: Callable[[str], bool]) -> str:
    """Remove a folder, or return which of its files is not ours, and leave all. A link is not ours.

    What makes it a data set goes first, and last the marker, by which is known what a kill leaves.
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
