"""Files and folders where another user can write: opened without following a link, read in bounds, written whole.

A path given here has no link in it. The root of a storage is the user's word: whoever takes it resolves it
(`Path.resolve`), and a link below it, in whatever component, is refused as the trap that it may be (openat(2),
``O_NOFOLLOW``, one component after the other). What is opened is a regular file (no FIFO that blocks, no device), and
temporary names cannot be guessed.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

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
    """What lies there is not a file as this program writes it: a link, a FIFO, a device, somebody else's, too large."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EPERM, why, str(path))


def opened(path: Path, flags: int = os.O_RDONLY, mode: int = _FILE_MODE) -> int:
    """Open a regular file and return its descriptor; one that is written to must be ours, under one name.

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
    found = os.fstat(descriptor)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(found.st_mode) and not (writes and (found.st_uid != os.geteuid() or found.st_nlink > 1)):
        return descriptor
    os.close(descriptor)
    raise OddFileError(f"it is {'not ours alone' if stat.S_ISREG(found.st_mode) else 'no regular file'}", path)


@contextlib.contextmanager
def followed(path: str) -> Iterator[int]:
    """Open a regular file of a user's own data, to which links may lead, to read it; errors are those of `opened`."""
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
    """Tell whether a relative name, as it stands, may be that of a file below its folder.

    It has no ``..``, empty part, NUL, character without a code in the file system, or more than `DEEPEST` folders.
    """
    parts = str.split(name, "/")
    with contextlib.suppress(UnicodeEncodeError):
        odd = {"", ".", ".."}.intersection(parts) or b"\0" in os.fsencode(name)
        return not odd and len(parts) <= DEEPEST + 1
    return False


def named(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that the user names: links in the place of its folders are his word, and followed."""
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
    """What of a file changes whenever it is written, or put in the place of another one."""

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
    """Return the stamp of the regular file of this name in each folder within a folder, by that one's name.

    What cannot be opened, or is reached by a link, is left out. Raises OSError where the folder cannot be read.
    """
    found: dict[str, Stamp] = {}
    with _readable(folder) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    found[entry.name] = _stamp(os.open(f"{entry.name}/{name}", _CAREFUL, dir_fd=descriptor))
    return found


def _stamp(descriptor: int) -> Stamp:
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EPERM, "it is no regular file")
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns)


@contextlib.contextmanager
def whole(path: Path, *, durable: bool = True, mode: int = _FILE_MODE) -> Iterator[BinaryIO]:
    """Write a file that appears when the block ends, and not at all where it fails; what was there stays till then."""
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
    """Open a file of ours to add to its end; made where it is missing."""
    return os.fdopen(opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def begin(path: Path) -> int:
    """Begin a file anew and return its descriptor, for writing; what had its name goes, be it a link, unfollowed."""
    remove(path, missing_ok=True)
    return opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)


def make_folder(folder: Path, *, exist_ok: bool = False, parents: bool = False, mode: int = _FOLDER_MODE) -> None:
    """Make a folder that nobody else may write to, and those above it only where `parents` are to be made."""
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
    """Say why what is in a folder could be somebody else's doing; empty for a folder that only we or root may write."""
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
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted."""
    with _readable(folder) as descriptor:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor


def tree(folder: Path) -> dict[str, os.stat_result]:
    """Return all that is below a folder, by relative path; links are listed and not followed.

    Raises OddFileError where folders lie in each other more than `DEEPEST` deep.
    """
    found: dict[str, os.stat_result] = {}
    waiting = [""]
    while waiting:
        above = waiting.pop()
        if above.count("/") > DEEPEST:
            raise OddFileError(f"it has more than {DEEPEST} folders in each other", folder)
        with _readable(folder / above) as descriptor:
            for name in os.listdir(descriptor):  # noqa: PTH208 - of a descriptor
                found[above + name] = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(found[above + name].st_mode):
                    waiting.append(f"{above}{name}/")
    return dict(sorted(found.items()))


def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder; what had the name goes, as rename(2) has it."""
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


def remove_empty(folder: Path) -> None:
    """Remove a folder that is empty."""
    with _held(folder.parent) as above:
        os.rmdir(folder.name, dir_fd=above)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it; a link in its place, or in it, is removed itself.

    Raises OddFileError, and removes nothing, where folders lie in each other more than `DEEPEST` deep.
    """
    with _held(folder.parent) as above:
        if stat.S_ISLNK(os.stat(folder.name, dir_fd=above, follow_symlinks=False).st_mode):
            os.unlink(folder.name, dir_fd=above)
        else:
            tree(folder)  # too deep a one is an error here; rmtree would end in one of Python's own
            shutil.rmtree(folder.name, dir_fd=above)


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
