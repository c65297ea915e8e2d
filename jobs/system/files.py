"""Open, read and write files in folders to which other users may write, without following links.

A path that is passed to these functions must not contain a link. So a caller that gets the root of a storage from the
user resolves the root first (`resolve_links`). A link in any component below the root is refused, because another user
may have made the link as a trap (openat(2) with ``O_NOFOLLOW``, one component after the other).

Only regular files are opened: a FIFO would block, and a device is no data. Other users cannot guess the names of
temporary files. `keep_trying` waits if a storage is full, read-only or absent for a while.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

TEMPORARY = ".tmp"
"""The suffix of a temporary file. The name of a temporary file begins with a dot and the final name of the file."""
LARGEST_BYTES = 64 << 20
DEEPEST = 64
"""The largest allowed number of nested folders; a path of 4,096 bytes could have 2,047 nested folders."""
_FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# With these modes no other user may write, whatever the umask is.
_FOLDER_MODE, _FILE_MODE, _PRIVATE_MODE = 0o755, 0o644, 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class OddFileError(OSError):
    """Raised for a file that this program does not accept: a link, a FIFO, a device, a foreign or a large file."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(errno.EPERM, reason, str(path))


def open_file(path: Path, flags: int = os.O_RDONLY, mode: int = _FILE_MODE) -> int:
    """Open a regular file, and return its file descriptor.

    Raises OddFileError for a link, a FIFO, a device or a folder. If the file is opened for writing, raises OddFileError
    also for a file of another user, and for a file with hard links. Raises OSError like open(2); the error number is
    ``ELOOP`` if a folder of the path is a link.
    """
    with _opened_folder(path.parent) as folder:
        try:
            descriptor = os.open(path.name, flags | _SAFE_FLAGS, mode, dir_fd=folder)
        except OSError as error:
            # ELOOP means a link, ENXIO means a FIFO or a socket, EISDIR means a folder.
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise OddFileError("the path is no regular file", path) from error
            raise OSError(error.errno, error.strerror, str(path)) from error
    status = os.fstat(descriptor)
    is_written = flags & (os.O_WRONLY | os.O_RDWR)
    if stat.S_ISREG(status.st_mode) and not (is_written and (status.st_uid != os.geteuid() or status.st_nlink > 1)):
        return descriptor
    os.close(descriptor)
    is_regular = stat.S_ISREG(status.st_mode)
    raise OddFileError(
        "the file has another owner, or hard links" if is_regular else "the path is no regular file", path
    )


