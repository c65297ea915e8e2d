"""Make a synthetic dataset in a folder or a bucket, with several processes; a killed run can be resumed.

Every file is stored completely or not at all. The journal (`jobs.store.store`) lists the files that are durable. A
resumed run keeps a file of the journal if the size of the file (in a bucket also the ETag) is unchanged. The resumed
run makes all other files again, which costs a few seconds of work at most. So an incomplete file never counts as
complete, even after a kill or a power cut. `manifest.json` is written last and durably: a dataset without
`manifest.json` counts as incomplete.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock

from jobs.data.manifest import (
    MANIFEST_NAME,
    MOST_BYTES,
    SUFFIXES_OF_OURS,
    DatasetFile,
    Manifest,
    manifest_difference,
    parse_manifest,
    verify_files,
)
from jobs.data.specs import (
    PoolBrokenError,
    Spec,
    dataset_id,
    generator_versions,
    make_files,
    spec_folders,
    spec_parameters,
    write_content,
)
from jobs.errors import DatasetError
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.store.store import Journal, PutResult, Store, StoreEntry, error_if_too_large, mark_as_ours, refuse_foreign
from jobs.system import files
from jobs.system.making_lock import acquire_making_lock

Progress = Callable[[int, int], None]

MARKER_NAME = ".tfio-dataset"
LOCK_NAME = ".tfio-lock"
_BLOCK = 4096  # bytes; the allocation unit of ext4 and XFS
_LISTING_BYTES = 120  # bytes that one file takes in the manifest, the journal and the directory
_AGAIN = "give the same command again: complete files are not made again"


class MissingFiles(NamedTuple):
    """The indices of the files that a dataset still lacks, and the bytes that these files need on a device."""

    indices: list[int]
    bytes: int


def make_dataset(
    place: Path | Folder | Bucket,
    spec: Spec,
    *,
    name: str,
    processes: int,
    progress: Progress = lambda _done, _total: None,
) -> Manifest:
    """Make a synthetic dataset, or complete an incomplete dataset, and return its manifest.

    Equal specs give equal bytes. A missing folder is made; the folder is usually
    ``<storage root>/datasets/<dataset_id(name, spec)>``. If the dataset is complete, this function writes nothing, so a
    complete dataset may lie on a read-only file system. The `processes` are spawned, so a script that calls this
    function needs ``if __name__ == "__main__"``. This function calls `progress` with the number of finished files and
    the number of all files.

    Raises DatasetError if the place has other files or differs from its manifest, if the storage is full or read-only,
    or if a process was killed. Raises ObjectStoreError if the object store refuses a request or does not answer.
    """
    store, identity = Folder(place) if isinstance(place, Path) else place, dataset_id(name, spec)
    with _errors_with_cures(store):
        manifest = _existing_manifest(store, spec, identity)
        if manifest is None:
            if isinstance(store, Folder):
                files.make_folder(store.root, exist_ok=True, parents=True)
            refuse_foreign(store, MARKER_NAME, identity)
            # The lock makes two calls for one folder run one after the other. A bucket needs no lock, because two
            # calls for one bucket put equal bytes.
            with acquire_making_lock(FileLock(store.root / LOCK_NAME)) if isinstance(store, Folder) else nullcontext():
                manifest = _existing_manifest(store, spec, identity) or _make_missing(
                    store, spec, identity, processes, progress
                )
    progress(spec.files, spec.files)
    return manifest


def _existing_manifest(store: Folder | Bucket, spec: Spec, identity: str) -> Manifest | None:
    """Return the manifest of a complete dataset, or None if the dataset is missing or incomplete."""
    path = f"{store}/{MANIFEST_NAME}"
    try:
        manifest = parse_manifest(store.read(MANIFEST_NAME, MOST_BYTES), path)
    except FileNotFoundError:
        return None
    except files.OddFileError as error:
        raise DatasetError(f"{path} is damaged: {error}", f"remove {path} and {_AGAIN}") from error
    if isinstance(store, Bucket):
        refuse_foreign(store, MARKER_NAME, identity)
    require_same_spec(manifest, spec, store)
    _verify_store(store, manifest)
    return manifest


def require_same_spec(manifest: Manifest, spec: Spec, place: object) -> None:
    """Raise DatasetError if the parameters or the generator version in a manifest differ from `spec`."""
    version = (manifest.generator or {}).get("generator")
    if (manifest.parameters, version) != (spec_parameters(spec), spec.version):
        message = f"{place} has a dataset with other parameters, or of another version of the generator"
        raise DatasetError(message, f"remove {place}, or name another place: storage.root=…")


def _verify_store(store: Folder | Bucket, manifest: Manifest) -> None:
    """Raise DatasetError if the names, sizes or ETags of the stored files differ from the manifest."""
    if isinstance(store, Folder):
        verify_files(store.root, manifest)
        return
    entries = {name: entry for name, entry in store.entries().items() if name.lower().endswith(SUFFIXES_OF_OURS)}
    etags = zip(manifest.files, manifest.objects or (), strict=False)
    changed = [file.name for file, (etag, _) in etags if file.name in entries and entries[file.name].identity != etag]
    if complaint := manifest_difference(manifest, {name: entry.size for name, entry in entries.items()}, changed):
        raise DatasetError(f"{store} {complaint}", f"remove {store}/{MANIFEST_NAME} and {_AGAIN}")


def missing_files(store: Folder | Bucket, spec: Spec, name: str) -> MissingFiles:
    """Return the files that a dataset still lacks: no file if the manifest exists, all files of a new dataset."""
    if isinstance(store, Folder) and os.access(store.root / MANIFEST_NAME, os.F_OK):
        return MissingFiles([], 0)
    with suppress(OSError):
        entries = store.entries()
        if MANIFEST_NAME in entries:
            return MissingFiles([], 0)
        return missing_files_of_spec(spec, _read_journal(store, spec, dataset_id(name, spec), entries)[1])
    return missing_files_of_spec(spec)


def missing_files_of_spec(spec: Spec, existing: Collection[int] = ()) -> MissingFiles:
    """Return the files that a dataset lacks if only the files with the indices `existing` exist."""
    indices = [index for index in range(spec.files) if index not in existing]
    sizes = spec.sizes()[indices].tolist()
    return MissingFiles(indices, sum(-(-size // _BLOCK) * _BLOCK + _LISTING_BYTES for size in sizes))


def _read_journal(
    store: Store, spec: Spec, identity: str, entries: Mapping[str, StoreEntry]
) -> tuple[Journal, dict[int, PutResult]]:
    """Return the journal of a dataset, and the files in the journal that are unchanged, by index of the file."""
    journal = Journal(store, {"dataset": identity, **generator_versions(spec)})
    return journal, journal.read(entries, [spec.name(index) for index in range(spec.files)])


def _make_missing(store: Folder | Bucket, spec: Spec, identity: str, processes: int, progress: Progress) -> Manifest:
    """Make the missing files of a dataset, and return its manifest. The caller has locked the folder."""
    mark_as_ours(store, MARKER_NAME, identity)
    entries = store.entries()
    store.delete(*(name for name in entries if name.endswith(files.TEMPORARY)))
    journal, put = _read_journal(store, spec, identity, entries)
    missing, needed_bytes = missing_files_of_spec(spec, put)
    if lack := error_if_too_large(store, needed_bytes):
        cure = f"{store.more_room}; or request fewer or smaller files; complete files are not made again"
        raise DatasetError(lack, cure)
    if isinstance(store, Folder):
        for name in spec_folders(spec):
            files.make_folder(store.root / name, exist_ok=True)
    with journal, closing(make_files(partial(_write_file, store), spec, missing, processes)) as batches:
        for batch in batches:
            put.update(batch)
            journal.add(batch)
            progress(len(put), spec.files)
    manifest = Manifest(
        kind="synthetic",
        parameters=spec_parameters(spec),
        generator=generator_versions(spec),
        files=tuple(DatasetFile(spec.name(index), put[index].size, spec.label(index)) for index in range(spec.files)),
        classes=spec_folders(spec),
        objects=tuple(put[index][1:] for index in range(spec.files)) if isinstance(store, Bucket) else None,
    )
    _verify_store(store, manifest)
    store.put(MANIFEST_NAME, manifest.to_json().encode())
    store.sync()  # Write back all dirty pages, because posix_fadvise(2) drops only clean pages before a measurement.
    return manifest


def _write_file(store: Store, spec: Spec, index: int, size: int) -> PutResult:
    return store.write(spec.name(index), partial(write_content, spec, index, size))


_MORE_SPACE = (
    "free some space, name another storage, or request fewer or smaller files; complete files are not made again"
)
_CURES = {
    errno.ENOSPC: _MORE_SPACE,
    errno.EDQUOT: "your quota is used up: " + _MORE_SPACE,
    errno.EROFS: "name a storage that is mounted for writing",
    errno.EACCES: "name a storage whose root you may write to, or ask the owner of the root for permission",
    errno.EPERM: "name a storage whose root you may write to, or ask the owner of the root for permission",
    errno.ENOTDIR: "name a folder, not a file",
    errno.ELOOP: "remove the link, or name another storage: storage.root=…",
}


@contextmanager
def _errors_with_cures(store: Store) -> Iterator[None]:
    """Raise a DatasetError with a cure if the block raises OSError or a process of the pool is killed."""
    try:
        yield
    except PoolBrokenError as error:
        message = f"a process that made files for {store} was killed, most likely because memory was full"
        raise DatasetError(message, f"use fewer processes and {_AGAIN}") from error
    except OSError as error:
        message = f"cannot make the dataset in {store}: {error.strerror or error}"
        place = "the file system" if isinstance(store, Folder) else f"{tempfile.gettempdir()} ($TMPDIR)"
        cure = _CURES.get(error.errno or 0, f"check {place} and {_AGAIN}")
        raise DatasetError(message, cure) from error
