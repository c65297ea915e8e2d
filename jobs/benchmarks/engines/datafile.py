"""The files of the baselines in a folder on the storage: the file to read is made once and then stays.

The folder ``<storage root>/baseline/`` has a marker. ``read-<bytes>.bin`` has random bytes, which no layer can compress
or deduplicate; it gets this name when it is complete and durable. A run writes ``written-<cell id>.bin`` and removes it
at its end.
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

FOLDER = "baseline"
MARKER = ".tfio-baseline"
LOCK = ".tfio-baseline.lock"
TRANSFER_MIB = 16  # default of `read`; random_read uses the same file
_MIB = 1 << 20
_PAGE_BYTES = 4096
_CHUNK = 16 * _MIB
_UNLOCKABLE = "mount it with locks (Lustre: -o flock)"
_ELSEWHERE = "storage.root=… names another storage"
_CURES = {
    errno.ELOOP: f"remove the link; {_ELSEWHERE}",
    errno.ENOSYS: _UNLOCKABLE,  # raised by filelock on a file system without flock(2)
    errno.ENOTSUP: _UNLOCKABLE,
    errno.ENOSPC: "free some space, or ask for a smaller file: benchmark.file_mb=…",
    errno.EDQUOT: "free some of your quota, or ask for a smaller file: benchmark.file_mb=…",
}


def whole_bytes(file_mb: int, transfer_mib: int) -> int:
    """Return `file_mb` in bytes, rounded up to whole transfers, because some engines need whole transfers."""
    transfer = transfer_mib * _MIB
    return -(-file_mb * 10**6 // transfer) * transfer


def whole_blocks(size: float, folder: Path) -> int:
    """Return `size` rounded up to blocks of the storage's device (open(2), O_DIRECT), or to pages without one."""
    device = device_of(folder)
    block_bytes = device.logical_block_bytes if device else _PAGE_BYTES
    return -int(-size // block_bytes) * block_bytes


def own_folder(folder: Path) -> Path:
    """Return the folder, made and marked if needed; raise DatasetError if it belongs to another owner."""
    with _errors_with_cures(folder):
        files.make_folder(folder, exist_ok=True, parents=True)
        mark_as_ours(Folder(folder), MARKER, "files of tfio-campaign's baselines; remove the folder as you like")
    return folder


def data_file_path(folder: Path, size: int) -> Path:
    """Return the path of the file to read with `size` bytes."""
    return folder / f"read-{size}.bin"


def missing_bytes(folder: Path, size: int) -> int:
    """Return the bytes that must still be written for the file to read: 0 if it exists, else `size`."""
    return 0 if _is_whole(data_file_path(folder, size), size) else size


def make_data_file(folder: Path, size: int, progress: Callable[[int, int], None]) -> Path:
    """Return the file to read, made if it is missing; `progress` gets the MiB written, and the MiB of the file."""
    path = data_file_path(folder, size)
    with _errors_with_cures(folder):
        if not _is_whole(path, size):
            with FileLock(folder / LOCK, fallback_to_soft=False):  # a lock ends with its process
                if not _is_whole(path, size):
                    require_free_space(folder, size)
                    _make(path, size, progress)
    return path


def require_free_space(folder: Path, size: int) -> None:
    """Raise DatasetError if a file of `size` bytes does not fit on the storage."""
    if lack := files.lack_of_room(folder, size):
        raise DatasetError(f"a baseline in {lack}", _CURES[errno.ENOSPC])


def _is_whole(path: Path, size: int) -> bool:
    """Return whether the file exists with this size; a link does not count, because its target may be elsewhere."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def _make(path: Path, size: int, progress: Callable[[int, int], None]) -> None:
    """Write the file with random bytes under a temporary name, and rename it when the bytes are durable."""
    for name in files.names_in_folder(path.parent):
        if name.startswith(f".{path.name}."):  # left by a dead process
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
        message = f"cannot make a baseline's files in {folder}: {error.strerror or error}{file_text}"
        raise DatasetError(message, _CURES.get(error.errno or 0, "name a storage that you may write to")) from error
