"""One user of a storage at a time: two would measure each other."""

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

_SILENT_S, _TURN_S = 0.5, 0.05  # how long a lock is waited for before anything is said of it, and between two tries
_DEVICES = Path("/sys/block")
_LOCK_NAME = ".tfio-campaign.lock"
_BETWEEN_LICENSES = re.compile(r"[,;|]")


class Proof(TypedDict, total=False):
    """What proves that a run had a storage for itself: how, by which lock or what Slurm granted, after what wait."""

    how: Required[str]
    lock: str
    licenses: str | None
    job_name: str | None
    waited_s: float
    also: list[str]


def lock_path(root: Path, fallback: Path) -> Path:
    """Return which file locks a storage: one in its root or, where that is not writable, in the campaign folder.

    A root that is reached by two names has one lock.
    """
    root = root.resolve()
    return (root if os.access(root, os.W_OK) else fallback) / _LOCK_NAME


def device_locks(places: Iterable[str]) -> list[Path]:
    """Return which files lock the devices behind some places of this node, whatever their roots and file systems.

    They are files of the kernel (sysfs): everybody can lock them, and nobody has to be able to write there. A network
    file system has no such device.
    """
    names = set()
    for place in places:
        with suppress(OSError):  # it is gone, as the run will say
            names |= {device.name for device in devices_behind(Path(place))}
    return [_DEVICES / name / "stat" for name in sorted(names)]


def how(access: Access, *, slurm: bool) -> str:
    """Return how the storage is kept for one user; outside Slurm there is nothing but the lock."""
    asked = str(access["exclusive"])
    return asked if slurm or asked == "none" else "lock"


def locked(path: Path, report: Callable[[Wait], None] = lambda _: None) -> AbstractContextManager[object]:
    """Wait for the lock of this file; a context manager that lets it go. `report` is told who holds it meanwhile."""
    if not path.parent.is_dir():  # the lock would make it, and a run would measure the disk beneath a mount point
        raise EnvironmentFaultError(f"{path.parent} is gone", "mount its storage again; the same command continues")
    try:
        if path.is_relative_to(_DEVICES):
            return _locked_device(path, report)
        # Other users must be able to take it too; a mere marker (soft) would outlive a process that dies.
        lock = FileLock(path, mode=0o666, fallback_to_soft=False)
        with suppress(Timeout):
            return lock.acquire(timeout=_SILENT_S)
        report({"code": Waiting.LOCK, "words": str(path), "holder": _holder(path)})
        return lock.acquire()
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot lock {path}: {error.strerror}",
            "mount it with locks (Lustre: -o flock), or let Slurm keep it free: storage.exclusive=license or singleton",
        ) from error


def _locked_device(path: Path, report: Callable[[Wait], None]) -> IO[bytes]:
    """Wait for a file of the kernel, which is only read; closed, it is let go."""
    file, silent_until = path.open("rb"), time.monotonic() + _SILENT_S
    try:
        while not _take(file):
            if time.monotonic() >= silent_until:
                report({"code": Waiting.DEVICE, "words": path.parent.name, "holder": _holder(path)})
                fcntl.flock(file, fcntl.LOCK_EX)
                break
            time.sleep(_TURN_S)
    except BaseException:
        file.close()
        raise
    return file


def _take(file: IO[bytes]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _holder(path: Path) -> str:
    """Say which process of this machine holds a lock, as the kernel lists it (proc_locks(5)), and whose it is."""
    with suppress(OSError, ValueError, IndexError):
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(inode):
                return f"process {fields[4]} of {files.user_name(Path('/proc', fields[4]).stat().st_uid)}"
    return "a process that cannot be seen from here, on another node perhaps"


def doubt(proof: Proof, access: Access) -> str | None:
    """Return why a proof by licence is none: Slurm does not say that the job has it; None where nothing is wrong."""
    if proof["how"] != "license":
        return None
    granted = _names(proof["licenses"])
    if _names(access["license"]) <= granted:
        return None
    said = f"granted {proof['licenses']}" if granted else "does not say what it granted"
    return f"storage.exclusive=license: Slurm {said}, and {access['license']} was asked for"


def _names(licenses: str | None) -> set[str]:
    """Take the numbers off a list of licences, as sbatch and scontrol write it."""
    return {each.partition(":")[0] for each in _BETWEEN_LICENSES.split(licenses or "")} - {"", "(null)"}


@contextmanager
def held(
    how: str,
    lock: Path,
    job: Mapping[str, str],
    also: Sequence[Path] = (),
    report: Callable[[Wait], None] = lambda _: None,
) -> Iterator[Proof]:
    """Hold a storage alone for a run, and what else the run uses: `also`, storages and devices; yields what proves it.

    `how` is ``lock`` (wait for the file `lock`), ``license`` or ``singleton`` (Slurm has held the `job` back until it
    was alone), or ``none`` (nobody is kept away). `report` is told who holds one meanwhile.
    """
    proof: Proof = {"how": how}
    if how == "lock":
        proof["lock"] = str(lock)
    elif how == "license":
        proof["licenses"] = job.get("Licenses")
    elif how == "singleton":
        proof["job_name"] = job.get("JobName")
    wanted = sorted({*also, lock} if how == "lock" else {*also})  # by name: two runs never wait for each other
    before = time.perf_counter()
    with ExitStack() as locks:
        for file in wanted:
            locks.enter_context(locked(file, report))
        if wanted:
            proof["waited_s"] = time.perf_counter() - before
        if also:
            proof["also"] = list(map(str, also))
        yield proof
