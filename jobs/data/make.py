"""Making a synthetic dataset: in parallel, whole or not at all, and resumable after a kill.

Every image is written under a temporary name and renamed. The journal lists images that are known to be on
the device: lines are added only after `syncfs(2)` has returned. A make that resumes keeps the images of the
journal that still have their size, and makes all others anew, which costs a few seconds at most; so neither a
kill nor a power cut can pass a torn file off as whole. `manifest.json` is written last and durably: it alone
makes the dataset exist.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from jobs.data.journal import Journal
from jobs.data.manifest import MANIFEST_NAME, ImageFile, Manifest, load, verify
from jobs.data.pool import TEMPORARY_GLOB, PoolBrokenError, make_files, to_folder
from jobs.data.specs import Spec, dataset_id, folders_of, parameters_of, versions
from jobs.errors import DatasetError
from jobs.system import durable, files
from jobs.system.page_cache import sync

Progress = Callable[[int, int], None]

MARKER_NAME = ".tfio-dataset"
LOCK_NAME = ".tfio-lock"
_JOURNAL_NAME = ".tfio-journal"
_BLOCK = 4096  # bytes; the allocation unit of ext4 and XFS
_LISTING_BYTES = 120  # a file's share of manifest, journal and directory


class Lacking(NamedTuple):
    """What is to be made of a dataset: files by index, and the bytes that they take on a device."""

    indices: list[int]
    bytes: int


def make(
    folder: Path, spec: Spec, *, name: str, processes: int, progress: Progress = lambda _done, _total: None
) -> Manifest:
    """Make a dataset, or complete or repair what is there of it; equal specs give equal bytes.

    The folder, usually ``<storage root>/datasets/<dataset_id(name, spec)>``, is made where it is missing. A complete
    dataset is returned without a write, so it may lie on a read-only file system. The `processes` are spawned, so a
    script that calls this needs its ``if __name__ == "__main__"``; `progress` is told how many images are done and how
    many there will be. Raises DatasetError where the folder holds something else, the device is full or read-only, or a
    process was killed.
    """
    identity = dataset_id(name, spec)
    with _explained(folder):
        found = _complete(folder, spec)
        if found is None:
            files.make_folder(folder, exist_ok=True, parents=True)
            _refuse_foreign(folder, identity)
            with FileLock(folder / LOCK_NAME):
                found = _complete(folder, spec) or _make(folder, spec, identity, processes, progress)
    progress(spec.files, spec.files)
    return found


def _complete(folder: Path, spec: Spec) -> Manifest | None:
    """Return the manifest of a dataset that needs no work, else None."""
    try:
        manifest = load(folder)
        verify(folder, manifest)
    except DatasetError:
        return None
    return manifest if is_of(manifest, spec) else None


def is_of(manifest: Manifest, spec: Spec) -> bool:
    """Return whether a manifest is that of a dataset of these parameters, by the same generator."""
    version = (manifest.generator or {}).get("generator")
    return (manifest.parameters, version) == (parameters_of(spec), spec.version)


def require(manifest: Manifest, spec: Spec, folder: Path) -> None:
    """Raise DatasetError where a manifest is that of another dataset than its folder's name says."""
    if not is_of(manifest, spec):
        raise DatasetError(
            f"{folder} holds another dataset", f"`rm -r {folder}`, or name another place: storage.root=…"
        )


def _refuse_foreign(folder: Path, identity: str) -> None:
    """Raise DatasetError where others may write to a folder, it is not ours, or holds another dataset."""
    if fault := files.distrust(folder):
        raise DatasetError(fault, "storage.root=… gives another place")
    names = files.names(folder)
    if MARKER_NAME in names:
        holds = files.read(folder / MARKER_NAME).decode(errors="replace").strip()
        if holds != identity:
            message = f"{folder} holds the dataset {holds}, not {identity}"
            raise DatasetError(message, f"name another folder, or `rm -r {folder}` if it is not needed")
    elif any(not name.lstrip(".").startswith(("tfio-dataset", "tfio-lock")) for name in names):
        message = f"{folder} has files that are not ours ({', '.join(names[:3])})"
        raise DatasetError(message, "name an empty or a new folder; use `folder` to measure images of your own")


def lacking(folder: Path, spec: Spec, name: str) -> Lacking:
    """Return what is to be made of a dataset in this folder: nothing of one that has its manifest, all of a new one."""
    if os.access(folder / MANIFEST_NAME, os.F_OK):
        return Lacking([], 0)
    with suppress(OSError):
        return lacking_of(spec, _kept(files.tree(folder), spec, _journal(folder, spec, dataset_id(name, spec))))
    return lacking_of(spec)


