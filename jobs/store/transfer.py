"""Copy many files in parallel streams under one bandwidth limit, make files durable, and hash files."""

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
# `flush_meanwhile` looks at the files every _FLUSH_S seconds, and flushes a file that has grown by FLUSH_BYTES.
FLUSH_BYTES, _FLUSH_S = 16 << 20, 0.05
_PRIVATE = 0o600  # mode of an incomplete copy
# A complete copy has the bits _KEPT_MODE of its source's mode, and its owner may always read it (_OWNER_READS).
_KEPT_MODE, _OWNER_READS = 0o755, 0o400


class BandwidthLimit:
    """A limit on the bandwidth of all streams together, in 10^6 bytes per second; None: no limit."""

    def __init__(self, mb_per_s: float | None) -> None:
        self._seconds_per_byte = 1e-6 / mb_per_s if mb_per_s else 0.0
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait_for(self, size: int) -> None:
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
    """Copy files to another folder with parallel streams; the copies are neither durable nor verified.

    The files are divided into segments, and each stream copies one segment after the other. `sizes` has the relative
    name and the size in bytes of each file. If a file has become shorter, the end of its copy is zeros; a comparison of
    checksums finds such a copy. Only the owner may read an incomplete copy. A complete copy has the mode of its source,
    except that only the owner may write. Raises the OSError of the first segment that failed; incomplete copies remain.
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
    """Make files durable, then the names in `folders`, with ``fsync(2)`` for each file and each folder."""
    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(_fsync, paths))
    for folder in folders:
        files.sync_folder(folder)


def sync_tree(folder: Path, above: Iterable[Path], streams: int = 1) -> None:
    """Call fsync(2) for all files below a folder, then for the folder, its subfolders and the folders `above`."""
    kinds = {folder / name: stat.S_ISDIR(status.st_mode) for name, status in files.folder_tree(folder).items()}
    folders = [path for path, is_folder in kinds.items() if is_folder]
    sync_files([path for path, is_folder in kinds.items() if not is_folder], [*folders, folder, *above], streams)


@contextmanager
def flush_meanwhile(folder: Path) -> Iterator[None]:
    """Flush large files below a folder while the `with` block writes them, so that the storage is busy from the start.

    Raises the OSError of a file that could not be flushed, because a later ``fsync(2)`` may not report the error again.
    """
    is_over = threading.Event()

    def flush() -> None:
        flushed: dict[str, int] = {}
        while not is_over.wait(_FLUSH_S):
            # A file may be renamed meanwhile. An invalid file is not reported here, but by the final sync of all files.
            with suppress(FileNotFoundError, files.OddFileError):
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
    """Read each file, and return its size and SHA-256.

    With `cold`, the pages of the file are dropped from the page cache of this machine first. On tmpfs this has no
    effect.
    """

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
        cap.wait_for(count)
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
