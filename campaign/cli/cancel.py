"""Run the verb `cancel`, which ends the Slurm jobs or the worker of a campaign and removes nothing."""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from campaign import console
from campaign.cells.folder import CampaignFolder, open_existing
from campaign.cli import arguments
from campaign.cluster import fleet, local
from campaign.console import count_noun
from campaign.errors import CampaignError, SchedulerError, UsageError
from campaign.slurm import client, scheduler
from campaign.slurm.scheduler import Task, TaskKey
from campaign.worker.batch import Batch, last_workers, read_batches, read_file
from jobs.model.work import WorkList
from jobs.system.files import resolve_links

_KEPT = "measured runs are kept, and the command that started the campaign continues it"
_IDS_A_CALL = 200  # job ids in one call of scancel, because the length of a command line is limited
_WORDS = "cancel only the jobs of these cells, named by the start of an id or hash; campaign folder (default: results)"
_CHECKS = 6
_CHECK_EACH_S = 1.0


def main(argv: list[str]) -> int:
    """Cancel all jobs of a campaign, or the jobs of the named cells; return the exit code."""
    parser = arguments.make_parser(
        "cancel", "End the Slurm jobs of a campaign, or its worker on this machine; remove nothing.", json=False
    )
    parser.add_argument("words", nargs="*", metavar="CELL | campaign_dir", help=_WORDS)
    cells, root = arguments.split_cells_and_folder(parser.parse_args(argv).words)
    folder = CampaignFolder(resolve_links(root))
    batches = [batch for batch in read_batches(folder) if batch.cluster == "slurm"]
    only = _find_workers(folder, batches, cells)
    jobs, left = cancel_jobs(folder, only) if batches or client.has_cluster() else ([], [])
    if not jobs:
        folder = open_existing(root)[0]
        if not cells and folder.is_worker_running() and (process := local.find_worker(folder)):
            local.stop_process(process)
            console.say(f"ended the worker on this machine (process {process.pid}); {_KEPT}")
            return 0
        return _report_no_job(folder, batches, "these cells" if cells else "this campaign")
    if left:
        raise SchedulerError(
            f"Slurm did not cancel {count_noun(len(left), 'job')}: {', '.join(job.job_id for job in left)}",
            "run scancel for these jobs, or try again",
        )
    console.say(
        f"cancelled {count_noun(len(jobs), 'job')}; {_KEPT if folder.marker.exists() else 'their folder is gone'}"
    )
    return 0


def _report_no_job(folder: CampaignFolder, batches: Sequence[Batch], whose: str) -> int:
    """Print that no job is left; return 1 if jobs run for the folder's earlier path or a worker runs here, else 0."""
    for earlier in _earlier_roots(folder, batches):
        if jobs := _live_jobs(CampaignFolder(earlier), None):
            console.say(
                f"no Slurm job has {folder.root} as its folder, but {count_noun(len(jobs), 'job')} of {earlier}, where "
                f"this campaign was before, still wait or run; to end them: "
                f"python -m campaign cancel {shlex.quote(f'campaign_dir={earlier}')}"
            )
            return 1
    if folder.is_worker_running():
        where = "a worker is running on this machine: press Ctrl-C in the terminal where it was started"
        console.say(f"no Slurm job of {whose} is left, but {where}")
        return 1
    console.say(f"no job of {whose} is left")
    return 0


def _earlier_roots(folder: CampaignFolder, batches: Sequence[Batch]) -> set[Path]:
    """Return the other paths that the campaign folder had when its batches were submitted, from the work lists."""
    roots = set()
    for batch in batches:
        with suppress(CampaignError, OSError):
            roots.add(Path(read_file(batch.work_list(0), WorkList)["campaign_dir"]))
    return roots - {folder.root}


def _find_workers(folder: CampaignFolder, batches: Sequence[Batch], words: Sequence[str]) -> set[TaskKey] | None:
    """Return the workers that measure the named cells. None means all workers, because no cell is named.

    Raises UsageError if no job measures a named cell, or if a job also measures an unfinished cell that is not named.
    """
    if not words:
        return None
    workers = last_workers([*batches])
    cells: set[str] = set()
    for word in words:
        matches = arguments.matching_ids(sorted(workers), word)
        if not matches:
            hint = f"`python -m campaign status` lists the cells; if '{word}' is a removed folder: campaign_dir={word}"
            raise UsageError(f"no job of this campaign has a cell '{word}'", hint)
        cells.update(matches)
    for batch, index in {str(worker): worker for worker in map(workers.__getitem__, cells)}.values():
        beside = [
            cell
            for cell in batch.cells[index]
            if cell not in cells and not fleet.is_cell_over(folder, cell, batch.token)
        ]
        if beside:
            raise UsageError(
                f"the job of {batch.cells[index][0]} has other cells, too: {', '.join(beside)}",
                "name these cells too, or cancel the whole campaign and start it again with its command",
            )
    return {(str(batch.folder), index) for batch, index in map(workers.__getitem__, cells)}


def cancel_jobs(folder: CampaignFolder, only: Collection[TaskKey] | None = None) -> tuple[list[Task], list[Task]]:
    """Cancel every job of a campaign that waits or runs, even if the campaign recorded it as refused or ended.

    With `only`, cancel only the jobs of these workers. Returns the jobs that were cancelled, and those still alive.
    """
    jobs = _live_jobs(folder, only)
    if jobs is None:
        raise SchedulerError(
            "Slurm does not answer: nothing was cancelled", "try again as soon as `squeue --me` works again"
        )
    for batch in read_batches(folder):
        if indices := [task.index for task in jobs if task.folder == str(batch.folder)]:
            with suppress(OSError):  # jobs are cancelled even if a full disk prevents this note
                batch.save_cancelled(indices)
    for start in range(0, len(jobs), _IDS_A_CALL):
        client.ask_slurm("scancel", *(task.job_id for task in jobs[start : start + _IDS_A_CALL]))
    left = jobs
    for _ in range(_CHECKS if jobs else 0):
        live = _live_jobs(folder, only)
        left = left if live is None else live
        if not left:
            break
        time.sleep(_CHECK_EACH_S)  # wait for jobs that are ending, too, so that `status` shows them as ended
    return jobs, [task for task in left if task.state != "COMPLETING"]


def _live_jobs(folder: CampaignFolder, only: Collection[TaskKey] | None) -> list[Task] | None:
    """Return the waiting and running jobs of a campaign, or None if Slurm does not answer.

    Jobs are recognized by their working directories, because the campaign folder may have been removed.
    """
    listed = scheduler.list_tasks(())
    if listed is None:
        return None
    ours = [task for task in listed if task.live and Path(task.folder).parent == folder.workers]
    return [task for task in ours if only is None or task.key in only]
