"""Drop files from the page cache, read files into the page cache, and check which pages are in memory.

``posix_fadvise(DONTNEED)`` is only advice: the kernel skips dirty and mapped pages, and a preloaded library can disable
the call. So `residency` asks the kernel afterwards which pages are in memory.

A cold read fetches whole blocks from the device: for 940 bytes, the device usually reads 4,096 bytes. For a hole in a
file, the device reads nothing. The size of a compressed extent on the disk is unknown. The ioctl ``FIEMAP`` lists the
extents of a file (Documentation/filesystems/fiemap.rst).
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
class ColdReadBytes:
    """The bytes that a cold read of a set of files fetches from the devices; each inode counts once."""

    bytes: int = 0  # fetched bytes of all added files
    extents: int = 0  # number of pieces on the devices: the smallest possible number of requests
    # Number of added files that are a further name of an inode (a hard link, or a repeated path). The pages of such a
    # file are already in memory.
    linked: int = 0
    # Number of files whose fetched bytes are unknown: a file is compressed, or its file system does not list extents.
    unknown: int = 0

    def __post_init__(self) -> None:
        """Prepare the set of the inodes of added files."""
        self._seen: set[tuple[int, int]] = set()

    def add(self, fd: int, status: os.stat_result) -> bool:
        """Add an open file with its `status`; return False if a file with the same inode was added before."""
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
    """Return the size in bytes of each piece that a cold read of the whole file fetches, or None if unknown.

    If the file system cannot list extents (NFS, Lustre's servers, FUSE, memory), all pages of the file are one piece.
    If such a file has fewer blocks than bytes (holes, or compression on a server), the result is None.
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
    """Return the offset in the file, the length in bytes and the flags of each extent of a file."""
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


_CACHESTAT = 451  # number of the system call on every architecture; include/uapi/asm-generic/unistd.h, Linux 6.5
_PROT_READ, _MAP_SHARED = 1, 1
_MAP_FAILED = ctypes.c_void_p(-1).value
_CHUNK = 1 << 20
_CAREFUL = os.O_RDONLY | os.O_NONBLOCK  # the open of a pipe does not block
# The inodes of these file systems have no pages of their own: `cachestat` finds no page, `mincore` finds all pages.
_STACKED = ("overlay", "overlayfs")

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
    # Number of `pages` that are in memory. If a file has a second name in the set, the pages of the second name count
    # as in memory, because the read of the first name brings them into memory.
    resident: int
    unverifiable: int  # number of files that cannot be opened, or whose pages only the owner may see
    method: str  # ``cachestat`` (Linux 6.5 and later) or ``mincore``
    fetch: ColdReadBytes = field(default_factory=ColdReadBytes, compare=False)  # the bytes that a cold read fetches

    @property
    def fraction(self) -> float | None:
        """Return the share of the pages that are in memory (0 to 1), or None if a file is unverifiable."""
        if self.unverifiable:
            return None
        return self.resident / self.pages if self.pages else 0.0


def sync_file_system(folder: Path) -> None:
    """Write the dirty pages of the file system that contains `folder` to the device, with ``syncfs(2)``."""
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
    """Drop the pages of `paths` from the page cache, and return the residency of the files `requested`.

    `folder` is a folder on the file system of all these files.
    """
    evict_pages(paths)
    remaining = residency(requested)
    if remaining.fraction != 0:  # dirty pages must be written to the device before the kernel can drop them
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
    """Count the pages of the files `paths`, and the pages that are in memory.

    The pages in memory are counted with ``cachestat(2)``. Before Linux 6.5, and on overlayfs, whose pages belong to
    another inode, the pages in memory are counted with ``mincore(2)``.
    """
    pages = resident = unverifiable = 0
    fetch, methods = ColdReadBytes(), {}
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
    # ENOSYS would mean an older kernel, EPERM would mean the system call filter of an older container.
    return ctypes.get_errno() == errno.EBADF


def _cachestat(fd: int, _size: int) -> int | None:
    stat = _Stat()
    # The length 0 means the whole file (mm/filemap.c).
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
    """Return whether ``mincore`` shows this user the real state of a file's pages.

    For a file of another user, ``mincore`` shows all pages as resident (Linux 5.2, CVE-2019-5489).
    """
    owner = os.fstat(fd).st_uid
    return os.geteuid() in (0, owner) or os.access(f"/proc/self/fd/{fd}", os.W_OK)
