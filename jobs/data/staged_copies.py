"""Files that are read from copies on a faster storage: how they are copied, and the map of those of a campaign.

A copy has its name only when it was read back as it was copied; then it has the size and the time of change of its
original, by which it is known again. So what a kill leaves is gone on with, and a map names whole copies only: it is
what ``python -m campaign stage apply`` writes. A script of one's own::

    paths = staged(paths, "results/staging/advised.json")
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from filelock import FileLock, Timeout

from jobs.errors import DatasetError
from jobs.model import reading
from jobs.system import durable, files, transfer

SCHEMA = 1
FOLDER = "staged"
"""Where, below the root of the faster storage, copies lie."""
File = tuple[str, int, int]
"""A file's name below the folder of the originals, its bytes, and its time of change (ns)."""
MARKER, _LOCK, _INCOMING = ".tfio-staged", ".tfio-lock", ".incoming"
_BATCH_FILES, _BATCH_BYTES = 256, 256 << 20
_HOW = transfer.How(streams=4)
_PRIVATE = 0o700  # of the folder of copies: those of the originals may be private
_CURE = "python -m campaign stage plan, then stage apply"


class _Map(TypedDict):
    """A file: the folders of originals and copies, the root of the storage that holds these, and what was copied."""

    source: str
    copies: str
    root: str
    files: list[File]


@dataclass(frozen=True)
class StagedFiles:
    """What a map says."""

    source: Path
    copies: Path
    root: Path  # of the storage that holds the copies
    files: Mapping[str, tuple[int, int]]  # relative name to bytes and time of change (ns), of original and copy

    def path_of(self, path: Path) -> Path:
        """Return where a file is to be read: its copy, or `path` itself where there is none in the map.

        Raises DatasetError: the copy is gone or is not what was copied, or the original is no longer that.
        """
        here = path.absolute()
        if not here.is_relative_to(self.source):
            here = files.named(path)  # a folder may be called by a link
        name = str(here.relative_to(self.source)) if here.is_relative_to(self.source) else ""
        wanted = self.files.get(name)
        if wanted is None:
            return path
        for each, what in ((self.copies / name, "is no longer as it was copied"), (path, "has changed since")):
            if identity(each) != wanted:
                raise DatasetError(f"{each} {what}, or is gone", f"copy anew: {_CURE}")
        return self.copies / name


