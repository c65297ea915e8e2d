"""Lock storages: only one run uses a storage at a time, because two runs would disturb each other's measurement."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Required, TypedDict

from filelock import FileLock, Timeout

from campaign.errors import EnvironmentFaultError
from jobs.model.codes import Wait, Waiting
from jobs.model.record import Access
from jobs.system.device import devices_behind
from jobs.system.making_lock import lock_holder

# A process waits this long for a lock before it prints a message, and this long between two tries.
_MESSAGE_AFTER_S, _RETRY_S = 0.5, 0.05
_DEVICES = Path("/sys/block")
_LOCK_NAME = ".tfio-campaign.lock"
_BETWEEN_LICENSES = re.compile(r"[,;|]")


class LockProof(TypedDict, total=False):
    """The proof that no other run used a storage during a run: the method, and the lock or Slurm's licences."""

    how: Required[str]  # the method: ``lock``, ``license``, ``singleton`` or ``none``
    lock: str  # path of the lock file
    licenses: str | None  # licences that Slurm granted to the job
    job_name: str | None
    waited_s: float  # time that the run waited for its locks
    also: list[str]  # paths of further lock files


def lock_path(root: Path, fallback: Path, data: str | None = None) -> Path:
    """Return the path of the lock file of a storage: in its root, or in the folder `fallback`.

    `fallback` is used if the root is not writable. It is also used if the root is the user's own folder `data` or a
    folder below `data`, because the campaign never writes there. Two different paths of the same root give the same
    lock file.
    """
    root = root.resolve()
    is_data = data is not None and root.is_relative_to(Path(data).resolve())
    return (root if os.access(root, os.W_OK) and not is_data else fallback) / _LOCK_NAME


def device_locks(paths: Iterable[str]) -> list[Path]:
    """Return the lock files of the block devices behind some paths of this node.

    The lock files are files of the kernel (sysfs), which all users can lock without write permission. A network file
    system has no block device, so a path on it has no such lock file.
    """
    names = set()
    for path in paths:
        with suppress(OSError):  # the path does not exist any more; the run will report the missing path
            names |= {device.name for device in devices_behind(Path(path))}
    return [_DEVICES / name / "stat" for name in sorted(names)]


def lock_method(access: Access, *, slurm: bool) -> str:
    """Return the method that prevents other runs on the storage; outside Slurm this is ``lock`` or ``none``."""
    method = str(access["exclusive"])
    return method if slurm or method == "none" else "lock"


def acquire_lock(path: Path, report: Callable[[Wait], None] = lambda _: None) -> AbstractContextManager[object]:
    """Wait for the lock of a file, take the lock, and return a context that releases the lock.

    During a long wait, `report` is called with the process that holds the lock.
    """
    # FileLock would create a missing folder, and then a run would measure the disk below the mount point.
    if not path.parent.is_dir():
        raise EnvironmentFaultError(
            f"the folder {path.parent} is gone", "mount the storage again and repeat the command"
        )
    try:
        if path.is_relative_to(_DEVICES):
            return _locked_device(path, report)
        # The mode lets other users take the lock, too. A soft lock would remain after its process has died.
        lock = FileLock(path, mode=0o666, fallback_to_soft=False)
        with suppress(Timeout):
            return lock.acquire(timeout=_MESSAGE_AFTER_S)
        report({"code": Waiting.LOCK, "words": str(path), "holder": lock_holder(path)})
        return lock.acquire()
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot lock {path}: {error.strerror}",
            "mount the storage with locks (Lustre: -o flock), or set storage.exclusive=license or singleton",
        ) from error


def _locked_device(path: Path, report: Callable[[Wait], None]) -> IO[bytes]:
    """Wait for the lock of a sysfs file of a device, take the lock, and return the open file.

    Closing the file releases the lock.
    """
    file, silent_until = path.open("rb"), time.monotonic() + _MESSAGE_AFTER_S
    try:
        while not _try_lock(file):
            if time.monotonic() >= silent_until:
                report({"code": Waiting.DEVICE, "words": path.parent.name, "holder": lock_holder(path)})
                fcntl.flock(file, fcntl.LOCK_EX)
                break
            time.sleep(_RETRY_S)
    except BaseException:
        file.close()
        raise
    return file


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock of a file without waiting; return whether the lock was free."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def licence_doubt(proof: LockProof, access: Access) -> str | None:
    """Return an error message if Slurm does not show that it granted the licence of the storage, else None."""
    if proof["how"] != "license":
        return None
    granted = _names(proof["licenses"])
    if _names(access["license"]) <= granted:
        return None
    answer = f"granted {proof['licenses']}" if granted else "does not say which licences it granted"
    return f"storage.exclusive=license: Slurm {answer}, but the job needs {access['license']}"


def _names(licenses: str | None) -> set[str]:
    """Return the names in a list of licences as sbatch and scontrol write it, without the numbers of licences."""
    return {word.partition(":")[0] for word in _BETWEEN_LICENSES.split(licenses or "")} - {"", "(null)"}


@contextmanager
def hold_storage(
    how: str,
    lock: Path,
    job: Mapping[str, str],
    also: Sequence[Path] = (),
    report: Callable[[Wait], None] = lambda _: None,
) -> Iterator[LockProof]:
    """Hold the lock of a run's storage, and the locks in `also`, during the ``with`` block; yield the proof.

    `how` is the method. With ``lock``, wait for the lock file `lock`. With ``license`` or ``singleton``, Slurm has
    already delayed the `job` until no other job used the storage. With ``none``, other runs are not prevented. `also`
    are the lock files of other storages and of devices. During a wait, `report` is called with the process that holds
    the lock.
    """
    proof: LockProof = {"how": how}
    if how == "lock":
        proof["lock"] = str(lock)
    elif how == "license":
        proof["licenses"] = job.get("Licenses")
    elif how == "singleton":
        proof["job_name"] = job.get("JobName")
    # All runs take their locks in sorted order, so that two runs never wait for each other.
    paths = sorted({*also, lock} if how == "lock" else {*also})
    started_s = time.perf_counter()
    with ExitStack() as locks:
        for file in paths:
            locks.enter_context(acquire_lock(file, report))
        if paths:
            proof["waited_s"] = time.perf_counter() - started_s
        if also:
            proof["also"] = list(map(str, also))
        yield proof
