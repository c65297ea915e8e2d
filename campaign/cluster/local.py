"""Run a campaign on this machine: one worker process runs all cells."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from filelock import Timeout

from campaign import console
from campaign.cells.cell_plan import PlannedCell, format_number_of_runs
from campaign.cells.folder import CampaignFolder
from campaign.cluster import fleet
from campaign.cluster.cell_state import Phase, WorkerState, ended_state
from campaign.cluster.progress import Follower
from campaign.console import count_noun
from campaign.errors import EnvironmentFaultError, NotQuietError
from campaign.storage import baseline_files, checkpoint_targets, datasets
from campaign.worker import __main__ as worker
from campaign.worker.batch import Batch, CampaignCall
from jobs.benchmarks import accelerator, registry
from jobs.errors import NoGpuError, NotInstalledError
from jobs.lazy_imports import has_tensorflow
from jobs.model.codes import JobEnd
from jobs.model.record import Data
from jobs.system import programs
from jobs.system.files import write_json

_STOP_PATIENCE_S = 10.0
_TICK_S = 0.25
_PATIENCE_S = 0.5


class WorkerLostError(EnvironmentFaultError):
    """Raised if a worker ended before its cells were finished and wrote no error file."""


@dataclass(frozen=True)
class LocalWorker:
    """A worker process on this machine."""

    batch: Batch
    process: subprocess.Popen[bytes] | None  # None if the worker ran in this process

    def alive(self) -> bool:
        """Return whether the worker process still runs."""
        return self.process is not None and self.process.poll() is None

    def state(self) -> WorkerState:
        """Return the state of the worker: running, or ended with the reason."""
        return WorkerState(Phase.RUNNING) if self.alive() else ended_state(self.batch, 0, {"code": JobEnd.GONE})

    def stop(self) -> None:
        """Ask the worker to record the interruption and to end, and wait until it has ended (`stop_process`)."""
        if self.process is not None and self.alive():
            stop_process(psutil.Process(self.process.pid))


def stop_process(process: psutil.Process) -> None:
    """Ask a worker to record the interruption and to end.

    If the worker or one of its child processes still runs after 10 s, kill that process.
    """
    try:
        family = [process, *process.children(recursive=True)]
        process.terminate()
    except psutil.NoSuchProcess:
        return
    _, survivors = psutil.wait_procs(family, timeout=_STOP_PATIENCE_S)
    for survivor in survivors:
        survivor.kill()


def run_campaign_here(todo: Sequence[PlannedCell], request: CampaignCall) -> None:
    """Prepare the data, start a worker for the cells, and show the worker's progress until the worker has ended."""
    conduct, folder = request.conduct, request.folder
    require_possible(todo)
    for entry in todo:
        checkpoint_targets.require_storages(entry.cell.settings)
    with console.progress() as progress:
        data = datasets.prepare_datasets(todo, folder, progress, redo=conduct["redo"])
    console.say(f"running {count_noun(len(todo), 'cell')}, {format_number_of_runs(todo, conduct)}, in {folder.root}")
    follower = Follower.of_entries(folder, todo, conduct, request.token)
    local_worker = start_worker(request, todo, data)
    try:
        fleet.follow_local_worker(follower, local_worker.state, _TICK_S)
    except KeyboardInterrupt:
        console.say("stopping the worker …")
        local_worker.stop()
        raise
    _explain_early_end(local_worker.batch, follower)


def require_possible(todo: Sequence[PlannedCell]) -> None:
    """Raise an error if this machine lacks what a cell needs: data, a storage, an engine, TensorFlow or a GPU.

    This check creates no file.
    """
    names = registry.benchmarks_with_tensorflow(entry.cell.settings for entry in todo)
    if names and not has_tensorflow():
        error = NotInstalledError("TensorFlow", names)
        raise EnvironmentFaultError(error.message, error.hint)
    for entry in todo:
        settings = entry.cell.settings
        baseline_files.require_engine(settings)
        try:
            accelerator.require_possible(settings.get("accelerator", {}).get("name", "cpu"))
        except NoGpuError as no_gpu:
            raise EnvironmentFaultError(no_gpu.message, no_gpu.hint) from no_gpu
    datasets.require_possible(todo, here=True)


def start_worker(request: CampaignCall, todo: Sequence[PlannedCell], data: Mapping[str, Data | None]) -> LocalWorker:
    """Write the work list and start a worker that runs its cells.

    With ``cluster=debug`` the worker runs in this process, so this function returns after the last cell.
    """
    cluster = "debug" if request.conduct["cluster"]["name"] == "debug" else "local"
    folder = request.folder.workers / f"{request.token}-0"
    cells = [[entry.cell.id for entry in todo]]
    batch = Batch(folder, cluster, request.token, "tfio-campaign", cells, request.utc)
    batch.save()
    path = batch.work_list(0)
    write_json(path, request.work_list(cluster, todo, data))
    if cluster == "debug":
        worker.main(str(path))
        return LocalWorker(batch, None)
    with (folder / "worker_log.out").open("wb") as out, (folder / "worker_log.err").open("wb") as err:
        process = subprocess.Popen(
            programs.python_command("-u", "-m", "campaign.worker", str(path)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            process_group=0,  # Ctrl-C in a terminal is for the front process, which then stops the worker
        )
    return LocalWorker(batch, process)


def find_worker(folder: CampaignFolder) -> psutil.Process | None:
    """Return the process of this user that runs the worker of this folder on this machine, or None.

    The last word of a worker's command line is its work list, which is in the folder of its batch.
    """
    for process in psutil.process_iter(["cmdline", "uids"]):
        words = process.info["cmdline"] or [""]
        is_worker = "campaign.worker" in words and Path(words[-1]).parent.parent == folder.workers
        if is_worker and process.info["uids"].real == os.getuid():
            return process
    return None


def wait_for_worker(folder: CampaignFolder) -> None:
    """Wait until the worker of an earlier command has ended, because two workers would disturb each other."""
    lock = folder.worker_lock()
    try:
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout:
        process = find_worker(folder)
        console.say(
            f"a worker of an earlier command{f' (process {process.pid})' if process else ''} is still running in this "
            f"folder; waiting until it ends …; `{folder.cancel_command}` ends the worker"
        )
        lock.acquire()
    lock.release()


def _explain_early_end(batch: Batch, follower: Follower) -> None:
    """Raise an error if the worker ended before its cells were finished.

    If the worker wrote an error file, raise the error that the file describes.
    """
    fault = batch.worker_error(0)
    if fault:
        error_class = NotQuietError if fault.get("not_quiet") else EnvironmentFaultError
        raise error_class(fault["message"], fault["hint"])
    follower.read_news()
    if not follower.is_finished:
        _require_writable(batch)
        unfinished = count_noun(len(follower.shares_left()), "unfinished cell")
        raise WorkerLostError(
            f"the worker ended with {unfinished}: {batch.last_log_line(0) or 'its log is empty'}",
            f"the logs of the worker are in {batch.folder}; repeat the command to run the unfinished cells",
        )


def _require_writable(batch: Batch) -> None:
    """Raise EnvironmentFaultError if no file can be written in the batch's folder.

    In such a folder the worker could not write its own error file either.
    """
    probe = batch.folder / "probe.json"
    try:
        write_json(probe, None)
        probe.unlink()
    except OSError as error:
        raise EnvironmentFaultError(
            f"nothing can be written in {batch.folder}: {error.strerror}",
            "free some space or repair the folder, then repeat the command: it runs only the missing runs",
        ) from error
