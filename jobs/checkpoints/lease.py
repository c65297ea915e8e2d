"""The lease on a store of snapshots: its marker names the owner, and locks keep two users of a folder apart.

A bucket has no locks: its marker names the session of the trainer that was the last to open it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from filelock import FileLock, Timeout

from jobs.checkpoints.snapshots import Snapshots, is_name
from jobs.errors import FolderError, NotOursError
from jobs.model import reading
from jobs.store.bucket import Bucket
from jobs.store.folder import Folder
from jobs.system import files, untrusted
from jobs.terminal import visible

SCHEMA = 1
MARKER_NAME = ".tfio-burst-buffer.json"
JOURNAL_NAME = ".tfio-burst-buffer.journal.jsonl"
LOG_NAME = ".tfio-burst-buffer.log"
ONLY = "only"  # role of the one folder of a training without a burst buffer
CLEAR_TIMEOUT_S = 300.0  # for a drainer that is copying 704 MB to a disk and reads them back
_OURS = (".tfio-burst-buffer", "..tfio-burst-buffer")  # the second: a marker that was being written
_MOST_BYTES = 1 << 16
_TRAINER_WAIT_S = 5.0  # a drainer that ends tidies up after a dead trainer, under the trainer's lock
_ELSEWHERE = "name folders of your own; in a campaign checkpoint.root=…, checkpoint.fast.root=…, checkpoint.slow.root=…"


class Marker(TypedDict):
    """The content of a marker; ``options`` (of the drain) are only in that of a fast folder."""

    id: str
    role: Literal["fast", "slow", "only"]
    options: NotRequired[Any]
    session: NotRequired[str | None]  # of the trainer that opened a bucket last


def marker_of(store: Folder | Bucket) -> Marker | None:
    """Return the marker of a store, None for an empty store; raise FolderError for any other; nothing is changed."""
    try:
        if fault := store.distrust():
            raise FolderError(fault, _ELSEWHERE)
        data = store.read(MARKER_NAME, _MOST_BYTES)
    except NotADirectoryError as error:
        raise FolderError(f"{store} is no folder", "name a folder") from error
    except FileNotFoundError:
        _refuse_strangers(store)
        return None
    except files.OddFileError as error:
        raise FolderError(f"{store}/{MARKER_NAME} is no marker of ours: {error}", "name an empty folder") from error
    try:
        return reading.checked(untrusted.json_value(data), Marker, SCHEMA)
    except untrusted.UntrustedError as error:
        raise FolderError(f"{store}/{MARKER_NAME} is no marker of ours: {error}", "name an empty folder") from error
    except reading.NewerFileError as error:
        cure = "use the newer version, or a new folder"
        raise FolderError(f"{store}/{MARKER_NAME} has {error}, newer than {SCHEMA}", cure) from error


def _refuse_strangers(store: Folder | Bucket) -> None:
    if isinstance(store, Folder) and not store.root.is_dir():
        gone = next((above for above in reversed(store.root.parents) if not above.exists()), store.root)
        raise FolderError(f"{gone} is missing", "make it, or mount its file system")
    if isinstance(store, Folder):
        strangers = [name for name in store.names() if not name.startswith(_OURS)]
    else:  # incomplete snapshots do not count: a killed drainer's last requests may arrive late
        ours = {f"{name}/{rest}" for name, there in store.folders(is_name, ()).items() for rest in there}
        strangers = sorted(store.entries().keys() - ours) or Snapshots(store).names()
    if strangers:
        raise FolderError(
            f"{store} is no place of snapshots: it holds other files, {len(strangers)} in all, such as"
            f" {visible(strangers[0])}",
            "name an empty folder or prefix, or a new one below it",
        )


def pair(fast: Folder, slow: Folder | Bucket) -> tuple[str, Marker | None]:
    """Return the id of the burst buffer of two stores, and the marker of the fast one (None for a new one).

    A new fast folder joins the buffer of the slow one: local disks are new in every job.

    Raises FolderError if they cannot be one burst buffer; nothing is changed.
    """
    _require_apart(fast, slow)
    ours, theirs = _marker_in_role(fast, "fast"), _marker_in_role(slow, "slow")
    if ours and not theirs:
        raise FolderError(
            f"{slow} is empty, and {fast} has been drained to a place with a marker",
            "mount the slow storage, or name the bucket and prefix as before; for a new slow side, name a new fast one"
            f" (if the slow storage is lost, whole snapshots are in {fast}/NAME/files)",
        )
    if ours and theirs and ours["id"] != theirs["id"]:
        raise FolderError(f"{fast} and {slow} belong to two burst buffers", "name the two sides of one, or new ones")
    return theirs["id"] if theirs else secrets.token_hex(8), ours


def _require_apart(fast: Folder, slow: Folder | Bucket) -> None:
    if isinstance(slow, Folder) and (fast.root.is_relative_to(slow.root) or slow.root.is_relative_to(fast.root)):
        raise FolderError(f"{fast} and {slow} lie in one another", "name two folders, on two storages")


def _marker_in_role(store: Folder | Bucket, role: str) -> Marker | None:
    marker = marker_of(store)
    if marker and marker["role"] != role:
        is_what = "is no burst buffer" if marker["role"] == ONLY else f"is the {marker['role']} side of a burst buffer"
        raise FolderError(f"{store} {is_what}", f"name another {role} folder")
    return marker


def mark(store: Folder | Bucket, role: str, buffer_id: str, **more: Any) -> None:
    """Write the marker of a store."""
    store.put(MARKER_NAME, json.dumps({"schema": SCHEMA, "id": buffer_id, "role": role, **more}).encode())


def require(store: Folder | Bucket, buffer_id: str, session: str | None = None) -> None:
    """Raise NotOursError if a store does not belong to the buffer (any more): its file system may be unmounted."""
    marker = marker_of(store)
    if marker is None or marker["id"] != buffer_id:
        cure = "mount its file system again" if isinstance(store, Folder) else "give each training its own prefix"
        raise NotOursError(f"{store} is not the place of this burst buffer any more", cure)
    if session and marker.get("session") != session:
        raise NotOursError(f"{store} has been taken by another trainer", "give each training its own prefix")


def lock(folder: Folder, user: str) -> FileLock:
    """Return the lock of a folder for a `user`, ``trainer`` or ``drainer``; a file system without locks is an error."""
    return FileLock(folder.root / _lock_name(user), fallback_to_soft=False)


def _lock_name(user: str) -> str:
    return f".tfio-burst-buffer.{user}.lock"


def hold(fast: Folder, slow: Folder | Bucket | None) -> tuple[ExitStack, str, Marker | None]:
    """Lock a trainer's stores, and make folders of which only the last part is missing; `slow`: None for one store.

    Returns the stack that releases the locks, the buffer's id, and the fast folder's marker (None for a new one).
    Raises FolderError if they are in use or cannot be one buffer, or their file systems have no locks or are read-only.
    """

    def checked() -> tuple[str, Marker | None]:
        return pair(fast, slow) if slow else (secrets.token_hex(8), _marker_in_role(fast, ONLY))

    if slow:
        _require_apart(fast, slow)
    folders = [each for each in (slow, fast) if isinstance(each, Folder)]
    with _make_missing(folders) as made, ExitStack() as locks:
        try:
            checked()  # before the locks: a folder of somebody else is not changed
        except FolderError as error:  # of a training that runs, there is another cure
            if used := [folder for folder in folders if is_locked(folder, "trainer")]:
                raise _in_use(used[0]) from error
            raise
        for folder in folders:
            locks.callback(acquired(folder, "trainer", _TRAINER_WAIT_S).release)
        for folder in folders:
            for name in folder.names():
                if name.startswith(f".{MARKER_NAME}.") and name.endswith(files.TEMPORARY):  # of a trainer that died
                    folder.delete(name)
            files.append(folder.root / _lock_name("drainer")).close()  # now, while there is room for it
        pair_facts = checked()  # after the locks: now no other process can interfere
        made.pop_all()
        return locks.pop_all(), *pair_facts


def _make_missing(folders: Sequence[Folder]) -> ExitStack:
    """Make the folders of which only the last part is missing; return the stack that removes them while empty."""
    with ExitStack() as made:
        for root in [each.root for each in folders]:
            if root.parent.is_dir() and not root.exists():
                files.make_folder(root)
                made.callback(_remove_empty, root)
                files.sync_folder(root.parent)
        return made.pop_all()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is gone, or is not empty
        files.remove_empty(folder)


def _in_use(folder: Folder) -> FolderError:
    return FolderError(f"{folder} is in use by another trainer", "give each training its own folders")


def acquired(folder: Folder, user: str, timeout_s: float) -> FileLock:
    """Return the acquired lock of a folder's `user`; raise FolderError if it is in use or locks do not work."""
    file_lock = lock(folder, user)
    try:
        file_lock.acquire(timeout=timeout_s)
    except Timeout as error:
        if user == "drainer":
            raise FolderError(f"a drainer is still at work in {folder}", "wait for it to end, or end it") from error
        raise _in_use(folder) from error
    except OSError as error:
        cure = "mount it writable and with locks (Lustre: -o flock)"
        raise FolderError(f"cannot lock {file_lock.lock_file}: {error.strerror}", cure) from error
    return file_lock


