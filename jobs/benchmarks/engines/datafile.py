"""The file that baselines read, and the folder of it: made once on a storage, kept there as a dataset is.

``<storage root>/baseline/`` is marked as ours. ``read-<bytes>.bin`` holds random bytes, which nothing on the way to the
device can make fewer. It has its name when it is whole and durable. ``written-<cell id>.bin`` is what a run writes, and
goes when the run is over.
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
from jobs.system import durable, files, page_cache
from jobs.system.device import device_of

FOLDER = "baseline"
MARKER = ".tfio-baseline"
_OURS = (MARKER, "..tfio-baseline")  # the second: a marker that was being written
LOCK = ".tfio-baseline.lock"
TRANSFER_MIB = 16  # of `read`, unless another is asked for: random_read has the same file
_MIB = 1 << 20
_PAGE_BYTES = 4096
_CHUNK = 16 * _MIB
_UNLOCKABLE = "mount it with locks (Lustre: -o flock)"
_ELSEWHERE = "storage.root=… gives another place"
_CURES = {
    errno.ELOOP: f"remove the link; {_ELSEWHERE}",
    errno.ENOSYS: _UNLOCKABLE,  # flock(2) of a file system that has none, as filelock raises it
    errno.ENOTSUP: _UNLOCKABLE,
    errno.ENOSPC: "free some room, or ask for a smaller file: benchmark.file_mb=…",
    errno.EDQUOT: "free some of your quota, or ask for a smaller file: benchmark.file_mb=…",
}


def whole_bytes(file_mb: int, transfer_mib: int) -> int:
    """Return the size of a file of at least `file_mb` that has whole transfers: some engines want it so."""
    transfer = transfer_mib * _MIB
    return -(-file_mb * 10**6 // transfer) * transfer


def whole_blocks(size: float, folder: Path) -> int:
    """Round a size up to what the storage reads at least; where there is no device, to a page (open(2), O_DIRECT)."""
    device = device_of(folder)
    least = device.logical_block_bytes if device else _PAGE_BYTES
    return -int(-size // least) * least


def own_folder(folder: Path) -> Path:
    """Make a folder ours, or find that it is, and return it; raises DatasetError for somebody else's."""
    with _explained(folder):
        files.make_folder(folder, exist_ok=True, parents=True)
        if fault := files.distrust(folder):
            raise DatasetError(fault, _ELSEWHERE)
        names = files.names(folder)
        if MARKER not in names:
            strangers = [name for name in names if not name.startswith(_OURS)]
            if strangers:
                message = f"{folder} has files that are not ours ({', '.join(strangers[:3])})"
                raise DatasetError(message, "move them, or name a storage with another root")
            files.write(folder / MARKER, "files of tfio-campaign's baselines; remove the folder as you like\n")
    return folder


def named(folder: Path, size: int) -> Path:
    """Return the path of the file of `size` bytes that is read."""
    return folder / f"read-{size}.bin"


def lacking(folder: Path, size: int) -> int:
    """Return how many bytes are to be made of the file that is read: none where it is there."""
    return 0 if _is_whole(named(folder, size), size) else size


def made(folder: Path, size: int, progress: Callable[[int, int], None]) -> Path:
    """Return the file of `size` bytes that is read, made where there is none; `progress` gets MiB done and in all."""
    path = named(folder, size)
    with _explained(folder):
        if not _is_whole(path, size):
            with FileLock(folder / LOCK, fallback_to_soft=False):  # a mere marker would outlive a process that dies
                if not _is_whole(path, size):
                    require_room(folder, size)
                    _make(path, size, progress)
    return path


def require_room(folder: Path, size: int) -> None:
    """Raise DatasetError where a file of `size` bytes would not fit."""
    if lack := durable.lack_of_room(folder, size):
        raise DatasetError(f"a baseline in {lack}", _CURES[errno.ENOSPC])


def _is_whole(path: Path, size: int) -> bool:
    """Return whether the file is there; a link does not count, for it may lead to another storage."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def _make(path: Path, size: int, progress: Callable[[int, int], None]) -> None:
    """Write random bytes under a name of their own, and give them theirs when they are durable."""
    for name in files.names(path.parent):
        if name.startswith(f".{path.name}."):  # of a process that died
            files.remove(path.parent / name)
    with files.whole(path) as file:
        for done in range(0, size, _CHUNK):
            progress(done // _MIB, size // _MIB)
            file.write(os.urandom(min(_CHUNK, size - done)))
    page_cache.evict([path])
    progress(size // _MIB, size // _MIB)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the operating system says into a DatasetError with a cure."""
    try:
        yield
    except OSError as error:
        what = f" ({error.filename})" if error.filename else ""
        message = f"cannot make a baseline's files in {folder}: {error.strerror or error}{what}"
        raise DatasetError(message, _CURES.get(error.errno or 0, "name a storage that you may write to")) from error
