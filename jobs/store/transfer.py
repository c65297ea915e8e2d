"""Functions that copy many files in parallel streams under one bandwidth limit, make them durable, and hash them."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.system import files

_CHUNK = 1 << 20  # bytes of one read or write
_SEGMENT = 64 << 20  # bytes that one stream copies before it takes the next segment
FLUSH_BYTES, _FLUSH_S = 16 << 20, 0.05  # by which a file has grown when it is flushed; seconds between two looks
_PRIVATE = 0o600  # mode of an incomplete copy
_KEPT_MODE, _OWNER_READS = 0o755, 0o400  # bits of the source's mode that may stay; bit that its owner always gets


class BandwidthLimit:
    """A limit on the 10^6 bytes per second of all streams together; None: no limit."""

    def __init__(self, mb_per_s: float | None) -> None:
        self._seconds_per_byte = 1e-6 / mb_per_s if mb_per_s else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until `size` more bytes may be transferred."""
        if not self._seconds_per_byte:
            return
        with self._lock:
            start = max(self._free_at, time.monotonic())
            self._free_at = start + size * self._seconds_per_byte
            wait_s = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait_s))


@dataclass(frozen=True)
class TransferOptions:
    """The options of a transfer: the bandwidth limit (10^6 bytes/s, None: no limit) and the number of streams."""

    mb_per_s: float | None = None
    streams: int = 1


def copy_files(source: Path, target: Path, sizes: Sequence[tuple[str, int]], how: TransferOptions) -> None:
    """Copy files to another folder, in segments shared by the streams; the copies are not synced or verified.

    `sizes`: relative name and bytes of each file. A file that is shorter now leaves zeros, which the checksum reveals.
    Only the owner may read an incomplete copy; a complete copy has its source's mode without write access for others.
    Raises the OSError of the first segment that failed; files that were begun stay.
    """
    cap, segments = BandwidthLimit(how.mb_per_s), []
    for name, size in sizes:
        path = target / name
        for folder in reversed(Path(name).parents[:-1]):
            files.make_folder(target / folder, exist_ok=True)
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            os.truncate(fd, size)
        segments += [(source / name, path, start, min(start + _SEGMENT, size)) for start in range(0, size, _SEGMENT)]

    def copy_segment(segment: tuple[Path, Path, int, int]) -> None:
        source_path, target_path, start, end = segment
        with _opened(source_path, os.O_RDONLY) as source_fd, _opened(target_path, os.O_WRONLY) as target_fd:
            _copy_range(source_fd, target_fd, range(start, end), cap)

    def publish(name: str) -> None:
        with _opened(source / name, os.O_RDONLY) as source_fd, _opened(target / name, os.O_WRONLY) as target_fd:
            os.fchmod(target_fd, os.fstat(source_fd).st_mode & _KEPT_MODE | _OWNER_READS)

    with ThreadPoolExecutor(how.streams) as pool:
        try:
            list(pool.map(copy_segment, segments))
            list(pool.map(publish, [name for name, _ in sizes]))
        except OSError:
            pool.shutdown(cancel_futures=True)
            raise


def sync_files(paths: Iterable[Path], folders: Iterable[Path], streams: int = 1) -> None:
    """Make files durable, then their names in `folders`, by ``fsync(2)`` of each."""
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(_fsync, paths))
    for folder in folders:
        files.sync_folder(folder)


def sync_tree(folder: Path, above: Iterable[Path], streams: int = 1) -> None:
    """Make all files below a folder durable, then their names in it and, one by one, in the folders `above` it."""
    kinds = {folder / name: stat.S_ISDIR(status.st_mode) for name, status in files.folder_tree(folder).items()}
    folders = [path for path, is_folder in kinds.items() if is_folder]
    sync_files([path for path, is_folder in kinds.items() if not is_folder], [*folders, folder, *above], streams)


@contextmanager
def flush_meanwhile(folder: Path) -> Iterator[None]:
    """Flush large files below a folder while they are written, so that the storage works from the beginning.

    Raises the OSError of a file that could not be flushed: ``fsync(2)`` of others may not report it again.
    """
    is_over = threading.Event()

    def flush() -> None:
        flushed: dict[str, int] = {}
        while not is_over.wait(_FLUSH_S):
            with suppress(FileNotFoundError, files.OddFileError):  # a file was renamed; who syncs them names an odd one
                for name, status in files.folder_tree(folder).items():
                    if stat.S_ISREG(status.st_mode) and status.st_size >= flushed.get(name, 0) + FLUSH_BYTES:
                        flushed[name] = status.st_size
                        _fsync(folder / name)

    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(flush)
        try:
            yield
        finally:
            is_over.set()
    flushing.result()


def hash_files(paths: Sequence[Path], *, streams: int = 1, cold: bool = False) -> list[tuple[int, str]]:
    """Return size and SHA-256 of each file; `cold` drops this machine's pages first (not on tmpfs)."""

    def hash_file(path: Path) -> tuple[int, str]:
        with _opened(path, os.O_RDONLY) as fd:
            if cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return _hash(fd)

    with ThreadPoolExecutor(streams) as pool:
        return list(pool.map(hash_file, paths))


def _copy_range(source: int, target: int, span: range, cap: BandwidthLimit) -> None:
    view = memoryview(bytearray(_CHUNK))
    offset = span.start
    while offset < span.stop and (count := os.preadv(source, [view[: min(_CHUNK, span.stop - offset)]], offset)):
        cap.take(count)
        _write(target, view[:count], offset)
        offset += count


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count


def _hash(fd: int) -> tuple[int, str]:
    view = memoryview(bytearray(_CHUNK))
    digest, size = hashlib.sha256(), os.fstat(fd).st_size
    offset = 0
    while offset < size and (count := os.preadv(fd, [view], offset)):
        digest.update(view[:count])
        offset += count
    return offset, digest.hexdigest()


def _fsync(path: Path) -> None:
    with _opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = files.open_file(path, flags, _PRIVATE)
    try:
        yield fd
    finally:
        os.close(fd)
