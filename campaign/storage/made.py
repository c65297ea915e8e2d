"""What campaigns have made on storages, known by its markers: found, measured, and taken away where nobody uses it."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from campaign.storage import datasets, locks
from campaign.storage.roots import place
from jobs.benchmarks.engines import datafile
from jobs.burst_buffer import claim
from jobs.checkpoints import reclaim
from jobs.checkpoints.run import FOLDER as CHECKPOINTS
from jobs.data import make, manifest, staging
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


_KINDS = (
    ("data set", datasets.FOLDER, make.MARKER_NAME),
    ("baseline", datafile.FOLDER, datafile.MARKER),
    ("staged copies", staging.FOLDER, staging.MARKER),
    ("snapshots", CHECKPOINTS, claim.MARKER_NAME),
)


def made_below(roots: Collection[Path], used: Collection[Path]) -> list[Made]:
    """List what was made below the roots of storages, the largest first; `used` are folders that campaigns read.

    A folder counts that is ours (or root's) alone and has a marker of ours; no link is followed.
    """
    found = [
        made
        for root in dict.fromkeys(root.resolve() for root in roots if root.is_dir())
        for kind, name, marker in _KINDS
        for folder in _folders(kind, root, name)
        if (made := _made(kind, root, folder, marker, used))
    ]
    return sorted(found, key=lambda made: (-made.bytes, made.path))


def _folders(kind: str, root: Path, name: str) -> Iterator[Path]:
    """Yield the folders below a root that may be of a kind: of a baseline each layout has its own."""
    for above in dict.fromkeys((root / name, place(root, name))):
        with suppress(OSError):
            if kind == "baseline":
                yield from (above.parent / each for each in files.names(above.parent) if each.startswith(name))
            else:
                yield from (above / each for each in files.names(above))


def _made(kind: str, root: Path, folder: Path, marker: str, used: Collection[Path]) -> Made | None:
    with suppress(OSError):
        if files.distrust(folder):
            return None
        tree = files.tree(folder)
        if marker not in tree or not stat.S_ISREG(tree[marker].st_mode):
            return None
        sizes = [status.st_size for status in tree.values() if stat.S_ISREG(status.st_mode)]
        return Made(kind, folder, root, sum(sizes), len(sizes), tree[marker].st_mtime, folder in used)
    return None


def remove(made: Made, campaign: Path) -> str:
    """Take a thing away; returns why not, where it was left: a run holds its storage, or not all in it is ours.

    The lock of a storage whose root cannot be written is in the folder of the `campaign`.
    """
    remover: Callable[[Path], str] = {
        "data set": _remove_dataset,
        "baseline": _remove_baseline,
        "staged copies": _remove_copies,
        "snapshots": _remove_snapshots,
    }[made.kind]
    with ExitStack() as held:
        try:
            lock = locks.lock_path(made.root, campaign)  # of the storage: a run holds it
            if lock.parent.is_dir():
                held.enter_context(FileLock(lock, mode=0o666, fallback_to_soft=False).acquire(timeout=_SOON_S))
            return remover(made.path)
        except Timeout as error:
            return f"{error.lock_file} is held: a run, or who makes it, uses it"
        except (JobError, OSError) as error:
            return str(error)


def _remove_dataset(folder: Path) -> str:
    with FileLock(folder / make.LOCK_NAME).acquire(timeout=_SOON_S):
        tree = files.tree(folder)
        listed = None
        with suppress(DatasetError):
            listed = {file.name for file in manifest.load(folder).files}
        odd = _strangers(tree, lambda name: name in listed if listed is not None else _is_of_a_dataset(name))
        return odd or _removed(folder, make.MARKER_NAME)


def _is_of_a_dataset(name: str) -> bool:
    return name.lower().endswith(manifest.SUFFIXES_OF_OURS)


def _remove_baseline(folder: Path) -> str:
    with FileLock(folder / datafile.LOCK, fallback_to_soft=False).acquire(timeout=_SOON_S):
        odd = _strangers(files.tree(folder), lambda name: bool(_OF_A_BASELINE.fullmatch(name)))
        return odd or _removed(folder, datafile.MARKER)


def _remove_copies(folder: Path) -> str:
    source = Path(os.fsdecode(files.read(folder / staging.MARKER)))
    with staging.held(folder, source, _SOON_S):
        _, left = staging.taken_away(source, folder)
    return f"{left[0]} is no copy of a file that is still as it was copied" if left else ""


def _remove_snapshots(folder: Path) -> str:
    reclaim.clear([folder], _SOON_S)
    return f"{folder} has files that are not ours" if folder.exists() else ""


def _strangers(tree: dict[str, os.stat_result], is_ours: Callable[[str], bool]) -> str:
    """Say which of the files in a folder is not ours; empty where all are. Ours have no links and no second name."""
    for name, status in tree.items():
        if stat.S_ISDIR(status.st_mode):
            continue
        hidden = name.rpartition("/")[2].startswith((".tfio-", "..tfio-")) or name.endswith(files.TEMPORARY)
        known = hidden or name == manifest.MANIFEST_NAME or is_ours(name)
        if not (known and stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())):
            return f"it holds {name}, which is not ours"
    return ""


def _removed(folder: Path, marker: str) -> str:
    """Remove a folder: what makes it a data set first, and the marker last, by which what a kill leaves is known."""
    files.remove(folder / manifest.MANIFEST_NAME, missing_ok=True)
    tree = files.tree(folder)
    for name in sorted(tree.keys() - {marker}, reverse=True):  # what is in a folder before the folder
        if stat.S_ISDIR(tree[name].st_mode):
            files.remove_empty(folder / name)
        else:
            files.remove(folder / name, missing_ok=True)
    files.remove(folder / marker)
    files.remove_empty(folder)
    return ""


def age(made: Made) -> str:
    """Say for how long it has been there."""
    hours = (time.time() - made.made_s) / 3600
    return f"{hours / 24:.0f} d" if hours >= 24 else f"{hours:.0f} h"  # noqa: PLR2004


def named(things: Sequence[Made], word: str) -> list[Made]:
    """Return the things that a word names: by path, by the name of the folder, or by the start of it."""
    path = Path(word).expanduser().absolute()
    same = [each for each in things if path == each.path or word == each.path.name]
    return same or [each for each in things if each.path.name.startswith(word)]
