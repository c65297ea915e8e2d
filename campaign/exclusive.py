"""One user of a storage at a time: two would measure each other."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_LOCK_NAME = ".tfio-campaign.lock"


def lock_path(root: Path, fallback: Path) -> Path:
    """Say which file locks a storage: one in its root or, where that is not writable, in the campaign folder."""
    return (root if os.access(root, os.W_OK) else fallback) / _LOCK_NAME


@contextmanager
def held(how: str, lock: Path, job: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Hold a storage alone for a run; yields what proves it.

    Parameters
    ----------
    how
        ``lock``: wait for the file `lock`. ``license`` and ``singleton``: Slurm has held the job back until it was
        alone, and what it granted stands in `job`. ``none``: nobody is kept away.
    job
        What the scheduler says of the job, empty outside one.
    """
    proof: dict[str, Any] = {"how": how}
    if how == "lock":
        before = time.perf_counter()
        with FileLock(lock, mode=0o666):  # other users of the storage must be able to take it too
            yield {**proof, "lock": str(lock), "waited_s": time.perf_counter() - before}
        return
    if how == "license":
        proof["licenses"] = job.get("Licenses")
    elif how == "singleton":
        proof["job_name"] = job.get("JobName")
    yield proof