def lacking_of(spec: Spec, there: Collection[int] = ()) -> Lacking:
    """Return what a dataset needs beside the files that are `there`, by index."""
    indices = [index for index in range(spec.files) if index not in there]
    sizes = spec.sizes()[indices].tolist()
    return Lacking(indices, sum(-(-size // _BLOCK) * _BLOCK + _LISTING_BYTES for size in sizes))


def _journal(folder: Path, spec: Spec, identity: str) -> Journal:
    return Journal(folder / _JOURNAL_NAME, {"dataset": identity, **versions(spec)})


def _kept(there: Mapping[str, os.stat_result], spec: Spec, journal: Journal) -> dict[int, int]:
    """Return those files of the journal that still have their size: bytes by index."""
    return {index: size for index, size in journal.read().items() if _has_size(there.get(spec.name(index)), size)}


def _make(folder: Path, spec: Spec, identity: str, processes: int, progress: Progress) -> Manifest:
    """Make what is missing; the lock is ours."""
    _refuse_foreign(folder, identity)
    files.write(folder / MARKER_NAME, identity + "\n")
    files.remove(folder / MANIFEST_NAME, missing_ok=True)
    there = files.tree(folder)
    for leftover in fnmatch.filter(there, TEMPORARY_GLOB):
        files.remove(folder / leftover)
    journal = _journal(folder, spec, identity)
    sizes = _kept(there, spec, journal)
    missing, needed = lacking_of(spec, sizes)
    if lack := durable.lack_of_room(folder, needed):
        raise DatasetError(lack, _MORE_SPACE)
    journal.start(sizes)
    for name in folders_of(spec):
        files.make_folder(folder / name, exist_ok=True)
    with journal, closing(make_files(partial(to_folder, folder), spec, missing, processes)) as batches:
        for batch in batches:
            sizes.update(batch)
            journal.add(batch)
            progress(len(sizes), spec.files)
    return _finish(folder, spec, sizes)


def _finish(folder: Path, spec: Spec, sizes: dict[int, int]) -> Manifest:
    """Write the manifest: from here on, the dataset exists."""
    manifest = manifest_of(spec, sizes)
    verify(folder, manifest)
    files.write(folder / MANIFEST_NAME, manifest.to_json())
    # Pages that are still dirty could not be evicted by posix_fadvise(2) before a measurement.
    sync(folder)
    return manifest


def manifest_of(
    spec: Spec, sizes: Mapping[int, int], objects: Mapping[int, tuple[str | None, str | None]] | None = None
) -> Manifest:
    """Return the manifest of what was made, by index: sizes in bytes; of objects, ETag and SHA-256."""
    return Manifest(
        kind="synthetic",
        parameters=parameters_of(spec),
        generator=versions(spec),
        files=tuple(ImageFile(spec.name(i), sizes[i], spec.label(i)) for i in range(spec.files)),
        classes=folders_of(spec),
        objects=None if objects is None else tuple(objects[index] for index in range(spec.files)),
    )


def _has_size(status: os.stat_result | None, size: int) -> bool:
    return status is not None and stat.S_ISREG(status.st_mode) and status.st_size == size


_MORE_SPACE = "free some space, name another storage, or ask for fewer or smaller files; what is there is kept"
_CURES = {
    errno.ENOSPC: _MORE_SPACE,
    errno.EDQUOT: "your quota is used up: " + _MORE_SPACE,
    errno.EROFS: "name a storage that is mounted for writing",
    errno.EACCES: "name a storage whose root you may write to, or ask its owner for the right",
    errno.EPERM: "name a storage whose root you may write to, or ask its owner for the right",
    errno.ENOTDIR: "name a folder, not a file",
    errno.ELOOP: "remove the link, or name another place: storage.root=…",
}


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the operating system says into a DatasetError with a cure."""
    try:
        yield
    except PoolBrokenError as error:
        message = f"a process that made files for {folder} was killed, most likely for lack of memory"
        raise DatasetError(message, "use fewer processes and repeat the command: what is there is kept") from error
    except OSError as error:
        message = f"cannot make the dataset in {folder}: {error.strerror or error}"
        cure = _CURES.get(error.errno or 0, "see to the file system and repeat the command: what is there is kept")
        raise DatasetError(message, cure) from error