@contextmanager
def held_by_drainer(store: Folder | Bucket) -> Iterator[bool]:
    """Hold the lock of a folder's drainer, after waiting for it; yield False if the folder has been removed.

    `lock` is not used, because it would make file and folder again if somebody has just removed them: the file exists
    since the folder was leased (`hold`), and is removed last (`clear`).

    A bucket has no lock. Raises FolderError if the file is missing in a folder that exists.
    """
    with ExitStack() as stack:
        if isinstance(store, Bucket):
            yield True
            return
        descriptor = _wait_for_drainer_lock(store)
        if descriptor is not None:
            stack.callback(os.close, descriptor)
        yield descriptor is not None


def is_locked(folder: Folder, user: str) -> bool:
    """Return whether a ``trainer`` or ``drainer`` is at work in a folder; the drainer stays as long as its trainer."""
    with suppress(OSError), ExitStack() as held:
        descriptor = files.opened(folder.root / _lock_name(user), os.O_RDWR)
        held.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _wait_for_drainer_lock(folder: Folder) -> int | None:
    """Return the open and locked file of a folder's drainer lock; None if the folder has been removed."""
    path = folder.root / _lock_name("drainer")
    while True:
        try:
            descriptor = files.opened(path, os.O_RDWR)
        except FileNotFoundError:
            if (folder.root / MARKER_NAME).exists():
                raise FolderError(f"{path} is missing", "make it anew, empty") from None
            return None
        with ExitStack() as unless_taken:
            unless_taken.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else it went while we waited for it
                unless_taken.pop_all()
                return descriptor


