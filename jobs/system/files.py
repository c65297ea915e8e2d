"""Handle files and folders where another user can write: open without links, read in bounds, write whole.

A path given here has no link in it. The root of a storage is the user's word: whoever takes it resolves it
(`Path.resolve`), and a link below it, in whatever component, is refused as the trap that it may be (openat(2),
``O_NOFOLLOW``, one component after the other). What is opened is a regular file (no FIFO that blocks, no device), and
temporary names cannot be guessed. `keep_trying` waits for a storage that is full, read-only or away for a while.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

TEMPORARY = ".tmp"
"""End of the name of a file that is being written; it begins with a dot and the name to come."""
LARGEST_BYTES = 64 << 20
DEEPEST = 64
"""Folders in each other that are entered; a path of 4,096 bytes allows 2,047."""
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CAREFUL = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER_MODE, _FILE_MODE, _PRIVATE_MODE = 0o755, 0o644, 0o600  # whatever the umask: nobody else may write
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class OddFileError(OSError):
    """Raised for what this program does not write: a link, a FIFO, a device, another user's file, a large one."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EPERM, why, str(path))


def opened(path: Path, flags: int = os.O_RDONLY, mode: int = _FILE_MODE) -> int:
    """Open a regular file and return its descriptor; a file to write must be ours, under one name.

    Raises OddFileError: it is a link, a FIFO, a device or a folder; or, where it is written to, somebody else's or a
    hard link; OSError: as open(2); ``ELOOP`` where a folder of the path is a link.
    """
    with _held(path.parent) as folder:
        try:
            descriptor = os.open(path.name, flags | _CAREFUL, mode, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link; a FIFO or socket; a folder
                raise OddFileError("it is no regular file", path) from error
            raise OSError(error.errno, error.strerror, str(path)) from error
    status = os.fstat(descriptor)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(status.st_mode) and not (writes and (status.st_uid != os.geteuid() or status.st_nlink > 1)):
        return descriptor
    os.close(descriptor)
    raise OddFileError(f"it is {'not ours alone' if stat.S_ISREG(status.st_mode) else 'no regular file'}", path)


@contextlib.contextmanager
def followed(path: str) -> Iterator[int]:
    """Open a file of the user's own data for reading, also through links; errors are those of `opened`."""
    descriptor = os.open(path, os.O_RDONLY | (_CAREFUL & ~os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OddFileError("it is no regular file", Path(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[int]:
    """Hold a folder (``O_PATH``) that is reached without a link."""
    descriptor = os.open("/", _STEP)
    try:
        for place, part in enumerate(folder.absolute().parts[1:], start=2):
            try:
                below = os.open(part, _STEP, dir_fd=descriptor)
            except OSError as error:
                here = Path(*folder.absolute().parts[:place])
                raise _explained(error, here, descriptor) from error
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _explained(error: OSError, path: Path, above: int) -> OSError:
    """Name the component that cannot be entered, and say so where it is a link."""
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(path.name, dir_fd=above, follow_symlinks=False).st_mode):
            return OSError(errno.ELOOP, "it is a link, and is not followed", str(path))
    return OSError(error.errno, error.strerror, str(path))


def is_below(name: str) -> bool:
    """Return whether a relative name, as it stands, may be that of a file below its folder.

    It has no ``..``, empty part, NUL, character without a code in the file system, or more than `DEEPEST` folders.
    """
    parts = str.split(name, "/")
    with contextlib.suppress(UnicodeEncodeError):
        odd = {"", ".", ".."}.intersection(parts) or b"\0" in os.fsencode(name)
        return not odd and len(parts) <= DEEPEST + 1
    return False


def named(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that the user names, with the links among its folders resolved."""
    return Path(path).parent.resolve() / Path(path).name


def read(path: Path, largest: int = LARGEST_BYTES, owner: int | None = None) -> bytes:
    """Return the bytes of a regular file of at most `largest` bytes and of the user `owner`; else OddFileError."""
    with os.fdopen(opened(path), "rb") as file:
        status = os.fstat(file.fileno())
        if owner not in (None, status.st_uid):
            raise OddFileError(f"it is {user_name(status.st_uid)}'s", path)
        data = file.read(status.st_size + 1) if status.st_size <= largest else b""
        if len(data) > status.st_size:  # one that a program answers (/proc, the state of an emulated storage) has 0
            data += file.read(largest + 1 - len(data))
    if max(status.st_size, len(data)) > largest:
        raise OddFileError(f"it has more than {largest} bytes", path)
    return data


class Stamp(NamedTuple):
    """The status of a file that changes whenever it is written or replaced."""

    modified_ns: int
    size: int
    inode: int
    changed_ns: int


def stamp(path: Path) -> Stamp:
    """Return the stamp of a regular file, which is opened: an NFS client asks for news then alone.

    Errors are those of `opened`.
    """
    return _stamp(opened(path))


def stamps(folder: Path, name: str) -> dict[str, Stamp]:
    """Return the stamps of the regular files of this name in each folder within a folder, by the folders' names.

    What cannot be opened, or is reached by a link, is left out. Raises OSError where the folder cannot be read.
    """
    stamps_by_name: dict[str, Stamp] = {}
    with _readable(folder) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    stamps_by_name[entry.name] = _stamp(os.open(f"{entry.name}/{name}", _CAREFUL, dir_fd=descriptor))
    return stamps_by_name


def _stamp(descriptor: int) -> Stamp:
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EPERM, "it is no regular file")
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


@contextlib.contextmanager
def whole(path: Path, *, durable: bool = True, mode: int = _FILE_MODE) -> Iterator[BinaryIO]:
    """Write a file that appears when the block ends, and not at all if it fails; until then the old file stays."""
    temporary = f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}"
    with _held(path.parent) as folder:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFUL, mode, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(descriptor)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            if isinstance(error, OSError):  # a full disk's error names no file
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        if durable:
            _sync(folder)


def write(path: Path, text: str) -> None:
    """Write a text, whole and durably."""
    with whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write `value` as JSON, whole and durably; without an indent ten times faster, for machines to read."""
    write(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def append(path: Path) -> BinaryIO:
    """Open a file of ours to add to its end; make it if it is missing."""
    return os.fdopen(opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def begin(path: Path) -> int:
    """Begin a file anew and return its descriptor for writing; remove what had its name, a link unfollowed."""
    remove(path, missing_ok=True)
    return opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)


def make_folder(folder: Path, *, exist_ok: bool = False, parents: bool = False, mode: int = _FOLDER_MODE) -> None:
    """Make a folder that nobody else may write to, and with `parents` those above it."""
    if parents and not folder.parent.is_dir():
        make_folder(folder.parent, exist_ok=True, parents=True)
    with _held(folder.parent) as above:
        try:
            os.mkdir(folder.name, mode, dir_fd=above)
        except OSError as error:
            if not (exist_ok and error.errno == errno.EEXIST):
                raise OSError(error.errno, error.strerror, str(folder)) from error
    with _held(folder):  # what was there is a folder, and no link to one
        pass


def distrust(folder: Path) -> str:
    """Return why somebody else may have made what is in a folder; empty if only we or root may write there."""
    with _held(folder) as descriptor:
        found, above = os.fstat(descriptor), os.stat("..", dir_fd=descriptor)
    if found.st_uid not in (0, os.geteuid()):
        return f"{folder} is {user_name(found.st_uid)}'s"
    if found.st_mode & _OTHERS_WRITE:
        return f"{folder} may be written by other users (chmod go-w {folder})"
    if above.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        return f"{folder.parent} lets any user rename what is in it (chmod +t {folder.parent})"
    return ""


def user_name(number: int) -> str:
    """Return the name of a user, or the number if there is no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    with _readable(folder) as descriptor:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor


def tree(folder: Path) -> dict[str, os.stat_result]:
    """Return the status of everything below a folder, by relative path; links are listed and not followed.

    Raises OddFileError where folders lie in each other more than `DEEPEST` deep.
    """
    entries: dict[str, os.stat_result] = {}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        if above.count("/") > DEEPEST:
            raise OddFileError(f"it has more than {DEEPEST} folders in each other", folder)
        with _readable(folder / above) as descriptor:
            for name in os.listdir(descriptor):  # noqa: PTH208 - of a descriptor
                entries[above + name] = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(entries[above + name].st_mode):
                    waiting.append(f"{above}{name}/")
    return dict(sorted(entries.items()))


def statuses(folder: Path, above: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, os.stat_result]]:
    """Return the status of the regular files of some names in each of the folders `above` within a folder.

    What is no folder, or a link to one, has none; a folder that has just been removed is left out.
    """
    status_of_name: dict[str, dict[str, os.stat_result]] = {}
    with _readable(folder) as descriptor:
        for each in above:
            with contextlib.suppress(FileNotFoundError):
                status_of_name[each] = {}
                if not stat.S_ISDIR(os.stat(each, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    continue
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{each}/{name}", dir_fd=descriptor, follow_symlinks=False)
                        status_of_name[each] |= {name: status} if stat.S_ISREG(status.st_mode) else {}
    return status_of_name


def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder; the target is replaced, as by rename(2)."""
    with _held(source.parent) as before, _held(target.parent) as after:
        os.rename(source.name, target.name, src_dir_fd=before, dst_dir_fd=after)


def remove(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file, or a link itself."""
    try:
        with _held(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)
    except FileNotFoundError:
        if not missing_ok:
            raise
    except IsADirectoryError as error:
        raise IsADirectoryError(error.errno, error.strerror, str(path)) from error


def remove_empty(folder: Path) -> None:
    """Remove a folder that is empty."""
    with _held(folder.parent) as above:
        os.rmdir(folder.name, dir_fd=above)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it; a link in its place, or in it, is removed itself."""
    with _held(folder.parent) as above:
        if stat.S_ISLNK(os.stat(folder.name, dir_fd=above, follow_symlinks=False).st_mode):
            os.unlink(folder.name, dir_fd=above)
        else:
            _flatten(folder)
            shutil.rmtree(folder.name, dir_fd=above)


def _flatten(folder: Path) -> None:
    """Move each folder that lies more than `DEEPEST` deep to the top: rmtree ends in an error of Python's own there."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        if above.count("/") > DEEPEST:
            name = secrets.token_hex(8)
            rename(folder / above, folder / name)
            above = f"{name}/"
        with _readable(folder / above) as descriptor, os.scandir(descriptor) as entries:
            waiting += [f"{above}{entry.name}/" for entry in entries if entry.is_dir(follow_symlinks=False)]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with _held(folder) as descriptor:
        _sync(descriptor)


def _sync(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[int]:
    with _held(folder) as held:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_Made = TypeVar("_Made")


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder, quotas apart."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def lack_of_room(folder: Path, size: int) -> str:
    """Return why `size` bytes more do not fit on the file system of a folder; empty if they fit, quotas apart."""
    free = free_bytes(folder)
    return (
        ""
        if size <= free
        else f"{folder} needs {size / 1e6:,.0f} MB more, and its device has {free / 1e6:,.0f} MB free"
    )


def is_full(error: Exception) -> bool:
    """Return whether an error means a full storage; TensorFlow's errors say so only in their text."""
    return getattr(error, "errno", None) in _FULL or any(os.strerror(code) in str(error) for code in _FULL)


def keep_trying(write: Callable[[], _Made], timeout_s: float) -> _Made:
    """Call `write`; if it fails (disk full, read-only, away), call it again, for at most `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return write()
        except OSError as error:
            if time.monotonic() + pause_s > deadline:
                raise
            with contextlib.suppress(OSError):  # the log lies on a full disk, too
                print(f"cannot write {error.filename} ({error.strerror}); waiting for it", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
