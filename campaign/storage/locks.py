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
from jobs.system import files
from jobs.system.device import devices_behind

_MESSAGE_AFTER_S, _RETRY_S = 0.5, 0.05  # wait for a lock before a message about it; time between two tries
_DEVICES = Path("/sys/block")
_LOCK_NAME = ".tfio-campaign.lock"
_BETWEEN_LICENSES = re.compile(r"[,;|]")


class LockProof(TypedDict, total=False):
    """The proof that a run had a storage for itself: the method, the lock or Slurm's grant, and the wait."""

    how: Required[str]  # the method: ``lock``, ``license``, ``singleton`` or ``none``
    lock: str
    licenses: str | None
    job_name: str | None
    waited_s: float
    also: list[str]  # further locks


def lock_path(root: Path, fallback: Path, data: str | None = None) -> Path:
    """Return the lock file of a storage: in its root or, if nothing may be written there, in the folder `fallback`.

    Nothing may be written into a root that is the user's own folder `data` or is below it. Two names of one root give
    the same lock.
    """
    root = root.resolve()
    is_data = data is not None and root.is_relative_to(Path(data).resolve())
    return (root if os.access(root, os.W_OK) and not is_data else fallback) / _LOCK_NAME


def device_locks(paths: Iterable[str]) -> list[Path]:
    """Return the lock files of the devices behind some paths of this node, whatever their roots and file systems.

    The lock files are files of the kernel (sysfs), which all users can lock without write permission. A network file
    system has no device, so its paths have no such lock file.
    """
    names = set()
    for path in paths:
        with suppress(OSError):  # the path is gone; the run will report it
            names |= {device.name for device in devices_behind(Path(path))}
    return [_DEVICES / name / "stat" for name in sorted(names)]


def lock_method(access: Access, *, slurm: bool) -> str:
    """Return the method that keeps other runs away from the storage; outside Slurm only ``lock`` or ``none``."""
    method = str(access["exclusive"])
    return method if slurm or method == "none" else "lock"


def acquire_lock(path: Path, report: Callable[[Wait], None] = lambda _: None) -> AbstractContextManager[object]:
    """Wait for the lock of a file and take it; return a context that releases it. `report` gets the present holder."""
    if not path.parent.is_dir():  # FileLock would create it, and a run would measure the disk below the mount point
        raise EnvironmentFaultError(f"{path.parent} is gone", "mount its storage again; the same command continues")
    try:
        if path.is_relative_to(_DEVICES):
            return _locked_device(path, report)
        # Other users must be able to take the lock, too. A soft lock would outlive a process that dies.
        lock = FileLock(path, mode=0o666, fallback_to_soft=False)
        with suppress(Timeout):
            return lock.acquire(timeout=_MESSAGE_AFTER_S)
        report({"code": Waiting.LOCK, "words": str(path), "holder": _holder(path)})
        return lock.acquire()
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot lock {path}: {error.strerror}",
            "mount it with locks (Lustre: -o flock), or let Slurm do it: storage.exclusive=license or singleton",
        ) from error


def _locked_device(path: Path, report: Callable[[Wait], None]) -> IO[bytes]:
    """Wait for the lock of a file of the kernel and take it; return the file, which releases the lock when closed."""
    file, silent_until = path.open("rb"), time.monotonic() + _MESSAGE_AFTER_S
    try:
        while not _try_lock(file):
            if time.monotonic() >= silent_until:
                report({"code": Waiting.DEVICE, "words": path.parent.name, "holder": _holder(path)})
                fcntl.flock(file, fcntl.LOCK_EX)
                break
            time.sleep(_RETRY_S)
    except BaseException:
        file.close()
        raise
    return file


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock of a file if it is free; return whether it was."""
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _holder(path: Path) -> str:
    """Return which process of which user holds a lock on this machine, in words (proc_locks(5))."""
    with suppress(OSError, ValueError, IndexError):
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(inode):
                return f"process {fields[4]} of {files.user_name(Path('/proc', fields[4]).stat().st_uid)}"
    return "a process that is not visible here, perhaps on another node"


def licence_doubt(proof: LockProof, access: Access) -> str | None:
    """Return why a proof by licence does not count: Slurm does not show that it granted it; None if it counts."""
    if proof["how"] != "license":
        return None
    granted = _names(proof["licenses"])
    if _names(access["license"]) <= granted:
        return None
    answer = f"granted {proof['licenses']}" if granted else "does not say what it granted"
    return f"storage.exclusive=license: Slurm {answer}, and {access['license']} was asked for"


def _names(licenses: str | None) -> set[str]:
    """Return the names in a list of licences in the format of sbatch and scontrol, without the numbers."""
    return {word.partition(":")[0] for word in _BETWEEN_LICENSES.split(licenses or "")} - {"", "(null)"}


@contextmanager
def hold_storage(
    how: str,
    lock: Path,
    job: Mapping[str, str],
    also: Sequence[Path] = (),
    report: Callable[[Wait], None] = lambda _: None,
) -> Iterator[LockProof]:
    """Hold the lock of a run's storage, and the locks in `also` (other storages, devices), in a block; yield the proof.

    `how`: ``lock`` (wait for the file `lock`), ``license`` or ``singleton`` (Slurm has delayed the `job` until it was
    alone), or ``none`` (other runs are not kept away). `report` gets the holder of a lock during a wait.
    """
    proof: LockProof = {"how": how}
    if how == "lock":
        proof["lock"] = str(lock)
    elif how == "license":
        proof["licenses"] = job.get("Licenses")
    elif how == "singleton":
        proof["job_name"] = job.get("JobName")
    paths = sorted({*also, lock} if how == "lock" else {*also})  # sorted, so that two runs never wait for each other
    started_s = time.perf_counter()
    with ExitStack() as locks:
        for file in paths:
            locks.enter_context(acquire_lock(file, report))
        if paths:
            proof["waited_s"] = time.perf_counter() - started_s
        if also:
            proof["also"] = list(map(str, also))
        yield proof
