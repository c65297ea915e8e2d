"""Who owns a folder of snapshots: its marker, and the locks that keep two users apart."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar

from filelock import FileLock, Timeout

from jobs.errors import FolderError, NotOursError
from jobs.model import reading
from jobs.system import files, untrusted

if TYPE_CHECKING:
    from jobs.burst_buffer.slow import Place

_T = TypeVar("_T")
SCHEMA = 1
MARKER_NAME = ".tfio-burst-buffer.json"
JOURNAL_NAME = ".tfio-burst-buffer.journal.jsonl"
LOG_NAME = ".tfio-burst-buffer.log"
ALONE = "only"  # role of the one folder of a training without a burst buffer
_ROLES = ("fast", "slow", ALONE)
_OURS = (".tfio-burst-buffer", "..tfio-burst-buffer")  # the second: a marker that was being written
_ELSEWHERE = "name folders of your own; in a campaign checkpoint.root=…, checkpoint.fast.root=…, checkpoint.slow.root=…"
_TRAINER_WAIT_S = 5.0  # a drainer that ends tidies up after a dead trainer, under the trainer's lock


class Marker(TypedDict):
    """What the marker of a folder says; ``options`` of its drain has the one of a fast folder, None any other."""

    id: str
    role: str
    options: Any
    session: str | None  # of the trainer that was the last to open a bucket, which has no locks


class _Stored(TypedDict):
    id: str | int
    role: str
    options: NotRequired[Any]
    session: NotRequired[str | None]


def read(folder: Place) -> Marker | None:
    """Return the marker of a folder, None for an empty one; raises FolderError for any other, and touches nothing."""
    if not isinstance(folder, Path):
        return folder.marker()
    marker = folder / MARKER_NAME
    try:
        if fault := files.distrust(folder):
            raise FolderError(fault, _ELSEWHERE)
        return parsed(lambda: reading.load(marker), marker)
    except FileNotFoundError:
        _refuse_strangers(folder)
        return None
    except NotADirectoryError as error:
        raise FolderError(f"{folder} is no folder", "name a folder") from error


def parsed(load: Callable[[], Any], marker: object) -> Marker:
    """Return the marker that `load` gives as JSON says it; raises FolderError where it is none."""
    try:
        value = reading.checked(load(), _Stored, SCHEMA)
    except untrusted.UntrustedError as error:
        raise FolderError(f"{marker} is no marker of ours: {error}", "name an empty folder") from error
    except reading.NewerFileError as error:
        raise FolderError(
            f"{marker} has {error}, newer than {SCHEMA}", "use the newer version, or a new folder"
        ) from error
    if value["role"] not in _ROLES:
        raise FolderError(f"{marker} is no marker of ours: it names no role", "name an empty folder")
    return Marker(id=str(value["id"]), role=value["role"], options=value.get("options"), session=value.get("session"))


def _refuse_strangers(folder: Path) -> None:
    if not folder.is_dir():
        gone = next((above for above in reversed(folder.parents) if not above.exists()), folder)
        raise FolderError(f"{gone} is missing", "make it, or mount its file system")
    strangers = [name for name in files.names(folder) if not name.startswith(_OURS)]
    if strangers:
        raise FolderError(
            f"{folder} is no folder of snapshots: it holds other files, {len(strangers)} in all, as {strangers[0]}",
            "name an empty folder, or a new one below it",
        )


def pair(fast: Path, slow: Place) -> tuple[str, Marker | None]:
    """Check that two folders can be one burst buffer; returns its id and the marker of the fast one, if it has one.

    A new fast folder joins the buffer of the slow one: local disks are new in every job.

    Raises FolderError where they cannot: nothing has been touched.
    """
    _require_apart(fast, slow)
    markers = {"fast": read(fast), "slow": read(slow)}
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
    marker = read(folder)
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
    marker = read(folder)
    if marker is None or marker["id"] != buffer_id:
        cure = "mount its file system again" if isinstance(folder, Path) else "give each training its own prefix"
        raise NotOursError(f"{folder} is not the place of this burst buffer any more", cure)
    if session and marker["session"] != session:
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
    ours = [name for name in files.names(folder) if name.startswith(_OURS)]
    for name in sorted(ours, key=lambda name: (name == last, name != MARKER_NAME)):
        files.remove(folder / name)


@contextmanager
def held_by_drainer(folder: Place) -> Iterator[bool]:
    """Wait for the lock of a folder's drainer and hold it; yields False where the folder has been removed.

    Not by `lock`, which makes file and folder anew where somebody has just taken them away: the file is there since
    the folder was claimed (`hold`), and it is the last to go (`remove_ours`).

    A bucket has none. Raises FolderError: the file is gone and the folder is not.
    """
    with ExitStack() as held:
        yield not isinstance(folder, Path) or _is_taken(folder, held)


def _is_taken(folder: Path, held: ExitStack) -> bool:
    path = _lock_file(folder, "drainer")
    while True:
        try:
            descriptor = files.opened(path, os.O_RDWR)
        except FileNotFoundError:
            if (folder / MARKER_NAME).exists():
                raise FolderError(f"{path} is missing", "make it anew, empty") from None
            return False
        with ExitStack() as one:
            one.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else it went while we waited for it
                held.enter_context(one.pop_all())
                return True


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
