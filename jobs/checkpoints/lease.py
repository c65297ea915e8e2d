"""The lease on a store of snapshots: a marker names the owner of the store, and locks keep a second user out.

A bucket has no locks. Instead, the marker of a bucket names the session of the trainer that opened the bucket last.
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

from jobs.checkpoints.snapshots import Snapshots, is_snapshot_name
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
ONLY = "only"  # role of the folder of a training that has no burst buffer
CLEAR_TIMEOUT_S = 300.0  # seconds that are enough for a drainer to copy 704 MB to a disk and to read them back
_OWN_PREFIXES = (".tfio-burst-buffer", "..tfio-burst-buffer")  # the second prefix is that of temporary markers
_MARKER_LONGEST = 1 << 16
_TRAINER_WAIT_S = 5.0  # seconds, because an ending drainer holds the trainer's lock to remove incomplete snapshots
_OTHER_FOLDERS_CURE = (
    "name folders of your own; in a campaign checkpoint.root=…, checkpoint.fast.root=…, checkpoint.slow.root=…"
)


class Marker(TypedDict):
    """The content of a marker file; only the marker of a fast folder has ``options``, which are those of the drain."""

    id: str  # id of the burst buffer
    role: Literal["fast", "slow", "only"]
    options: NotRequired[Any]
    session: NotRequired[str | None]  # session of the trainer that opened a bucket last


def read_marker(store: Folder | Bucket) -> Marker | None:
    """Return the marker of a store, or None if the store is empty.

    Raises FolderError if the store has other files, belongs to another user, or has an invalid marker.
    """
    try:
        if fault := store.reason_to_distrust():
            raise FolderError(fault, _OTHER_FOLDERS_CURE)
        data = store.read(MARKER_NAME, _MARKER_LONGEST)
    except NotADirectoryError as error:
        raise FolderError(f"{store} is no folder", "name a folder") from error
    except FileNotFoundError:
        _refuse_other_files(store)
        return None
    except files.OddFileError as error:
        raise FolderError(f"{store}/{MARKER_NAME} is not a valid marker: {error}", "name an empty folder") from error
    try:
        return reading.check_value(untrusted.json_value(data), Marker, SCHEMA)
    except untrusted.UntrustedError as error:
        raise FolderError(f"{store}/{MARKER_NAME} is not a valid marker: {error}", "name an empty folder") from error
    except reading.NewerFileError as error:
        cure = "use the newer version of tfio-campaign, or a new folder"
        raise FolderError(f"{store}/{MARKER_NAME} has {error}, newer than {SCHEMA}", cure) from error


def _refuse_other_files(store: Folder | Bucket) -> None:
    if isinstance(store, Folder) and not store.root.is_dir():
        missing = next((folder for folder in reversed(store.root.parents) if not folder.exists()), store.root)
        raise FolderError(f"{missing} is missing", "make the folder, or mount its file system")
    if isinstance(store, Folder):
        other_files = [name for name in store.names() if not name.startswith(_OWN_PREFIXES)]
    else:  # incomplete snapshots are allowed, because the last requests of a killed drainer may arrive late
        own = {f"{name}/{key}" for name, objects in store.folders(is_snapshot_name, ()).items() for key in objects}
        other_files = sorted(store.entries().keys() - own) or Snapshots(store).names()
    if other_files:
        raise FolderError(
            f"{store} cannot be used for snapshots, because it has other files, such as {visible(other_files[0])}"
            f" ({len(other_files)} in all)",
            "name an empty folder or prefix, or a new folder below it",
        )


def identify_pair(fast: Folder, slow: Folder | Bucket) -> tuple[str, Marker | None]:
    """Return the id of the burst buffer of two stores, and the marker of the fast folder (None for a new folder).

    A new fast folder joins the burst buffer of the slow store, because the local disks of a node are new in every job.
    Raises FolderError, without changing a store, if the two stores cannot form one burst buffer.
    """
    _require_apart(fast, slow)
    fast_marker, slow_marker = _marker_in_role(fast, "fast"), _marker_in_role(slow, "slow")
    if fast_marker and not slow_marker:
        raise FolderError(
            f"{slow} is empty, but {fast} was drained to a store with a marker",
            "mount the slow storage, or name the earlier bucket and prefix; for a new slow storage, name a new fast"
            f" folder (if the slow storage is lost, complete snapshots are in {fast}/NAME/files)",
        )
    if fast_marker and slow_marker and fast_marker["id"] != slow_marker["id"]:
        raise FolderError(
            f"{fast} and {slow} belong to two burst buffers",
            "name the fast and the slow storage of one burst buffer, or new folders",
        )
    return slow_marker["id"] if slow_marker else secrets.token_hex(8), fast_marker


def _require_apart(fast: Folder, slow: Folder | Bucket) -> None:
    if isinstance(slow, Folder) and (fast.root.is_relative_to(slow.root) or slow.root.is_relative_to(fast.root)):
        raise FolderError(
            f"{fast} and {slow} are the same folder, or one is inside the other", "name two folders, on two storages"
        )


def _marker_in_role(store: Folder | Bucket, role: str) -> Marker | None:
    marker = read_marker(store)
    if marker and marker["role"] != role:
        is_what = "is no burst buffer" if marker["role"] == ONLY else f"is the {marker['role']} side of a burst buffer"
        raise FolderError(f"{store} {is_what}", f"name another {role} folder")
    return marker


def write_marker(store: Folder | Bucket, role: str, buffer_id: str, **facts: Any) -> None:
    """Write the marker of a store; `facts` are its further keys, such as ``options`` and ``session``."""
    store.put(MARKER_NAME, json.dumps({"schema": SCHEMA, "id": buffer_id, "role": role, **facts}).encode())


def require_owner(store: Folder | Bucket, buffer_id: str, session: str | None = None) -> None:
    """Raise NotOursError if a store does not belong to the burst buffer, or to the `session` of the trainer.

    A folder has no marker, for example, if its file system was unmounted.
    """
    marker = read_marker(store)
    if marker is None or marker["id"] != buffer_id:
        cure = "mount its file system again" if isinstance(store, Folder) else "give each training its own prefix"
        raise NotOursError(f"{store} does not belong to this burst buffer any more", cure)
    if session and marker.get("session") != session:
        raise NotOursError(f"another trainer has opened {store}", "give each training its own prefix")


def folder_lock(folder: Folder, user: str) -> FileLock:
    """Return the lock that a `user` (``trainer`` or ``drainer``) of a folder must hold; the lock is not acquired yet.

    The file system must support locks.
    """
    return FileLock(folder.root / _lock_name(user), fallback_to_soft=False)


def _lock_name(user: str) -> str:
    return f".tfio-burst-buffer.{user}.lock"


def hold_stores(fast: Folder, slow: Folder | Bucket | None) -> tuple[ExitStack, str, Marker | None]:
    """Lock the folders of a trainer, and make a missing folder if its parent folder exists.

    `slow` is None if the trainer uses no burst buffer. Return an exit stack that releases the locks, the id of the
    burst buffer, and the marker of the fast folder (None for a new folder). Raises FolderError if a folder is in use,
    if the stores cannot form one burst buffer, or if a file system is read-only or has no locks.
    """

    def check_pair() -> tuple[str, Marker | None]:
        return identify_pair(fast, slow) if slow else (secrets.token_hex(8), _marker_in_role(fast, ONLY))

    if slow:
        _require_apart(fast, slow)
    folders = [store for store in (slow, fast) if isinstance(store, Folder)]
    with _make_missing(folders) as new_folders, ExitStack() as locks:
        try:
            check_pair()  # checks before locking, because lock files would change another user's folder
        except FolderError as error:  # if another training is running, say so instead
            if locked := [folder for folder in folders if is_locked(folder, "trainer")]:
                raise _in_use(locked[0]) from error
            raise
        for folder in folders:
            locks.callback(acquire_lock(folder, "trainer", _TRAINER_WAIT_S).release)
        for folder in folders:
            for name in folder.names():
                if name.startswith(f".{MARKER_NAME}.") and name.endswith(files.TEMPORARY):  # of a dead trainer
                    folder.delete(name)
            # The drainer's lock file is made now, because later the storage may be full.
            files.open_to_append(folder.root / _lock_name("drainer")).close()
        pair_facts = check_pair()  # checks again after locking, when no other process can change the stores
        new_folders.pop_all()
        return locks.pop_all(), *pair_facts


def _make_missing(folders: Sequence[Folder]) -> ExitStack:
    """Make the missing folders whose parent folders exist.

    Return an exit stack that removes the new folders again, if they are still empty.
    """
    with ExitStack() as new_folders:
        for root in [folder.root for folder in folders]:
            if root.parent.is_dir() and not root.exists():
                files.make_folder(root)
                new_folders.callback(_remove_empty, root)
                files.sync_folder(root.parent)
        return new_folders.pop_all()


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # the folder does not exist any more, or is not empty
        files.remove_empty(folder)


def _in_use(folder: Folder) -> FolderError:
    return FolderError(f"{folder} is in use by another trainer", "give each training its own folders")


def acquire_lock(folder: Folder, user: str, timeout_s: float) -> FileLock:
    """Acquire and return the lock of a `user` (``trainer`` or ``drainer``) of a folder, within `timeout_s` seconds.

    Raises FolderError if another process holds the lock, or if the file system has no locks.
    """
    file_lock = folder_lock(folder, user)
    try:
        file_lock.acquire(timeout=timeout_s)
    except Timeout as error:
        if user == "drainer":
            raise FolderError(
                f"a drainer is still working in {folder}", "wait until the drainer has ended, or end it"
            ) from error
        raise _in_use(folder) from error
    except OSError as error:
        cure = "mount the file system writable and with locks (Lustre: -o flock)"
        raise FolderError(f"cannot lock {file_lock.lock_file}: {error.strerror}", cure) from error
    return file_lock


@contextmanager
def held_by_drainer(store: Folder | Bucket) -> Iterator[bool]:
    """Wait for the lock of a folder's drainer, hold the lock, and yield whether the folder still exists.

    This function does not use `folder_lock`, which would make a removed folder and its lock file again. The lock file
    exists from `hold_stores` until `clear_stores`, which removes the lock file last. For a bucket, no lock is held.

    Raises FolderError if a folder has a marker but no lock file.
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
    """Return whether a `user` (``trainer`` or ``drainer``) holds its lock on a folder.

    A drainer may still hold its lock after its trainer has ended.
    """
    with suppress(OSError), ExitStack() as stack:
        descriptor = files.open_file(folder.root / _lock_name(user), os.O_RDWR)
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _wait_for_drainer_lock(folder: Folder) -> int | None:
    """Return the file descriptor of a folder's drainer lock when it is locked, or None if the folder was removed."""
    path = folder.root / _lock_name("drainer")
    while True:
        try:
            descriptor = files.open_file(path, os.O_RDWR)
        except FileNotFoundError:
            if (folder.root / MARKER_NAME).exists():
                raise FolderError(f"the lock file {path} is missing", "make an empty file of this name") from None
            return None
        with ExitStack() as unless_locked:
            unless_locked.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # 0 if the lock file was removed during the wait
                unless_locked.pop_all()
                return descriptor


