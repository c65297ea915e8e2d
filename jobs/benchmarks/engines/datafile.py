"""The data files of the benchmark ``baseline`` in a folder on the storage.

The files are in the folder ``<storage root>/baseline/``, which has a marker. The file to read, ``read-<bytes>.bin``, is
made once and then reused. The file has random bytes, which no layer can compress or deduplicate. The file has a
temporary name until all bytes are durable. A run that writes makes ``written-<cell id>.bin``, and removes this file at
the end of the run.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from jobs.errors import DatasetError
from jobs.store.folder import Folder
from jobs.store.store import mark_as_ours
from jobs.system import files, page_cache
from jobs.system.device import device_of
from jobs.system.making_lock import acquire_making_lock

FOLDER = "baseline"
MARKER = ".tfio-baseline"
LOCK = ".tfio-baseline.lock"
TRANSFER_MIB = 16  # default request size of ``read``, to which also the file size of ``random_read`` is rounded
_MIB = 1 << 20
_PAGE_BYTES = 4096
_CHUNK = 16 * _MIB
_UNLOCKABLE = "mount the file system with locks (Lustre: -o flock)"
_ELSEWHERE = "name another storage: storage.root=…"
_SMALLER = "choose a smaller file: benchmark.file_mb=… (with python -m jobs: --file-mb …)"
_CURES = {
    errno.ELOOP: f"remove the link, or {_ELSEWHERE}",
    errno.ENOSYS: _UNLOCKABLE,  # filelock raises this error on a file system without flock(2)
    errno.ENOTSUP: _UNLOCKABLE,
    errno.ENOSPC: f"free some space, or {_SMALLER}",
    errno.EDQUOT: f"free some of your quota, or {_SMALLER}",
}


def whole_bytes(file_mb: int, transfer_mib: int) -> int:
    """Return `file_mb` in bytes, rounded up to whole requests, because some engines need whole requests."""
    transfer = transfer_mib * _MIB
    return -(-file_mb * 10**6 // transfer) * transfer


def whole_blocks(size: float, folder: Path) -> int:
    """Return `size` rounded up to whole blocks of the storage's device, because O_DIRECT needs whole blocks (open(2)).

    If the folder is on no device, `size` is rounded up to whole pages.
    """
    device = device_of(folder)
    block_bytes = device.logical_block_bytes if device else _PAGE_BYTES
    return -int(-size // block_bytes) * block_bytes


def make_marked_folder(folder: Path) -> Path:
    """Return the folder after it was made, if missing, and marked as a folder for baselines.

    Raises DatasetError if the folder has files of another owner.
    """
    with _errors_with_cures(folder):
        files.make_folder(folder, exist_ok=True, parents=True)
        mark_as_ours(Folder(folder), MARKER, "files of tfio-campaign's baselines; remove the folder as you like")
    return folder


def data_file_path(folder: Path, size: int) -> Path:
    """Return the path of the file that a baseline of `size` bytes reads."""
    return folder / f"read-{size}.bin"


def missing_bytes(folder: Path, size: int) -> int:
    """Return the bytes that are needed to make the file to read: 0 if the file exists, else `size`."""
    return 0 if _is_whole(data_file_path(folder, size), size) else size


def make_data_file(folder: Path, size: int, progress: Callable[[int, int], None]) -> Path:
    """Return the path of the file to read; make the file if it is missing.

    `progress` is called with the MiB written so far and the MiB of the whole file.
    """
    path = data_file_path(folder, size)
    with _errors_with_cures(folder):
        if not _is_whole(path, size):
            lock = FileLock(folder / LOCK, fallback_to_soft=False)  # a dead process holds no such lock
            with acquire_making_lock(lock):
                if not _is_whole(path, size):
                    require_free_space(folder, size)
                    _make(path, size, progress)
    return path


def require_free_space(folder: Path, size: int) -> None:
    """Raise DatasetError if a file of `size` bytes does not fit on the storage."""
    if lack := files.error_if_too_large(folder, size):
        raise DatasetError(f"a baseline in {lack}", _CURES[errno.ENOSPC])


def _is_whole(path: Path, size: int) -> bool:
    """Return whether a regular file with this size exists at `path`.

    A symbolic link does not count, because its target may be on another storage.
    """
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def _make(path: Path, size: int, progress: Callable[[int, int], None]) -> None:
    """Write a file of random bytes under a temporary name, and rename the file when all bytes are durable."""
    for name in files.names_in_folder(path.parent):
        if name.startswith(f".{path.name}."):  # a temporary file that a dead process has left
            files.remove(path.parent / name)
    with files.write_whole(path) as file:
        for offset in range(0, size, _CHUNK):
            progress(offset // _MIB, size // _MIB)
            file.write(os.urandom(min(_CHUNK, size - offset)))
    page_cache.evict_pages([path])
    progress(size // _MIB, size // _MIB)


@contextmanager
def _errors_with_cures(folder: Path) -> Iterator[None]:
    """Raise a DatasetError with a cure for any OSError in the block."""
    try:
        yield
    except OSError as error:
        file_text = f" ({error.filename})" if error.filename else ""
        message = f"cannot make the files of a baseline in {folder}: {error.strerror or error}{file_text}"
        raise DatasetError(message, _CURES.get(error.errno or 0, "name a storage that you may write to")) from error
