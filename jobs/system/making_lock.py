"""Wait for the lock of data that another process is making, and say which process that is."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from jobs.system import files

_MESSAGE_AFTER_S = 1.0


def acquire_making_lock(lock: FileLock) -> AbstractContextManager[object]:
    """Take a lock whose file is in the folder of the data, and return a context that releases the lock.

    If another process has the lock, print on standard error which process makes the data.
    """
    with suppress(Timeout):
        return lock.acquire(timeout=_MESSAGE_AFTER_S)
    path = Path(lock.lock_file)
    print(f"waiting for {lock_holder(path)}, which makes {path.parent}", file=sys.stderr, flush=True)
    return lock.acquire()


def lock_holder(path: Path) -> str:
    """Return a phrase with the process and the user that hold a lock on this machine (proc_locks(5))."""
    with suppress(OSError, ValueError, IndexError):
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(inode):
                return f"process {fields[4]} of {files.user_name(Path('/proc', fields[4]).stat().st_uid)}"
    return "a process that is not visible here, perhaps on another node"
