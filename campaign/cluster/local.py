"""The campaign on this machine: one worker process takes all cells."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import Timeout

from campaign import console
from campaign.cells.cell_plan import Entry, runs_in_words
from campaign.cells.folder import CampaignFolder
from campaign.cluster import display, executors
from campaign.cluster.conclude import Phase, WorkerState, ended
from campaign.cluster.progress import Follower
from campaign.console import counted
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.storage import baseline_files, checkpoint_targets, datasets
from campaign.worker import __main__ as worker
from campaign.worker.batch import Batch
from campaign.worker.work_list import Request
from jobs.benchmarks import accelerator
from jobs.errors import NoGpuError
from jobs.model.codes import JobEnd
from jobs.model.record import Data
from jobs.system.files import write_json

_MINUTES_MARGIN = 60
_STOP_PATIENCE_S = 10.0
_TICK_S = 0.25
_PATIENCE_S = 0.5


class WorkerLostError(EnvironmentFaultError):
    """A worker ended before its cells, and left no reason."""


@dataclass(frozen=True)
class LocalWorker:
    """A worker process on this machine."""

    batch: Batch
    process: psutil.Process | None

    def alive(self) -> bool:
        """Return whether it still runs."""
        if self.process is None:
            return False
        return bool(self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE)

    def state(self) -> WorkerState:
        """Return whether it still runs, or how it ended."""
        return WorkerState(Phase.RUNNING) if self.alive() else ended(self.batch, 0, {"code": JobEnd.GONE})

    def stop(self) -> None:
        """Ask it to record the interruption and end; past its patience, kill it and all it started."""
        if self.process is None or not self.alive():
            return
        family = [self.process, *self.process.children(recursive=True)]
        self.process.terminate()  # submitit's controller passes SIGTERM on to the worker
        _, left = psutil.wait_procs(family, timeout=_STOP_PATIENCE_S)
        for process in left:
            process.kill()


def work(todo: Sequence[Entry], request: Request) -> None:
    """Prepare the data, start a worker on the cells and watch it to its end."""
    conduct, folder = request.conduct, request.folder
    require_possible(todo)
    for entry in todo:
        checkpoint_targets.require_storages(entry.cell.settings)
    with console.progress() as progress:
        data = datasets.datasets(todo, folder, progress, redo=conduct["redo"])
    console.say(f"running {counted(len(todo), 'cell')}, {runs_in_words(todo, conduct)}, in {folder.root}")
    follower = Follower.to_be(folder, todo, conduct, request.token)
    started = submit(request, todo, data)
    try:
        display.follow_here(follower, started.state, _TICK_S)
    except KeyboardInterrupt:
        console.say("stopping the worker …")
        started.stop()
        raise
    _explain_early_end(started.batch, follower)


def require_possible(todo: Sequence[Entry]) -> None:
    """See that data, storages, the baselines' engine and the accelerator of all cells are here; nothing is made."""
    for entry in todo:
        settings = entry.cell.settings
        baseline_files.require_engine(settings)
        try:
            accelerator.require_possible(settings.get("accelerator", {}).get("name", "cpu"))
        except NoGpuError as error:
            raise EnvironmentFaultError(error.message, error.hint) from error
    datasets.require_possible(todo, here=True)


def submit(request: Request, todo: Sequence[Entry], data: Mapping[str, Data | None]) -> LocalWorker:
    """Write the work list and start a worker on it; with ``cluster=debug`` this returns when the work is done."""
    cluster = "debug" if request.conduct["cluster"]["name"] == "debug" else "local"
    folder = request.folder.workers / f"{request.token}-0"
    cells = [[entry.cell.id for entry in todo]]
    batch = Batch(folder, cluster, request.token, "tfio-campaign", cells, request.utc)
    batch.save()
    path = batch.work_list(0)
    write_json(path, request.work_list(cluster, todo, data))
    # submitit's local executor ends a worker after two minutes by default.
    runs = sum(entry.at_most + request.conduct["warmup_runs"] for entry in todo)
    minutes = int(runs * request.conduct["run_timeout_s"] / 60) + _MINUTES_MARGIN
    executor = executors.on_this_machine(folder, cluster, batch.job_name, minutes)
    if cluster == "local":
        return LocalWorker(batch, _start(executor, path))
    fault = executor.submit(worker.main, str(path)).exception()
    if fault is not None:
        raise fault
    return LocalWorker(batch, None)


def _start(executor: Any, work_list: Path) -> psutil.Process | None:
    """Start a worker; None where it has ended already: what it left in its folder says how."""
    # Ctrl-C in a terminal reaches the whole process group; only the front process shall act on it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        job = executor.submit(worker.main, str(work_list))
    finally:
        signal.signal(signal.SIGINT, before)
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(int(job.job_id))
    return None


def wait_for_worker(folder: CampaignFolder) -> None:
    """Wait for a worker that outlived its front process: two would measure each other."""
    lock = folder.worker_lock()
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout:
        console.say("a worker of an earlier start is still running in this folder; waiting for it to end …")
        lock.acquire()
    lock.release()


def _explain_early_end(batch: Batch, follower: Follower) -> None:
    """Raise the error that the worker left, if it ended before its list did."""
    fault = batch.fault(0)
    if fault:
        kind = NotQuietError if fault.get("not_quiet") else EnvironmentFaultError
        raise kind(fault["message"], fault["hint"])
    follower.news()
    if not follower.finished:
        _can_write(batch)
        if follower.folder.worker_at_work():
            raise WorkerLostError(
                "submitit's controller was killed; the worker is still running",
                "`python -m campaign status` shows it; the same command waits for it and continues from there",
            )
        left = len(follower.cells) - follower.cells_over
        raise WorkerLostError(
            f"the worker ended with {left} cells to go: {batch.last_words(0) or 'it left no message'}",
            f"its logs are in {batch.folder}; the same command continues from here",
        )


def _can_write(batch: Batch) -> None:
    """Find out whether the worker ended because nothing can be written; it could not say so itself."""
    probe = batch.folder / "probe.json"
    try:
        write_json(probe, None)
        probe.unlink()
    except OSError as error:
        raise EnvironmentFaultError(
            f"nothing can be written in {batch.folder}: {error.strerror}",
            "free some space or repair the folder; what was measured is kept, and the same command continues from here",
        ) from error