def clear_stores(stores: Sequence[Folder | Bucket], timeout_s: float = CLEAR_TIMEOUT_S) -> None:
    """Remove the snapshots of a finished training, and then the markers of its stores.

    `stores` has the fast store first. The fast folder is emptied first, so that a running drainer has nothing left to
    do and ends. Then this function waits for the drainer's end, at most `timeout_s` seconds.

    Raises FolderError, before any change, if a store is in use, was made by a newer version, or belongs to another
    user. Raises FolderError, too, if snapshots could not be removed; then the markers of all stores stay.
    """
    markers = {store: read_marker(store) for store in stores if isinstance(store, Bucket) or store.root.exists()}
    snapshots = {store: Snapshots(store) for store, marker in markers.items() if marker or isinstance(store, Folder)}
    for store_snapshots in snapshots.values():
        store_snapshots.states()
    folders = [store for store in snapshots if isinstance(store, Folder)]
    with ExitStack() as locks:
        for folder in folders:
            locks.callback(acquire_lock(folder, "trainer", _TRAINER_WAIT_S).release)
        for folder in folders:
            _empty(snapshots[folder])
            locks.callback(acquire_lock(folder, "drainer", timeout_s).release)
        # The stores are emptied once more, because the drainer may have made a copy meanwhile.
        if remaining := [line for store_snapshots in snapshots.values() for line in _empty(store_snapshots)]:
            raise FolderError(
                f"these snapshots could not be removed: {'; '.join(remaining)}",
                "remove these snapshots by hand, then clear the stores again",
            )
        for store in snapshots:
            if isinstance(store, Bucket):
                store.delete(MARKER_NAME)
        for folder in folders:
            remove_ours(folder)
            _remove_empty(folder.root)  # the folder stays if it has other files


def _empty(snapshots: Snapshots) -> list[str]:
    """Remove the snapshots of a store; return a text with the reason for each snapshot that could not be removed."""
    remaining = []
    for name in snapshots.states():
        try:
            snapshots.delete(name)
        except OSError as error:
            remaining.append(f"{snapshots.store}/{name} ({error.strerror}: {error.filename})")
    return remaining


def remove_ours(folder: Folder) -> None:
    """Remove the marker, the journal, the log and the lock files of a burst buffer from a folder.

    The marker is removed first, because no trainer and no drainer starts in a folder without a marker. The lock file
    that drainers wait for is removed last.
    """
    names = [name for name in folder.names() if name.startswith(_OWN_PREFIXES)]
    for name in sorted(names, key=lambda name: (name == _lock_name("drainer"), name != MARKER_NAME)):
        files.remove(folder.root / name)
