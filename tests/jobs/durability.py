"""What makes a file durable, gives it its name or takes it away, in its order, and what a kill at any point leaves."""

import os
from pathlib import Path

import pytest

from jobs.system import page_cache


def watched(patch, act, *, removals=False):
    """From now on, call `act` with each deed just before it is done: ("sync", path), ("name", path), ("gone", name)."""

    def hooked(verb, real, path_of):
        return lambda *words, **keys: (act((verb, path_of(*words))), real(*words, **keys))[1]

    patch.setattr("os.fsync", hooked("sync", os.fsync, lambda fd: str(Path(f"/proc/self/fd/{fd}").readlink())))
    patch.setattr(page_cache, "sync_file_system", hooked("sync", page_cache.sync_file_system, str))
    for name in ("rename", "replace"):
        patch.setattr(f"os.{name}", hooked("name", getattr(os, name), lambda _, target: str(target)))
    for name in ("unlink", "rmdir") if removals else ():
        patch.setattr(f"os.{name}", hooked("gone", getattr(os, name), str))


def killed(write, point):
    """Call `write` in a process that is gone before the deed of this number; returns whether it came so far."""
    child = os.fork()
    if not child:
        left = [point]

        def step(_):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)

        with pytest.MonkeyPatch.context() as patch:
            watched(patch, step, removals=True)
            write()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
