"""Put files out of the page cache (or into it), and prove where they are.

``posix_fadvise(DONTNEED)`` is advice: it skips dirty and mapped pages, and a preloaded library can turn it into
nothing.  So nothing here trusts it; `residency` asks the kernel afterwards.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.system.device import mount_of
from jobs.system.extents import PAGE_BYTES, Fetch

_CACHESTAT = 451  # one number on every architecture, include/uapi/asm-generic/unistd.h, Linux 6.5
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value
_CHUNK = 1 << 20
_CAREFUL = os.O_RDONLY | os.O_NONBLOCK  # a pipe in the place of a file is not waited for
_STACKED = ("overlay", "overlayfs")  # their inodes have no pages of their own: `cachestat` finds none, `mincore` all

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent"))


@dataclass(frozen=True)
class Residency:
    """How many pages of a set of files are in memory."""

    pages: int
    resident: int  # of these; a second name of a file is in memory when it is read: its pages count as resident
    unverifiable: int  # files that cannot be opened, or of which the kernel tells their owner only
    method: str  # ``cachestat`` (Linux 6.5 and later) or ``mincore``
    fetch: Fetch = field(default_factory=Fetch, compare=False)  # what their devices give where nothing is in memory

    @property
    def fraction(self) -> float | None:
        """Resident share of the pages, 0 to 1; None where one file's residency cannot be read."""
        if self.unverifiable:
            return None
        return self.resident / self.pages if self.pages else 0.0


def sync(folder: Path) -> None:
    """Write the dirty pages of the file system under `folder` to its device: ``syncfs(2)``."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        if _libc.syncfs(fd) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"syncfs: {os.strerror(error)}", str(folder))
    finally:
        os.close(fd)


def evict(paths: Iterable[Path]) -> None:
    """Advise the kernel to drop the clean pages of `paths`; what cannot be opened, or is no file, is skipped."""
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, _CAREFUL)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # length 0: to the end of the file
            finally:
                os.close(fd)


def cooled(paths: Sequence[Path], requested: Sequence[Path], folder: Path) -> Residency:
    """Drop the pages of `paths`, and count what is left of those `requested`; `folder` holds them all."""
    evict(paths)
    left = residency(requested)
    if left.fraction != 0:  # dirty pages cannot be dropped: write them, then drop again
        sync(folder)
        evict(paths)
        left = residency(requested)
    return left


def read_through(paths: Iterable[Path]) -> None:
    """Read `paths` whole, so that their pages are in memory; files that cannot be opened are skipped."""
    buffer = bytearray(_CHUNK)
    for path in paths:
        with contextlib.suppress(OSError), open(os.open(path, _CAREFUL), "rb", buffering=0) as file:  # noqa: PTH123
            while file.readinto(buffer):
                pass


def residency(paths: Iterable[Path]) -> Residency:
    """Count the pages of `paths` that are in memory.

    By ``cachestat(2)``; by ``mincore(2)`` before Linux 6.5 and on overlayfs, whose pages are another inode's.
    """
    pages = resident = unverifiable = 0
    fetch, counts = Fetch(), {}
    usual = _cachestat if _has_cachestat() else _mincore
    for path in paths:
        try:
            fd = os.open(path, _CAREFUL)
        except OSError:
            unverifiable += 1
            continue
        try:
            status = os.fstat(fd)
            held = -(-status.st_size // PAGE_BYTES)
            if fetch.add(fd, status):
                if status.st_dev not in counts:
                    counts[status.st_dev] = _mincore if mount_of(path).fstype in _STACKED else usual
                in_memory = counts[status.st_dev](fd, status.st_size)
            else:
                in_memory = held
        finally:
            os.close(fd)
        if in_memory is None:
            unverifiable += 1
        else:
            pages, resident = pages + held, resident + in_memory
    return Residency(pages, resident, unverifiable, _method(counts.values(), usual), fetch)


def _method(used: Iterable[Callable[..., object]], usual: Callable[..., object]) -> str:
    return " and ".join(sorted({count.__name__.lstrip("_") for count in used} or {usual.__name__.lstrip("_")}))


def _has_cachestat() -> bool:
    _libc.syscall(_CACHESTAT, -1, None, None, 0)
    return ctypes.get_errno() == errno.EBADF  # ENOSYS: an older kernel; EPERM: an older container's filter


def _cachestat(fd: int, _size: int) -> int | None:
    stat = _Stat()
    # length 0 means: to the end of the file (mm/filemap.c)
    if _libc.syscall(_CACHESTAT, fd, ctypes.byref(_Range(0, 0)), ctypes.byref(stat), 0) != 0:
        return None
    return int(stat.cached)


def _mincore(fd: int, size: int) -> int | None:
    if size == 0:
        return 0
    if not _may_ask(fd):
        return None
    address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, fd, 0)
    if address == _MAP_FAILED:
        return None
    try:
        vector = (ctypes.c_ubyte * -(-size // PAGE_BYTES))()
        if _libc.mincore(address, size, vector) != 0:
            return None
        return sum(page & 1 for page in vector)
    finally:
        _libc.munmap(address, size)


def _may_ask(fd: int) -> bool:
    """Return whether ``mincore`` answers truly: for others it calls every page resident (Linux 5.2, CVE-2019-5489)."""
    owner = os.fstat(fd).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{fd}", os.W_OK)