def identity(path: Path) -> tuple[int, int] | None:
    """Return bytes and time of change (ns) of a regular file, by which a copy is that of its original; else None."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def load(path: Path) -> StagedFiles:
    """Read a map; DatasetError where it is missing, damaged or newer."""
    try:
        found = reading.read(files.named(path), _Map, SCHEMA)
        copied = {name: (size, changed_ns) for name, size, changed_ns in found["files"]}
    except (OSError, ValueError, reading.NewerFileError) as error:
        raise DatasetError(f"{path} is no map of staged files that can be read: {error}", _CURE) from error
    if fault := strays([found["source"], found["copies"], found["root"]], copied):
        raise DatasetError(f"{path}: {fault}", _CURE)
    return StagedFiles(Path(found["source"]), Path(found["copies"]), Path(found["root"]), copied)


def strays(folders: Iterable[str], names: Iterable[str]) -> str:
    """Say which folder is no absolute path, or which name is of no file below one; empty where all are as they must be.

    Names that this module uses itself beside the copies are none either.
    """
    for folder in folders:
        if not (folder.startswith("/") and files.is_below(folder[1:])):
            return f"{folder!r} is no absolute path of a folder"
    odd = (name for name in names if not files.is_below(name) or name.partition("/")[0] in (MARKER, _LOCK, _INCOMING))
    return next((f"{name!r} is no file below a folder" for name in odd), "")


def staged(paths: Sequence[str | Path], staged_map: str | Path) -> list[str]:
    """Return the paths with those replaced of which the map has a copy; errors are those of `StagedFiles.path_of`."""
    found = load(Path(staged_map))
    return [str(found.path_of(Path(path))) for path in paths]


@contextmanager
def held(copies: Path, source: Path, wait_s: float = -1) -> Iterator[None]:
    """Hold the folder of the copies, which is made and marked; DatasetError for one that somebody else made or holds.

    `wait_s`: how long to wait for who holds it; for ever where it is negative.
    """
    files.make_folder(copies, exist_ok=True, mode=_PRIVATE)
    if fault := files.distrust(copies):
        raise DatasetError(fault, "name another place for the copies")
    names = files.names(copies)
    if MARKER not in names and not all(name.startswith((_LOCK, f".{MARKER}.")) for name in names):  # cut while it began
        raise DatasetError(f"{copies} has files that are not ours", "move them, or name another place for the copies")
    if MARKER in names and files.read(copies / MARKER) != os.fsencode(source):
        raise DatasetError(f"{copies} holds copies of another folder", "move it, or name another place for the copies")
    try:
        lock = FileLock(copies / _LOCK, timeout=wait_s).acquire()
    except Timeout as error:
        raise DatasetError(f"another run reads from {copies}", "wait until it has ended") from error
    with lock:
        if MARKER not in names:
            files.write(copies / MARKER, str(source))
        for name in files.names(copies):  # of one that was cut
            if name == _INCOMING:
                files.remove_tree(copies / name)
            elif name.startswith(f".{MARKER}."):
                files.remove(copies / name)
        yield


def missing(source: Path, copies: Path, wanted: Sequence[File]) -> list[list[File]]:
    """Return those files of which there is no copy yet, in batches for `copy`.

    Raises DatasetError: an original is not what is wanted, or there is no room.
    """
    left = [each for each in wanted if identity(copies / each[0]) != each[1:]]
    if changed := [name for name, *found in left if identity(source / name) != tuple(found)]:
        what = f"{len(changed)} files changed since they were listed, such as {source / changed[0]}"
        raise DatasetError(what, "leave them alone, and list them again")
    if lack := durable.lack_of_room(copies, sum(size for _, size, _ in left)):
        raise DatasetError(lack, "free some space, or copy less")
    return list(_batches(left))


def copy(source: Path, copies: Path, batch: Sequence[File]) -> None:
    """Copy files, read the copies back from the storage, and give them their names; DatasetError: damaged."""
    incoming, names = copies / _INCOMING, [name for name, *_ in batch]
    files.make_folder(incoming)
    try:
        transfer.copy(source, incoming, [(name, size) for name, size, _ in batch], _HOW)
        arrived = [incoming / name for name in names]
        transfer.sync(arrived, [], _HOW.streams)
        before, after = transfer.hashes([source / name for name in names]), transfer.hashes(arrived, cold=True)
        for path, (name, *wanted), one, other in zip(arrived, batch, before, after, strict=True):
            if one != other or identity(source / name) != tuple(wanted):
                what = f"{source / name} changed while it was copied, or its copy is damaged"
                raise DatasetError(what, "leave it alone and copy anew")
            os.utime(path, ns=(wanted[1], wanted[1]), follow_symlinks=False)
            files.make_folder((copies / name).parent, exist_ok=True, parents=True)
            files.rename(path, copies / name)
        for folder in {(copies / name).parent for name in names}:
            files.sync_folder(folder)
    finally:
        files.remove_tree(incoming)


def taken_away(source: Path, copies: Path, keep: Collection[str] = ()) -> tuple[int, list[Path]]:
    """Remove the copies but those to `keep`, and their folder where nothing is left; returns how many, and what was.

    Left is what is no copy of a file that is still there as it was copied: it may be the last. Hold the folder.
    """
    left, removed = [], 0
    names = [name for name in files.tree(copies) if name not in (MARKER, _LOCK, *keep)]
    for name in sorted(names, reverse=True):  # what is in a folder before the folder
        path = copies / name
        if (found := identity(path)) is None:
            try:
                files.remove_empty(path)
            except OSError:
                left += [path] if not path.is_dir() or path.is_symlink() else []
        elif found == identity(source / name):
            files.remove(path)
            removed += 1
        else:
            left.append(path)
    if not left and not keep:
        files.remove_tree(copies)
    return removed, sorted(left)


def _batches(missing: Sequence[File]) -> Iterator[list[File]]:
    batch: list[File] = []
    for each in missing:
        if batch and (len(batch) == _BATCH_FILES or sum(size for _, size, _ in batch) + each[1] > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch
