"""Copy files to a faster storage ("staged copies"), and read the map that lists the copies.

A copy gets its final name only after the copy was read back and found correct. A copy has the size and the modification
time of its original. These two values identify the copy, so an interrupted ``stage apply`` can be resumed. A map names
only complete copies. ``python -m campaign stage apply`` writes the map. A user's script reads staged copies with::

    paths = staged_paths(paths, "results/staging/advised.json")
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
"""The relative name of an original file, the size in bytes, and the modification time in ns."""
MARKER, _LOCK, _INCOMING = ".tfio-staged", ".tfio-lock", ".incoming"
_BATCH_FILES, _BATCH_BYTES = 256, 256 << 20
_HOW = transfer.TransferOptions(streams=4)
_PRIVATE = 0o700  # mode of the folder of copies, because the originals may be private
_CURE = "python -m campaign stage plan, then stage apply"


class _Map(TypedDict):
    """The content of a map file: the folder of the originals, the folder and storage root of the copies, the files."""

    source: str
    copies: str
    root: str
    files: list[File]


@dataclass(frozen=True)
class StagedFiles:
    """A map from original files to their staged copies."""

    source: Path  # folder of the originals
    copies: Path  # folder of the copies
    root: Path  # root of the storage that has the copies
    # Size in bytes and modification time in ns, by relative name; a copy and its original have equal values.
    files: Mapping[str, tuple[int, int]]

    def path_of(self, path: Path) -> Path:
        """Return the path of a file's staged copy, or `path` itself if the map has no copy of the file.

        Raises DatasetError if the copy is missing or changed, or if the original has changed since the copy was made.
        """
        full_path = path.absolute()
        if not full_path.is_relative_to(self.source):
            full_path = files.resolve_user_path(path)  # `path` may lead through a link to the folder
        name = str(full_path.relative_to(self.source)) if full_path.is_relative_to(self.source) else ""
        expected = self.files.get(name)
        if expected is None:
            return path
        for file, fault in (
            (self.copies / name, "differs from the copy that was made"),
            (path, "has changed since it was copied"),
        ):
            if file_identity(file) != expected:
                raise DatasetError(f"{file} {fault}, or is missing", f"copy again: {_CURE}")
        return self.copies / name


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the size (bytes) and modification time (ns) of a regular file, or None if `path` is no regular file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def load_map(path: Path) -> StagedFiles:
    """Return the map of staged copies in a file.

    Raises DatasetError if the file is missing, damaged, or written by a newer version of this program.
    """
    try:
        document = reading.read_json(files.resolve_user_path(path), _Map, SCHEMA)
        copied = {name: (size, changed_ns) for name, size, changed_ns in document["files"]}
    except (OSError, ValueError, reading.NewerFileError) as error:
        raise DatasetError(f"{path} is not a readable map of staged files: {error}", _CURE) from error
    if fault := path_fault([document["source"], document["copies"], document["root"]], copied):
        raise DatasetError(f"{path}: {fault}", _CURE)
    return StagedFiles(Path(document["source"]), Path(document["copies"]), Path(document["root"]), copied)


def path_fault(folders: Iterable[str], names: Iterable[str]) -> str:
    """Return a text about the first invalid folder or file name, or "" if all are valid.

    A valid folder is an absolute path. A valid file name is relative and stays below its folder. The names of the
    marker, the lock and the folder of incomplete copies are invalid, too.
    """
    for folder in folders:
        if not (folder.startswith("/") and files.is_possible_name_below(folder[1:])):
            return f"{folder!r} is no absolute path of a folder"
    invalid = (
        name
        for name in names
        if not files.is_possible_name_below(name) or name.partition("/")[0] in (MARKER, _LOCK, _INCOMING)
    )
    return next((f"{name!r} is not the name of a file below a folder" for name in invalid), "")


def staged_paths(paths: Sequence[str | Path], staged_map: str | Path) -> list[str]:
    """Return the paths from which a script reads its files: staged copies where the map has copies.

    Raises DatasetError if a copy is missing or changed, or if an original has changed since its copy was made.
    """
    copies = load_map(Path(staged_map))
    return [str(copies.path_of(Path(path))) for path in paths]


@contextmanager
def lock_copies(copies: Path, source: Path, wait_s: float = -1) -> Iterator[None]:
    """Make, mark and lock the folder of the copies for a `with` block.

    `wait_s` is the longest time to wait for the lock, in seconds; a negative number means no limit. Raises DatasetError
    if the folder has other files, or if another process holds the lock.
    """
    files.make_folder(copies, exist_ok=True, mode=_PRIVATE)
    store = Folder(copies)
    refuse_foreign(store, MARKER, str(source))
    try:
        lock = FileLock(copies / _LOCK, timeout=wait_s).acquire()
    except Timeout as error:
        raise DatasetError(f"another run reads from {copies}", "wait until that run has ended") from error
    with lock:
        mark_as_ours(store, MARKER, str(source))
        store.clear(_INCOMING)  # an interrupted copy leaves incomplete files
        store.delete(*(name for name in store.names() if name.startswith(f".{MARKER}.")))
        yield


def missing_copies(source: Path, copies: Path, requested: Sequence[File]) -> list[list[File]]:
    """Return the files that have no copy yet, in batches for `copy_batch`.

    Raises DatasetError if an original has changed since the files were listed, or if the copies do not fit.
    """
    missing = [file for file in requested if file_identity(copies / file[0]) != file[1:]]
    if changed := [name for name, *stamp in missing if file_identity(source / name) != tuple(stamp)]:
        message = f"{len(changed)} files changed since they were listed, such as {source / changed[0]}"
        raise DatasetError(message, f"change no file while files are copied, and list the files again: {_CURE}")
    if lack := files.error_if_too_large(copies, sum(size for _, size, _ in missing)):
        raise DatasetError(lack, "free some space, or copy fewer files")
    return list(_batches(missing))


def copy_batch(source: Path, copies: Path, batch: Sequence[File]) -> None:
    """Copy a batch of files, read the copies back, and rename the copies to their final names.

    Raises DatasetError if a copy is damaged, or if an original has changed meanwhile.
    """
    store, digests = Folder(copies), transfer.hash_files([source / name for name, *_ in batch], streams=_HOW.streams)
    stored_files = [StoredFile(name, size, digest) for (name, size, _), (_, digest) in zip(batch, digests, strict=True)]
    try:
        store.copy_in(_INCOMING, source, stored_files, _HOW)
        problems = store.verify_files(_INCOMING, stored_files, _HOW)
        problems += [name for name, *stamp in batch if file_identity(source / name) != tuple(stamp)]
        if problems:
            message = f"below {source} files changed while they were copied, or copies are damaged: {problems[0]}"
            raise DatasetError(message, "change no file while files are copied, and copy again")
        for name, _, changed_ns in batch:
            os.utime(copies / _INCOMING / name, ns=(changed_ns, changed_ns), follow_symlinks=False)
            files.make_folder((copies / name).parent, exist_ok=True, parents=True)
            files.rename(copies / _INCOMING / name, copies / name)
        for folder in {(copies / name).parent for name, *_ in batch}:
            files.sync_folder(folder)
    finally:
        store.clear(_INCOMING)


def remove_copies(source: Path, copies: Path, keep: Collection[str] = ()) -> tuple[int, list[Path]]:
    """Remove all staged copies except `keep`; return the number of removed copies and the paths that remain.

    A copy remains if its original is missing or has changed, because the copy may be the last correct version of the
    file. If the folder of the copies becomes empty, the folder is removed, too. The caller holds the lock.
    """
    remaining, removed = [], 0
    names = [name for name in files.folder_tree(copies) if name not in (MARKER, _LOCK, *keep)]
    for name in sorted(names, reverse=True):  # remove files before their folder
        path = copies / name
        if (stamp := file_identity(path)) is None:
            try:
                files.remove_empty(path)
            except OSError:
                remaining += [path] if not path.is_dir() or path.is_symlink() else []
        elif stamp == file_identity(source / name):
            files.remove(path)
            removed += 1
        else:
            remaining.append(path)
    if not remaining and not keep:
        files.remove_tree(copies)
    return removed, sorted(remaining)


def _batches(missing: Sequence[File]) -> Iterator[list[File]]:
    batch: list[File] = []
    for file in missing:
        if batch and (len(batch) == _BATCH_FILES or sum(size for _, size, _ in batch) + file[1] > _BATCH_BYTES):
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch
