"""Hand work lists to submitit; the only module that knows it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from campaign import worker
from jobs.durable import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from campaign.folder import CampaignFolder

_MINUTES_MARGIN = 60
_STOP_PATIENCE_S = 10.0


@dataclass(frozen=True)
class LocalWorker:
    """A worker process on this machine, and the work list it has."""

    work_list: Path
    process: psutil.Process | None

    def alive(self) -> bool:
        """Tell whether it is still at work."""
        if self.process is None:
            return False
        return bool(self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE)

    def stop(self) -> None:
        """Ask it to record the interruption and end; past its patience, kill it and all it started."""
        if self.process is None or not self.alive():
            return
        family = [self.process, *self.process.children(recursive=True)]
        self.process.terminate()  # submitit's controller passes SIGTERM on to the worker
        _, left = psutil.wait_procs(family, timeout=_STOP_PATIENCE_S)
        for process in left:
            process.kill()


def submit(folder: CampaignFolder, work: Mapping[str, Any], cluster: str) -> LocalWorker:
    """Write the work list and start a worker on it; with ``cluster=debug`` this returns when the work is done."""
    import submitit  # noqa: PLC0415 - not on the way to --help, status or --dry-run

    path = folder.workers / f"{work['token']}.json"
    write_json(path, work)
    executor = submitit.AutoExecutor(folder=folder.workers / "submitit", cluster=cluster)
    executor.update_parameters(name="tfio-campaign", timeout_min=_minutes_at_most(work))
    if cluster == "debug":
        fault = executor.submit(worker.main, str(path)).exception()
        if fault is not None:
            raise fault
        return LocalWorker(path, None)
    # Ctrl-C in a terminal reaches the whole process group; only the front process shall act on it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        job = executor.submit(worker.main, str(path))
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        return LocalWorker(path, psutil.Process(int(job.job_id)))
    except psutil.NoSuchProcess:  # it ended before we looked; what it left behind tells
        return LocalWorker(path, None)


def _minutes_at_most(work: Mapping[str, Any]) -> int:
    """Bound the worker's time: submitit's local executor ends it after two minutes unless told otherwise."""
    runs = sum(item["missing"] + work["conduct"]["warmup_runs"] for item in work["cells"])
    return int(runs * work["conduct"]["run_timeout_s"] / 60) + _MINUTES_MARGIN