def clear(stores: Sequence[Folder | Bucket], timeout_s: float = CLEAR_TIMEOUT_S) -> None:
    """Remove the snapshots of a finished training and the markers of its stores, the fast store first.

    A drainer that is still at work has nothing left to do once the fast folder is empty, and is waited for. Raises
    FolderError, before anything is touched, for a store that is in use, somebody else's or of a newer version; and at
    the end for snapshots that could not be removed, with which the markers of all stores stay.
    """
    marked = {store: marker_of(store) for store in stores if isinstance(store, Bucket) or store.root.exists()}
    snapshots = {store: Snapshots(store) for store, marker in marked.items() if marker or isinstance(store, Folder)}
    for each in snapshots.values():
        each.states()
    folders = [store for store in snapshots if isinstance(store, Folder)]
    with ExitStack() as locks:
        for folder in folders:
            locks.callback(acquired(folder, "trainer", _TRAINER_WAIT_S).release)
        for folder in folders:
            _empty(snapshots[folder])
            locks.callback(acquired(folder, "drainer", timeout_s).release)
        if left := [line for each in snapshots.values() for line in _empty(each)]:  # with what a drainer was copying
            raise FolderError(
                f"all other snapshots are removed, and these are left: {'; '.join(left)}",
                "see what is there and remove it by hand, then clear again",
            )
        for store in snapshots:
            if isinstance(store, Bucket):
                store.delete(MARKER_NAME)
        for folder in folders:
            remove_ours(folder)
            _remove_empty(folder.root)  # unless somebody has put a file of his own there


def _empty(snapshots: Snapshots) -> list[str]:
    """Remove the snapshots of a store; return those that could not be removed, each with the reason."""
    left = []
    for name in snapshots.states():
        try:
            snapshots.delete(name)
        except OSError as error:
            left.append(f"{snapshots.store}/{name} ({error.strerror}: {error.filename})")
    return left


def remove_ours(folder: Folder) -> None:
    """Remove all our files beside the snapshots: marker, journal, log and locks.

    The marker is removed first: without it no process starts here. The lock that drainers wait for is removed last.
    """
    ours = [name for name in folder.names() if name.startswith(_OURS)]
    for name in sorted(ours, key=lambda name: (name == _lock_name("drainer"), name != MARKER_NAME)):
        files.remove(folder.root / name)
