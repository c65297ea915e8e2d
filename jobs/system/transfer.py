"""Bytes of many files, copied in parallel streams under one bandwidth cap, made durable and hashed."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.system import files

_CHUNK = 1 << 20  # of one read or write; a multiple of every block size, for direct I/O
_SEGMENT = 64 << 20  # what one stream copies before it takes the next piece
_PRIVATE = 0o600  # mode of a copy that is not whole
_NOT_WRITABLE, _OWN = 0o755, 0o400  # of the mode of its source: what others may have, what its owner has always
_ALIGNMENT = 4096  # that O_DIRECT asks of offset, length and address; open(2): the block size of the device


class Cap:
    """A bound on the 10^6 bytes that all streams together move in a second; None for none."""

    def __init__(self, mb_per_s: float | None) -> None:
        self._seconds_per_byte = 1e-6 / mb_per_s if mb_per_s else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until `size` more bytes may be moved."""
        if not self._seconds_per_byte:
            return
        with self._lock:
            start = max(self._free_at, time.monotonic())
            self._free_at = start + size * self._seconds_per_byte
            wait_s = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait_s))


@dataclass(frozen=True)
class How:
    """How bytes move: under which bound, past the page cache (``O_DIRECT``) or not, in how many streams."""

    mb_per_s: float | None = None
    direct: bool = False
    streams: int = 1


def copy(source: Path, target: Path, sizes: Sequence[tuple[str, int]], how: How) -> None:
    """Copy files from folder to folder, in segments that the streams share; neither synced nor verified.

    `sizes`: relative name and bytes of each file.  A source that is shorter leaves zeros: the checksum finds them.
    A copy is for its owner alone until it is whole; then it has its source's mode, but nobody else may write to it.
    Raises OSError: of the first segment that failed; files that were begun stay.
    """
    cap, segments = Cap(how.mb_per_s), []
    for name, size in sizes:
        path = target / name
        for folder in reversed(Path(name).parents[:-1]):
            files.make_folder(target / folder, exist_ok=True)
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
            os.truncate(fd, size)
        segments += [(source / name, path, at, min(at + _SEGMENT, size)) for at in range(0, size, _SEGMENT)]

    def one(segment: tuple[Path, Path, int, int]) -> None:
        reads, writes, start, end = segment
        flags = os.O_WRONLY | (os.O_DIRECT if how.direct else 0)
        with _opened(reads, os.O_RDONLY) as source_fd, _opened(writes, flags) as target_fd:
            _copy_range(source_fd, target_fd, range(start, end), cap)

    def publish(name: str) -> None:
        with _opened(source / name, os.O_RDONLY) as source_fd, _opened(target / name, os.O_WRONLY) as target_fd:
            os.fchmod(target_fd, os.fstat(source_fd).st_mode & _NOT_WRITABLE | _OWN)

    with ThreadPoolExecutor(how.streams) as pool:
        try:
            list(pool.map(one, segments))
            list(pool.map(publish, [name for name, _ in sizes]))
        except OSError:
            pool.shutdown(cancel_futures=True)
            raise


def sync(written: Iterable[Path], folders: Iterable[Path], streams: int = 1) -> None:
    """Make files, then the names in folders, durable: ``fsync(2)`` of each."""
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(_fsync, written))
    for folder in folders:
        files.sync_folder(folder)


def hashes(
    paths: Sequence[Path], *, direct: bool = False, streams: int = 1, cold: bool = False
) -> list[tuple[int, str]]:
    """Return size and SHA-256 of each file; `cold` drops its pages first (Lustre, NFS: the client's; tmpfs: none)."""

    def one(path: Path) -> tuple[int, str]:
        with _opened(path, os.O_RDONLY | (os.O_DIRECT if direct else 0)) as fd:
            if cold:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return _hash(fd)

    with ThreadPoolExecutor(streams) as pool:
        return list(pool.map(one, paths))


def refuses_direct(folder: Path) -> bool:
    """Return whether the file system of a folder has no ``O_DIRECT``, by writing a block to a file without a name."""
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return True
    try:
        _write(fd, memoryview(mmap.mmap(-1, _ALIGNMENT)), 0)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _copy_range(source: int, target: int, span: range, cap: Cap) -> None:
    view = memoryview(mmap.mmap(-1, _CHUNK))  # page-aligned, as O_DIRECT wants it
    at = span.start
    while at < span.stop and (got := os.preadv(source, [view[: min(_CHUNK, span.stop - at)]], at)):
        cap.take(got)
        _write(target, view[:got], at)
        at += got


def _write(fd: int, data: memoryview, offset: int) -> None:
    if offset % _ALIGNMENT or len(data) % _ALIGNMENT:  # the end of a file
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _hash(fd: int) -> tuple[int, str]:
    view = memoryview(mmap.mmap(-1, _CHUNK))
    digest, size = hashlib.sha256(), os.fstat(fd).st_size
    read = 0
    while read < size and (got := os.preadv(fd, [view], read)):
        digest.update(view[:got])
        read += got
    return read, digest.hexdigest()


def _fsync(path: Path) -> None:
    with _opened(path, os.O_RDONLY) as fd:
        os.fsync(fd)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = files.opened(path, flags, _PRIVATE)
    try:
        yield fd
    finally:
        os.close(fd)
