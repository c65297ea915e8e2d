"""What it means that ``sbatch`` failed: a refusal, or a job that Slurm has all the same."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import TYPE_CHECKING

from campaign.console import counted
from campaign.errors import SchedulerError
from campaign.slurm import scheduler

if TYPE_CHECKING:
    from campaign.worker.batch import Batch

_SAID_BY_SBATCH = re.compile(r"sbatch: error: (.*)")
_CAME_TOO_LATE = re.compile("timed out|Unable to contact", re.IGNORECASE)
_PAUSES_S = (0.0, 2.0, 3.0, 5.0)  # before each question to a controller that is busy


def taken_all_the_same(batch: Batch, error: Exception) -> str:
    """Return the job id where Slurm has the job although ``sbatch`` failed: its answer may have come too late.

    Raises
    ------
    SchedulerError
        Slurm does not have it, and the batch is marked as refused. Or it does not say: the batch stays open, for who
        comes next finds the job, or finds it lost.
    """
    said = " ".join(_SAID_BY_SBATCH.findall(str(error))) or str(error)
    jobs = counted(len(batch.cells), "job")
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        listed = scheduler.listed([batch.job_name])
        for task in listed or ():
            if task.folder == str(batch.folder):
                return task.job_id.partition("_")[0]
        if listed is not None and not _CAME_TOO_LATE.search(said):
            break
    if listed is None:
        raise SchedulerError(
            f"sbatch failed, and Slurm does not say whether it took {jobs}: {said}",
            "the same command finds out when Slurm answers again",
        ) from error
    dataclasses.replace(batch, refused=said).save()
    raise SchedulerError(
        f"sbatch refused {jobs}: {said}",
        "`python -m campaign doctor` tries account, partition and limits; --dry-run shows the script",
    ) from error
