"""Calls that another library than the C library answers: one that was preloaded can delay them, or answer for itself.

What replaces a call inside one library alone, or in Python, is not seen.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

READING = (
    "open", "open64", "openat", "openat64", "fopen", "fopen64", "read", "readv", "pread", "pread64", "preadv", "fread",
    "mmap", "mmap64", "close", "posix_fadvise", "posix_fadvise64", "syscall", "stat", "stat64", "fstat", "fstat64",
    "lstat", "lstat64", "__xstat", "__xstat64", "__fxstat", "__fxstat64", "statx", "access", "lseek", "lseek64",
    "opendir", "readdir", "readdir64", "preadv64", "preadv2", "madvise", "readahead",
)  # fmt: skip
WRITING = ("write", "writev", "pwrite", "pwrite64", "fsync", "fdatasync", "msync", "rename")
TIMING = ("clock_gettime", "gettimeofday", "time", "nanosleep", "clock_nanosleep", "pthread_create")
_ALLOCATING = ("malloc", "calloc", "free")
_KERNEL = "linux-vdso"  # its code in each process, which answers for the clock
_BESIDE = ("libpthread.so.0", "librt.so.1", "libpthread-", "librt-")  # parts of the C library before version 2.34


class _Symbol(ctypes.Structure):
    """What dladdr(3) tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def interposed() -> dict[str, str]:
    """Return the library behind each call to files or clocks that is not the C library's, by the call's name."""
    return _elsewhere((*READING, *WRITING, *TIMING))


def allocator() -> str | None:
    """Return the library that gives memory; None where it is the C library."""
    return next(iter(_elsewhere(_ALLOCATING).values()), None)


def _elsewhere(names: tuple[str, ...]) -> dict[str, str]:
    libc = _library("gnu_get_libc_version")
    if libc is None:  # another C library than GNU's
        return {}
    found = {name: library for name in names if (library := _library(name)) not in (None, libc)}
    return {name: str(library) for name, library in found.items() if not _is_part_of(str(library), libc)}


def _is_part_of(library: str, libc: str) -> bool:
    name = Path(library).name
    return name.startswith(_KERNEL) or (name.startswith(_BESIDE) and Path(library).parent == Path(libc).parent)


def _library(name: str) -> str | None:
    """Return the file of the library that answers a call of this process; None where there is no such call."""
    process = ctypes.CDLL(None)
    symbol = _Symbol()
    try:
        address = ctypes.cast(getattr(process, name), ctypes.c_void_p)
    except AttributeError:
        return None
    return symbol.file.decode(errors="replace") if process.dladdr(address, ctypes.byref(symbol)) else None
