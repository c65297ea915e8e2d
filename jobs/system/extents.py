"""How many bytes of a file its device has to give: whole blocks, without holes, each inode once.

A cold read fetches whole blocks, so that 940 bytes cost 4,096 as a rule; a hole costs nothing, and of a compressed
extent the file system does not tell how long it is on the disk. ``FIEMAP`` lists the extents
(Documentation/filesystems/fiemap.rst).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from dataclasses import dataclass

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
    """What a cold read of some files fetches from their devices."""

    bytes: int = 0  # of all files that were added, each inode once
    extents: int = 0  # pieces of the devices that hold them: so many requests at least
    linked: int = 0  # names beyond the first of an inode: hard links, or a path given twice. They are read from memory
    # Files of which it cannot be told, because they are compressed or the file system does not list their extents.
    unknown: int = 0

    def __post_init__(self) -> None:
        """Begin with no inode seen."""
        self._seen: set[tuple[int, int]] = set()

    def add(self, fd: int, status: os.stat_result) -> bool:
        """Add an open file, whose `status` is known already; tell whether it is the first name of its inode."""
        inode = (status.st_dev, status.st_ino)
        if inode in self._seen:
            self.linked += 1
            return False
        self._seen.add(inode)
        found = pieces(fd, status)
        if found is None:
            self.unknown += 1
        else:
            self.bytes += sum(found)
            self.extents += len(found)
        return True


def pieces(fd: int, status: os.stat_result) -> list[int] | None:
    """Return the bytes of each piece that a cold read of the whole file fetches; None where nobody can tell.

    Where extents cannot be listed (NFS, Lustre's servers, FUSE, memory) it is all pages, unless the file has fewer
    blocks than bytes: holes, or compression behind the wire.
    """
    pages = -(-status.st_size // PAGE_BYTES) * PAGE_BYTES
    try:
        extents = _extents(fd)
    except OSError:
        return [pages] if status.st_blocks * _BLOCK >= min(pages, status.st_size) else None
    if any(flags & _ENCODED for _, _, flags in extents):
        return None
    return [
        min(start + length, pages) - start
        for start, length, flags in extents
        if not flags & (_INLINE | _UNWRITTEN) and start < pages
    ]


def _extents(fd: int) -> list[tuple[int, int, int]]:
    """List a file's extents: where each begins in the file, its length in bytes, and its flags."""
    found: list[tuple[int, int, int]] = []
    start = 0
    while True:
        request = bytearray(_HEAD.pack(start, _WHOLE - start, _SYNC if not start else 0, 0, _ROOM, 0))
        request += bytes(_ROOM * _EXTENT.size)
        fcntl.ioctl(fd, _FS_IOC_FIEMAP, request)
        mapped = _HEAD.unpack_from(request)[3]
        for place in range(mapped):
            logical, _, length, _, _, flags, *_ = _EXTENT.unpack_from(request, _HEAD.size + place * _EXTENT.size)
            found.append((logical, length, flags))
        if not mapped or found[-1][2] & _LAST:
            return found
        start = found[-1][0] + found[-1][1]
