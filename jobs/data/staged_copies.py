"""Staged copies: files copied to a faster storage and read from there, and the map that lists them for a campaign.

A copy gets its name when it was read back and is correct; then it has the size and the modification time of its
original, by which it is recognised. So a killed copy can be resumed, and a map names complete copies only. The map is
written by ``python -m campaign stage apply``. A user's script::

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
from jobs.store import transfer
from jobs.store.folder import Folder
from jobs.store.store import StoredFile, mark_as_ours, refuse_foreign
from jobs.system import files

SCHEMA = 1
FOLDER = "staged"
"""The folder of the copies, below the root of the faster storage."""
File = tuple[str, int, int]
"""A file's name below the folder of the originals, its size in bytes, and its modification time (ns)."""
MARKER, _LOCK, _INCOMING = ".tfio-staged", ".tfio-lock", ".incoming"
_BATCH_FILES, _BATCH_BYTES = 256, 256 << 20
_HOW = transfer.How(streams=4)
_PRIVATE = 0o700  # of the folder of copies: those of the originals may be private
_CURE = "python -m campaign stage plan, then stage apply"


class _Map(TypedDict):
    """A map file: the folders of originals and copies, the root of the copies' storage, and the copied files."""

    source: str
    copies: str
    root: str
    files: list[File]


@dataclass(frozen=True)
class StagedFiles:
    """A map of staged copies."""

    source: Path
    copies: Path
    root: Path  # of the storage that holds the copies
    files: Mapping[str, tuple[int, int]]  # relative name to bytes and time of change (ns), of original and copy

    def path_of(self, path: Path) -> Path:
        """Return the path from which to read a file: its staged copy, or `path` itself if the map has no copy.

        Raises DatasetError if the copy is missing or changed, or the original has changed since.
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
    """Return the size (bytes) and modification time (ns) of a regular file, which identify it; else None."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def load_map(path: Path) -> StagedFiles:
    """Return the map in a file; raise DatasetError if it is missing, damaged or newer."""
    try:
        document = reading.read(files.named(path), _Map, SCHEMA)
        copied = {name: (size, changed_ns) for name, size, changed_ns in document["files"]}
    except (OSError, ValueError, reading.NewerFileError) as error:
        raise DatasetError(f"{path} is no map of staged files that can be read: {error}", _CURE) from error
    if fault := strays([document["source"], document["copies"], document["root"]], copied):
        raise DatasetError(f"{path}: {fault}", _CURE)
    return StagedFiles(Path(document["source"]), Path(document["copies"]), Path(document["root"]), copied)


def strays(folders: Iterable[str], names: Iterable[str]) -> str:
    """Return a text about the first folder that is no absolute path, or name that is no file below one; empty if none.

    Names that this module itself uses beside the copies count as bad names.
    """
    for folder in folders:
        if not (folder.startswith("/") and files.is_below(folder[1:])):
            return f"{folder!r} is no absolute path of a folder"
    odd = (name for name in names if not files.is_below(name) or name.partition("/")[0] in (MARKER, _LOCK, _INCOMING))
    return next((f"{name!r} is no file below a folder" for name in odd), "")


def staged(paths: Sequence[str | Path], staged_map: str | Path) -> list[str]:
    """Return the paths, with staged copies in place of originals; errors are those of `StagedFiles.path_of`."""
    copies = load_map(Path(staged_map))
    return [str(copies.path_of(Path(path))) for path in paths]


@contextmanager
def locked(copies: Path, source: Path, wait_s: float = -1) -> Iterator[None]:
    """Lock the folder of the copies, made and marked if needed; raise DatasetError if it is somebody else's or in use.

    `wait_s`: seconds to wait for the lock; for ever if negative.
    """
    files.make_folder(copies, exist_ok=True, mode=_PRIVATE)
    store = Folder(copies)
    refuse_foreign(store, MARKER, str(source))
    try:
        lock = FileLock(copies / _LOCK, timeout=wait_s).acquire()
    except Timeout as error:
        raise DatasetError(f"another run reads from {copies}", "wait until it has ended") from error
    with lock:
        mark_as_ours(store, MARKER, str(source))
        store.clear(_INCOMING)  # of a copy that was interrupted
        store.delete(*(name for name in store.names() if name.startswith(f".{MARKER}.")))
        yield


def missing_copies(source: Path, copies: Path, wanted: Sequence[File]) -> list[list[File]]:
    """Return the files that have no copy yet, in batches for `copy_batch`.

    Raises DatasetError if an original has changed since it was listed, or there is no room.
    """
    left = [each for each in wanted if identity(copies / each[0]) != each[1:]]
    if changed := [name for name, *stamp in left if identity(source / name) != tuple(stamp)]:
        what = f"{len(changed)} files changed since they were listed, such as {source / changed[0]}"
        raise DatasetError(what, "leave them alone, and list them again")
    if lack := files.lack_of_room(copies, sum(size for _, size, _ in left)):
        raise DatasetError(lack, "free some space, or copy less")
    return list(_batches(left))


def copy_batch(source: Path, copies: Path, batch: Sequence[File]) -> None:
    """Copy a batch of files, read the copies back, then name them; raise DatasetError if one is damaged."""
    store, digests = Folder(copies), transfer.hash_files([source / name for name, *_ in batch], streams=_HOW.streams)
    listed = [StoredFile(name, size, digest) for (name, size, _), (_, digest) in zip(batch, digests, strict=True)]
    try:
        store.receive(_INCOMING, source, listed, _HOW)
        wrong = store.problems(_INCOMING, listed, _HOW)
        wrong += [name for name, *wanted in batch if identity(source / name) != tuple(wanted)]
        if wrong:
            what = f"below {source} files changed while they were copied, or copies are damaged: {wrong[0]}"
            raise DatasetError(what, "leave them alone and copy anew")
        for name, _, changed_ns in batch:
            os.utime(copies / _INCOMING / name, ns=(changed_ns, changed_ns), follow_symlinks=False)
            files.make_folder((copies / name).parent, exist_ok=True, parents=True)
            files.rename(copies / _INCOMING / name, copies / name)
        for folder in {(copies / name).parent for name, *_ in batch}:
            files.sync_folder(folder)
    finally:
        store.clear(_INCOMING)


def remove_copies(source: Path, copies: Path, keep: Collection[str] = ()) -> tuple[int, list[Path]]:
    """Remove all copies except `keep`, and the folder if it is empty; return the number removed and the paths left.

    A copy is left if its original is missing or has changed, because it may be the last one. The caller holds the lock.
    """
    left, removed = [], 0
    names = [name for name in files.tree(copies) if name not in (MARKER, _LOCK, *keep)]
    for name in sorted(names, reverse=True):  # what is in a folder before the folder
        path = copies / name
        if (stamp := identity(path)) is None:
            try:
                files.remove_empty(path)
            except OSError:
                left += [path] if not path.is_dir() or path.is_symlink() else []
        elif stamp == identity(source / name):
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
