"""Who may write to folders of snapshots: the lease of a trainer, and the locks that keep two users apart."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from jobs.burst_buffer.marker import ALONE, MARKER_NAME, OURS, SCHEMA, Marker, of_folder
from jobs.burst_buffer.slow_storage import Place
from jobs.errors import FolderError, NotOursError
from jobs.system import files

_T = TypeVar("_T")
_TRAINER_WAIT_S = 5.0  # a drainer that ends tidies up after a dead trainer, under the trainer's lock


def marker_of(place: Place) -> Marker | None:
    """Return the marker of a folder or bucket, None for an empty one; raises FolderError for any other."""
    return of_folder(place) if isinstance(place, Path) else place.marker()


def pair(fast: Path, slow: Place) -> tuple[str, Marker | None]:
    """Check that two folders can be one burst buffer; returns its id and the marker of the fast one, if it has one.

    A new fast folder joins the buffer of the slow one: local disks are new in every job.

    Raises FolderError where they cannot: nothing has been touched.
    """
    _require_apart(fast, slow)
    markers = {"fast": marker_of(fast), "slow": marker_of(slow)}
    for folder, (role, marker) in zip((fast, slow), markers.items(), strict=True):
        _require_role(folder, marker, role)
    ours, theirs = markers["fast"], markers["slow"]
    if ours and not theirs:
        raise FolderError(
            f"{slow} is empty, and {fast} has been drained to a folder with a marker",
            "mount the slow storage, or name the bucket and prefix as before; for a new slow side, name a new fast one",
        )
    if ours and theirs and ours["id"] != theirs["id"]:
        raise FolderError(f"{fast} and {slow} belong to two burst buffers", "name the two folders of one, or new ones")
    return theirs["id"] if theirs else secrets.token_hex(8), ours


def _require_apart(fast: Path, slow: Place) -> None:
    if isinstance(slow, Path) and (fast == slow or fast in slow.parents or slow in fast.parents):
        raise FolderError(f"{fast} and {slow} lie in one another", "name two folders, on two storages")


def alone(folder: Path) -> Marker | None:
    """Return the marker of the only folder of a training, None for a new one; raises FolderError for another."""
    marker = marker_of(folder)
    _require_role(folder, marker, ALONE)
    return marker


def _require_role(folder: Place, marker: Marker | None, role: str) -> None:
    if marker and marker["role"] != role:
        is_what = "is no burst buffer" if marker["role"] == ALONE else f"is the {marker['role']} side of a burst buffer"
        raise FolderError(f"{folder} {is_what}", f"name another {role} folder")


def mark(folder: Place, role: str, buffer_id: str, **more: Any) -> None:
    """Write the marker of a folder."""
    value = {"schema": SCHEMA, "id": buffer_id, "role": role, **more}
    if isinstance(folder, Path):
        files.write_json(folder / MARKER_NAME, value)
    else:
        folder.mark(value)


def require(folder: Place, buffer_id: str, session: str | None = None) -> None:
    """Raise NotOursError where a folder is not, or no longer, that of the buffer: its file system may be gone."""
    marker = marker_of(folder)
    if marker is None or marker["id"] != buffer_id:
        cure = "mount its file system again" if isinstance(folder, Path) else "give each training its own prefix"
        raise NotOursError(f"{folder} is not the place of this burst buffer any more", cure)
    if session and marker.get("session") != session:
        raise NotOursError(f"{folder} has been taken by another trainer", "give each training its own prefix")


def lock(folder: Path, user: str) -> FileLock:
    """Return the lock of a folder for a `user`, ``trainer`` or ``drainer``; without locks there is no buffer."""
    return FileLock(_lock_file(folder, user), fallback_to_soft=False)


def _lock_file(folder: Path, user: str) -> Path:
    return folder / f".tfio-burst-buffer.{user}.lock"


def hold(fast: Path, slow: Place) -> tuple[list[FileLock], str, Marker | None]:
    """Take two folders for a trainer, making those of which only the last part is missing.

    A bucket has no lock. Returns the locks, the id of the buffer, and the marker of the fast folder, None for a new
    one. Raises FolderError where they are in use or cannot be one buffer, or their file systems have no locks or are
    read-only.
    """
    _require_apart(fast, slow)
    locks, found = _hold([each for each in (slow, fast) if isinstance(each, Path)], lambda: pair(fast, slow))
    return locks, *found


def hold_alone(folder: Path) -> tuple[list[FileLock], Marker | None]:
    """Take the one folder of a trainer that saves to it directly; the same as `hold` otherwise."""
    return _hold([folder], lambda: alone(folder))


def _hold(folders: list[Path], checked: Callable[[], _T]) -> tuple[list[FileLock], _T]:
    for folder in folders:
        if folder.parent.is_dir() and not folder.exists():
            files.make_folder(folder)
            files.sync_folder(folder.parent)
    checked()  # before the locks: a folder of somebody else's is not touched
    locks: list[FileLock] = []
    try:
        for folder in folders:
            locks += [held_by_trainer(folder)]
        for folder in folders:
            _tidy_markers(folder)
            files.append(_lock_file(folder, "drainer")).close()  # now, while there is room for it
        return locks, checked()  # after them: now nobody can come between
    except BaseException:
        release(locks)
        raise


def _tidy_markers(folder: Path) -> None:
    for name in files.names(folder):
        if name.startswith(f".{MARKER_NAME}.") and name.endswith(files.TEMPORARY):  # of a trainer that died
            files.remove(folder / name)


def remove_ours(folder: Path) -> None:
    """Remove all that is written here beside snapshots: marker, journal, log and locks.

    The marker first: without it nobody begins anything here. The lock that drainers wait for goes last.
    """
    last = _lock_file(folder, "drainer").name
    ours = [name for name in files.names(folder) if name.startswith(OURS)]
    for name in sorted(ours, key=lambda name: (name == last, name != MARKER_NAME)):
        files.remove(folder / name)


@contextmanager
def held_by_drainer(folder: Place) -> Iterator[bool]:
    """Wait for the lock of a folder's drainer and hold it; yields False where the folder has been removed.

    Not by `lock`, which makes file and folder anew where somebody has just taken them away: the file is there since
    the folder was leased (`hold`), and it is the last to go (`remove_ours`).

    A bucket has none. Raises FolderError: the file is gone and the folder is not.
    """
    if not isinstance(folder, Path):
        yield True
        return
    descriptor = _wait_for_drainer_lock(folder)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _wait_for_drainer_lock(folder: Path) -> int | None:
    """Take the lock of a folder's drainer and return its open file; None where the folder has been removed."""
    path = _lock_file(folder, "drainer")
    while True:
        try:
            descriptor = files.opened(path, os.O_RDWR)
        except FileNotFoundError:
            if (folder / MARKER_NAME).exists():
                raise FolderError(f"{path} is missing", "make it anew, empty") from None
            return None
        with ExitStack() as unless_taken:
            unless_taken.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else it went while we waited for it
                unless_taken.pop_all()
                return descriptor


def release(locks: list[FileLock]) -> None:
    """Release folders."""
    for taken in locks:
        taken.release()


def held_by_trainer(folder: Path) -> FileLock:
    """Take the lock of a folder's trainer; raises FolderError where somebody has it, or where there are no locks."""
    taken = lock(folder, "trainer")
    try:
        taken.acquire(timeout=_TRAINER_WAIT_S)
    except Timeout as error:
        raise FolderError(f"{folder} is in use by another trainer", "give each training its own folders") from error
    except OSError as error:
        raise FolderError(
            f"cannot lock {taken.lock_file}: {error.strerror}", "mount it writable and with locks (Lustre: -o flock)"
        ) from error
    return taken