@contextlib.contextmanager
def open_through_links(path: str) -> Iterator[int]:
    """Open a file of the user's own data for reading. The path may contain links. Raises the errors of `open_file`."""
    descriptor = os.open(path, os.O_RDONLY | (_SAFE_FLAGS & ~os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OddFileError("the path is no regular file", Path(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder (``O_PATH``); raise OSError if its path contains a link."""
    descriptor = os.open("/", _FOLDER_FLAGS)
    try:
        for count, part in enumerate(folder.absolute().parts[1:], start=2):
            try:
                child = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
            except OSError as error:
                path = Path(*folder.absolute().parts[:count])
                raise _explain(error, path, descriptor) from error
            os.close(descriptor)
            descriptor = child
        yield descriptor
    finally:
        os.close(descriptor)


def _explain(error: OSError, path: Path, parent: int) -> OSError:
    """Return an error that names the folder that cannot be opened, and that says whether this folder is a link."""
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode):
            return OSError(errno.ELOOP, "the path is a link, and is not followed", str(path))
    return OSError(error.errno, error.strerror, str(path))


def is_possible_name_below(name: str) -> bool:
    """Return whether a relative name can name a file below a folder; the storage is not accessed.

    Such a name has no part that is empty, ``.`` or ``..``. It has no NUL, only characters that the file system can
    encode, and at most `DEEPEST` folders.
    """
    parts = str.split(name, "/")
    with contextlib.suppress(UnicodeEncodeError):
        is_odd = {"", ".", ".."}.intersection(parts) or b"\0" in os.fsencode(name)
        return not is_odd and len(parts) <= DEEPEST + 1
    return False


def resolve_links(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path, without links and ``~``, of a path that the user named.

    Raises OSError (``ELOOP``) if links lead back to themselves.
    """
    expanded = Path(path).expanduser()
    try:
        return expanded.resolve()
    except RuntimeError as error:  # how Python before 3.13 reports a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def resolve_user_path(path: str | os.PathLike[str]) -> Path:
    """Resolve the links in the folders of a path that the user named; the last component may still be a link."""
    return resolve_links(Path(path).parent) / Path(path).name


def read_file(path: Path, largest: int = LARGEST_BYTES, owner: int | None = None) -> bytes:
    """Return the bytes of a regular file.

    Raises OddFileError if the file has more than `largest` bytes, or does not belong to the user `owner` (None: any
    user).
    """
    with os.fdopen(open_file(path), "rb") as file:
        status = os.fstat(file.fileno())
        if owner not in (None, status.st_uid):
            raise OddFileError(f"the file belongs to {user_name(status.st_uid)}", path)
        data = file.read(status.st_size + 1) if status.st_size <= largest else b""
        if len(data) > status.st_size:  # files in /proc, and the state file of an emulated storage, have size 0
            data += file.read(largest + 1 - len(data))
    if max(status.st_size, len(data)) > largest:
        raise OddFileError(f"the file has more than {largest} bytes", path)
    return data


class Stamp(NamedTuple):
    """The times, the size and the inode of a file; the stamp changes when the file is written or replaced."""

    modified_ns: int
    size: int
    inode: int
    changed_ns: int


def file_stamp(path: Path) -> Stamp:
    """Open a regular file and return its stamp. The open makes an NFS client ask the server for the status.

    Raises the errors of `open_file`.
    """
    return _stamp(open_file(path))


def file_stamps(folder: Path, name: str) -> dict[str, Stamp]:
    """Return the stamps of the regular files with the name `name` in all sub-folders, by name of the sub-folder.

    A file is left out if it cannot be opened, or if the file or its sub-folder is a link. Raises OSError if `folder`
    cannot be read.
    """
    stamps_by_name: dict[str, Stamp] = {}
    with _readable(folder) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    stamps_by_name[entry.name] = _stamp(os.open(f"{entry.name}/{name}", _SAFE_FLAGS, dir_fd=descriptor))
    return stamps_by_name


def _stamp(descriptor: int) -> Stamp:
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EPERM, "the path is no regular file")
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns)


@contextlib.contextmanager
def write_whole(path: Path, *, durable: bool = True, mode: int = _FILE_MODE) -> Iterator[BinaryIO]:
    """Open a file for writing; the new content replaces the old file at the end of the `with` block.

    If the block raises an error, the old file remains unchanged.
    """
    temporary = f".{path.name}.{secrets.token_hex(8)}{TEMPORARY}"
    with _opened_folder(path.parent) as folder:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, mode, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(descriptor)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            if isinstance(error, OSError):  # the error of a full disk does not contain the path
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise
        if durable:
            _sync_descriptor(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file durably, completely or not at all."""
    with write_whole(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any, *, indent: int | None = 1) -> None:
    """Write `value` as a JSON file durably, completely or not at all; ``indent=None`` is ten times faster."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def open_to_append(path: Path) -> BinaryIO:
    """Open a file of this user for appending; make the file if it is missing."""
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def open_new(path: Path) -> int:
    """Open a new file for writing, and return its file descriptor; an old file or link with this name is removed."""
    remove(path, missing_ok=True)
    return open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)


def make_folder(folder: Path, *, exist_ok: bool = False, parents: bool = False, mode: int = _FOLDER_MODE) -> None:
    """Make a folder that no other user may write to, and with `parents` also its missing parents."""
    if parents and not folder.parent.is_dir():
        make_folder(folder.parent, exist_ok=True, parents=True)
    with _opened_folder(folder.parent) as parent:
        try:
            os.mkdir(folder.name, mode, dir_fd=parent)
        except OSError as error:
            if not (exist_ok and error.errno == errno.EEXIST):
                raise OSError(error.errno, error.strerror, str(folder)) from error
    with _opened_folder(folder):  # raises an error if `folder` is a file or a link
        pass


def reason_to_distrust(folder: Path) -> str:
    """Return why another user may have made files in a folder, or "" if only this user or root may write there."""
    with _opened_folder(folder) as descriptor:
        status, parent_status = os.fstat(descriptor), os.stat("..", dir_fd=descriptor)
    if status.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to {user_name(status.st_uid)}"
    if status.st_mode & _OTHERS_WRITE:
        return f"other users may write to {folder} (chmod go-w {folder})"
    if parent_status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        return f"{folder.parent} lets any user rename its files (chmod +t {folder.parent})"
    return ""


def user_name(number: int) -> str:
    """Return the name of the user with an id, or a text with the id if the user has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def names_in_folder(folder: Path) -> list[str]:
    """Return the sorted names of the files and folders in a folder."""
    with _readable(folder) as descriptor:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - pathlib cannot list a file descriptor


def folder_tree(folder: Path) -> dict[str, os.stat_result]:
    """Return the status of all files, folders and links below a folder, by relative path; links are not followed.

    Raises OddFileError if more than `DEEPEST` folders are nested.
    """
    entries: dict[str, os.stat_result] = {}
    queue = [""]
    while queue:
        parent = queue.pop()
        if parent.count("/") > DEEPEST:
            raise OddFileError(f"the folder has more than {DEEPEST} nested folders", folder)
        with _readable(folder / parent) as descriptor:
            for name in os.listdir(descriptor):  # noqa: PTH208 - pathlib cannot list a file descriptor
                entries[parent + name] = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISDIR(entries[parent + name].st_mode):
                    queue.append(f"{parent}{name}/")
    return dict(sorted(entries.items()))


def file_statuses(folder: Path, above: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, os.stat_result]]:
    """Return the status of the regular files with the names `names` in the sub-folders `above` of a folder.

    The result is by name of the sub-folder and name of the file. If a name in `above` is a link or a file, its result
    is empty. A sub-folder that was just removed may be missing in the result.
    """
    status_of_name: dict[str, dict[str, os.stat_result]] = {}
    with _readable(folder) as descriptor:
        for child in above:
            with contextlib.suppress(FileNotFoundError):
                status_of_name[child] = {}
                if not stat.S_ISDIR(os.stat(child, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    continue
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(f"{child}/{name}", dir_fd=descriptor, follow_symlinks=False)
                        status_of_name[child] |= {name: status} if stat.S_ISREG(status.st_mode) else {}
    return status_of_name


def rename(source: Path, target: Path) -> None:
    """Rename a file or a folder; an existing target is replaced, like with rename(2)."""
    with _opened_folder(source.parent) as source_folder, _opened_folder(target.parent) as target_folder:
        os.rename(source.name, target.name, src_dir_fd=source_folder, dst_dir_fd=target_folder)


def remove(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file or a link; the target of a link is not removed."""
    try:
        with _opened_folder(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)
    except FileNotFoundError:
        if not missing_ok:
            raise
    except IsADirectoryError as error:
        raise IsADirectoryError(error.errno, error.strerror, str(path)) from error


def remove_empty(folder: Path) -> None:
    """Remove an empty folder."""
    with _opened_folder(folder.parent) as parent:
        os.rmdir(folder.name, dir_fd=parent)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all files in it, or a link to a folder. The targets of links are not removed."""
    with _opened_folder(folder.parent) as parent:
        if stat.S_ISLNK(os.stat(folder.name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(folder.name, dir_fd=parent)
        else:
            _flatten(folder)
            shutil.rmtree(folder.name, dir_fd=parent)


def _flatten(folder: Path) -> None:
    """Move all folders that are nested deeper than `DEEPEST` to the top: `shutil.rmtree` fails on deep folders."""
    queue = [""]
    while queue:
        parent = queue.pop()
        if parent.count("/") > DEEPEST:
            name = secrets.token_hex(8)
            rename(folder / parent, folder / name)
            parent = f"{name}/"
        with _readable(folder / parent) as descriptor, os.scandir(descriptor) as entries:
            queue += [f"{parent}{entry.name}/" for entry in entries if entry.is_dir(follow_symlinks=False)]


def sync_folder(folder: Path) -> None:
    """Make the file names in a folder durable, by fsync(2) of the folder."""
    with _opened_folder(folder) as descriptor:
        _sync_descriptor(descriptor)


def _sync_descriptor(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _readable(folder: Path) -> Iterator[int]:
    with _opened_folder(folder) as path_descriptor:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=path_descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_IN_MB = 10_000_000  # bytes; a smaller number is printed in kB
_Result = TypeVar("_Result")


def is_open_for_writing(path: Path) -> bool:
    """Return whether a process of this machine has a file open for writing; False on a file system without leases.

    A read lease is refused for such a file (fcntl(2), F_SETLEASE).
    """
    with path.open("rb") as file:
        # If the file is opened for writing while the lease is held, the kernel sends a signal: one that is ignored.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the file system of a folder; quotas are not considered."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def error_if_too_large(folder: Path, size: int) -> str:
    """Return an error text if `size` more bytes do not fit on the file system of a folder, or "" if they fit."""
    free = free_bytes(folder)
    return (
        ""
        if size <= free
        else f"{folder} needs {format_bytes(size)} more, and its device has {format_bytes(free)} free"
    )


def format_bytes(count: int) -> str:
    """Return a number of bytes in MB, or in kB if it is below 10 MB."""
    return f"{count / 1e6:,.0f} MB" if count >= _IN_MB else f"{count / 1e3:,.0f} kB"


def error_text(error: OSError) -> str:
    """Return the path and the reason of an error, without its number."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def is_full(error: Exception) -> bool:
    """Return whether an error means that a storage is full. Errors of TensorFlow show this only in their text."""
    return getattr(error, "errno", None) in _FULL or any(os.strerror(code) in str(error) for code in _FULL)


def keep_trying(write: Callable[[], _Result], timeout_s: float) -> _Result:
    """Call `write` and return its result; after an OSError, repeat the call for at most `timeout_s` seconds.

    The reason of the OSError may be a storage that is full, read-only or absent for a while.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return write()
        except OSError as error:
            if time.monotonic() + pause_s > deadline:
                raise
            with contextlib.suppress(OSError):  # the log file of standard error may be on a full disk, too
                print(f"cannot write {error.filename} ({error.strerror}); trying again", file=sys.stderr, flush=True)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
