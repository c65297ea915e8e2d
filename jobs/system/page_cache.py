"""Put files out of the page cache (or into it), and prove where they are.

``posix_fadvise(DONTNEED)`` is advice: it skips dirty and mapped pages, and a preloaded library can turn it into
nothing.  So nothing here trusts it; `residency` asks the kernel afterwards.

A cold read fetches whole blocks, so that 940 bytes cost 4,096 as a rule; a hole costs nothing, and of a compressed
extent the file system does not tell how long it is on the disk. ``FIEMAP`` lists the extents
(Documentation/filesystems/fiemap.rst).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.system.device import mount_of

PAGE_BYTES = mmap.PAGESIZE
_FS_IOC_FIEMAP = 0xC020660B  # include/uapi/linux/fs.h
_HEAD = struct.Struct("=QQLLLL")  # start, length, flags, mapped extents, room for extents, reserved
_EXTENT = struct.Struct("=QQQQQLLLL")  # logical, physical, length, two reserved, flags, three reserved
_ROOM = 64  # extents a call
_LAST, _ENCODED, _INLINE, _UNWRITTEN = 0x1, 0x8, 0x200, 0x800  # include/uapi/linux/fiemap.h
_SYNC = 0x1
_BLOCK = 512  # the unit of st_blocks, stat(2)
_WHOLE = (1 << 64) - 1


@dataclass
class Fetch:
    """The bytes that a cold read of some files fetches from their devices, each inode once."""

    bytes: int = 0  # of all files that were added, each inode once
    extents: int = 0  # pieces of the devices that hold them: so many requests at least
    linked: int = 0  # names beyond the first of an inode: hard links, or a path given twice. They are read from memory
    # Files of which it cannot be told, because they are compressed or the file system does not list their extents.
    unknown: int = 0

    def __post_init__(self) -> None:
        """Begin with no inode seen."""
        self._seen: set[tuple[int, int]] = set()

    def add(self, fd: int, status: os.stat_result) -> bool:
        """Add an open file whose `status` is known; return whether it is the first name of its inode."""
        inode = (status.st_dev, status.st_ino)
        if inode in self._seen:
            self.linked += 1
            return False
        self._seen.add(inode)
        pieces = fetched_pieces(fd, status)
        if pieces is None:
            self.unknown += 1
        else:
            self.bytes += sum(pieces)
            self.extents += len(pieces)
        return True


def fetched_pieces(fd: int, status: os.stat_result) -> list[int] | None:
    """Return the bytes of each piece that a cold read of the whole file fetches; None if nobody can tell.

    Where extents cannot be listed (NFS, Lustre's servers, FUSE, memory) it is all pages, unless the file has fewer
    blocks than bytes: holes, or compression behind the wire.
    """
    pages = -(-status.st_size // PAGE_BYTES) * PAGE_BYTES
    try:
        extents = _list_extents(fd)
    except OSError:
        return [pages] if status.st_blocks * _BLOCK >= min(pages, status.st_size) else None
    if any(flags & _ENCODED for _, _, flags in extents):
        return None
    return [
        min(start + length, pages) - start
        for start, length, flags in extents
        if not flags & (_INLINE | _UNWRITTEN) and start < pages
    ]


def _list_extents(fd: int) -> list[tuple[int, int, int]]:
    """Return a file's extents: the offset of each in the file, its length in bytes, and its flags."""
    extents: list[tuple[int, int, int]] = []
    start = 0
    while True:
        request = bytearray(_HEAD.pack(start, _WHOLE - start, _SYNC if not start else 0, 0, _ROOM, 0))
        request += bytes(_ROOM * _EXTENT.size)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, request)
        mapped = _HEAD.unpack_from(request)[3]
        for place in range(mapped):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(request, _HEAD.size + place * _EXTENT.size)
            extents.append((logical, length, flags))
        if not mapped or extents[-1][2] & _LAST:
            return extents
        start = extents[-1][0] + extents[-1][1]


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
    """The number of pages of a set of files that are in memory."""

    pages: int
    resident: int  # of these; a second name of a file is in memory when it is read: its pages count as resident
    unverifiable: int  # files that cannot be opened, or of which the kernel tells their owner only
    method: str  # ``cachestat`` (Linux 6.5 and later) or ``mincore``
    fetch: Fetch = field(default_factory=Fetch, compare=False)  # what their devices give where nothing is in memory

    @property
    def fraction(self) -> float | None:
        """Return the resident share of the pages, 0 to 1; None if one file's residency cannot be read."""
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
    """Advise the kernel to drop the clean pages of `paths`; skip what cannot be opened, or is no file."""
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, _CAREFUL)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # length 0: to the end of the file
            finally:
                os.close(fd)


def drop_from_cache(paths: Sequence[Path], requested: Sequence[Path], folder: Path) -> Residency:
    """Drop the pages of `paths`, and return the residency of those `requested`; `folder` holds them all."""
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
    """Return how many pages of `paths` are in memory.

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
    return Residency(pages, resident, unverifiable, _name_method(counts.values(), usual), fetch)


def _name_method(used: Iterable[Callable[..., object]], usual: Callable[..., object]) -> str:
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
    if not _mincore_is_true(fd):
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


def _mincore_is_true(fd: int) -> bool:
    """Return whether ``mincore`` is truthful: for other users every page is resident (Linux 5.2, CVE-2019-5489)."""
    owner = os.fstat(fd).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{fd}", os.W_OK)
