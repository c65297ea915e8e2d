"""Drop files from the page cache or read them into it, and prove which pages are in memory.

``posix_fadvise(DONTNEED)`` is only advice: it skips dirty and mapped pages, and a preloaded library can disable it. So
`residency` asks the kernel afterwards.

A cold read fetches whole blocks: 940 bytes usually cost 4,096. A hole costs nothing, and the size of a compressed
extent on the disk is unknown. ``FIEMAP`` lists the extents (Documentation/filesystems/fiemap.rst).
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
_ROOM = 64  # extents per call
_LAST, _ENCODED, _INLINE, _UNWRITTEN = 0x1, 0x8, 0x200, 0x800  # include/uapi/linux/fiemap.h
_SYNC = 0x1
_BLOCK = 512  # the unit of st_blocks, stat(2)
_WHOLE = (1 << 64) - 1


@dataclass
class Fetch:
    """The bytes that a cold read of some files fetches from their devices; each inode counts once."""

    bytes: int = 0  # bytes of all added files
    extents: int = 0  # pieces of these bytes on the devices: the least number of requests
    linked: int = 0  # further names of an inode (hard links, or a path twice), which are read from memory
    # Number of files whose bytes are unknown: they are compressed, or their file system does not list extents.
    unknown: int = 0

    def __post_init__(self) -> None:
        """Prepare the set of inodes that were added."""
        self._seen: set[tuple[int, int]] = set()

    def add(self, fd: int, status: os.stat_result) -> bool:
        """Add an open file with its `status`; return whether it is the first name of its inode."""
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
    """Return the bytes of each piece that a cold read of the whole file fetches; None if unknown.

    If extents cannot be listed (NFS, Lustre's servers, FUSE, memory), there is one piece with all pages, or None if the
    file has fewer blocks than bytes (holes, or compression on a server).
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
    """Return the extents of a file: offset in the file, length in bytes, and flags."""
    extents: list[tuple[int, int, int]] = []
    start = 0
    while True:
        request = bytearray(_HEAD.pack(start, _WHOLE - start, _SYNC if not start else 0, 0, _ROOM, 0))
        request += bytes(_ROOM * _EXTENT.size)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, request)
        mapped = _HEAD.unpack_from(request)[3]
        for index in range(mapped):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(request, _HEAD.size + index * _EXTENT.size)
            extents.append((logical, length, flags))
        if not mapped or extents[-1][2] & _LAST:
            return extents
        start = extents[-1][0] + extents[-1][1]


_CACHESTAT = 451  # on every architecture; include/uapi/asm-generic/unistd.h, Linux 6.5
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value
_CHUNK = 1 << 20
_CAREFUL = os.O_RDONLY | os.O_NONBLOCK  # does not wait for a pipe
_STACKED = ("overlay", "overlayfs")  # their inodes have no own pages: `cachestat` finds none, `mincore` all

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
    resident: int  # of `pages`; those of a second name of a file count, because they are in memory when it is read
    unverifiable: int  # number of files that cannot be opened, or whose pages only the owner may see
    method: str  # ``cachestat`` (Linux 6.5 and later) or ``mincore``
    fetch: Fetch = field(default_factory=Fetch, compare=False)  # the bytes that a cold read fetches

    @property
    def fraction(self) -> float | None:
        """Return the resident share of the pages, 0 to 1; None if one file's residency cannot be read."""
        if self.unverifiable:
            return None
        return self.resident / self.pages if self.pages else 0.0


def sync_file_system(folder: Path) -> None:
    """Write the dirty pages of the file system under `folder` to its device: ``syncfs(2)``."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        if _libc.syncfs(fd) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"syncfs: {os.strerror(error)}", str(folder))
    finally:
        os.close(fd)


def evict_pages(paths: Iterable[Path]) -> None:
    """Advise the kernel to drop the clean pages of `paths`; files that cannot be opened are skipped."""
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, _CAREFUL)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # length 0: to the end of the file
            finally:
                os.close(fd)


def drop_from_cache(paths: Sequence[Path], requested: Sequence[Path], folder: Path) -> Residency:
    """Drop the pages of `paths`, and return the residency of the `requested` ones; `folder` holds all of them."""
    evict_pages(paths)
    remaining = residency(requested)
    if remaining.fraction != 0:  # dirty pages must be written before they can be dropped
        sync_file_system(folder)
        evict_pages(paths)
        remaining = residency(requested)
    return remaining


def read_through(paths: Iterable[Path]) -> None:
    """Read `paths` completely, so that their pages are in memory; files that cannot be opened are skipped."""
    buffer = bytearray(_CHUNK)
    for path in paths:
        with contextlib.suppress(OSError), open(os.open(path, _CAREFUL), "rb", buffering=0) as file:  # noqa: PTH123
            while file.readinto(buffer):
                pass


def residency(paths: Iterable[Path]) -> Residency:
    """Return the number of pages of `paths` that are in memory.

    It uses ``cachestat(2)``, and ``mincore(2)`` before Linux 6.5 and on overlayfs, whose pages belong to another inode.
    """
    pages = resident = unverifiable = 0
    fetch, methods = Fetch(), {}
    default_method = _cachestat if _has_cachestat() else _mincore
    for path in paths:
        try:
            fd = os.open(path, _CAREFUL)
        except OSError:
            unverifiable += 1
            continue
        try:
            status = os.fstat(fd)
            file_pages = -(-status.st_size // PAGE_BYTES)
            if fetch.add(fd, status):
                if status.st_dev not in methods:
                    methods[status.st_dev] = _mincore if mount_of(path).fstype in _STACKED else default_method
                in_memory = methods[status.st_dev](fd, status.st_size)
            else:
                in_memory = file_pages
        finally:
            os.close(fd)
        if in_memory is None:
            unverifiable += 1
        else:
            pages, resident = pages + file_pages, resident + in_memory
    return Residency(pages, resident, unverifiable, _name_method(methods.values(), default_method), fetch)


def _name_method(methods: Iterable[Callable[..., object]], default: Callable[..., object]) -> str:
    return " and ".join(sorted({method.__name__.lstrip("_") for method in methods} or {default.__name__.lstrip("_")}))


def _has_cachestat() -> bool:
    _libc.syscall(_CACHESTAT, -1, None, None, 0)
    return ctypes.get_errno() == errno.EBADF  # ENOSYS: an older kernel; EPERM: the filter of an older container


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
    """Return whether ``mincore`` is truthful: to other users, all pages seem resident (Linux 5.2, CVE-2019-5489)."""
    owner = os.fstat(fd).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{fd}", os.W_OK)
