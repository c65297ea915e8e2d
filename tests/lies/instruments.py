"""How the truth is measured: by nothing that the tool uses itself."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROT_READ, _MAP_SHARED = 1, 1


def resident(paths: Sequence[Path]) -> float:
    """Return the share of the pages of files that are in memory, by mincore(2); root is told the truth."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    pages = found = 0
    for path in paths:
        size = path.stat().st_size
        with path.open("rb") as file:
            address = ctypes.c_void_p(libc.mmap(None, size, _PROT_READ, _MAP_SHARED, file.fileno(), 0))
        vector = (ctypes.c_ubyte * -(-size // _PAGE_BYTES))()
        if libc.mincore(address, ctypes.c_size_t(size), vector):
            raise OSError(ctypes.get_errno(), "mincore")
        libc.munmap(address, ctypes.c_size_t(size))
        pages, found = pages + len(vector), found + sum(page & 1 for page in vector)
    return found / pages


def total(paths: Sequence[Path]) -> int:
    """Return the bytes of files, as the file system states them."""
    return sum(path.stat().st_size for path in paths)


def on_disk(paths: Sequence[Path]) -> int:
    """Return the bytes that files take on their disk."""
    return sum(path.stat().st_blocks for path in paths) * 512


def load(paths: Sequence[Path]) -> None:
    """Read files whole, so that their pages are in memory."""
    for path in paths:
        path.read_bytes()
