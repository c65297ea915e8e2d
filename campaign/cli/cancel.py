"""`python -m campaign cancel`: end what is ours and nothing else."""

from __future__ import annotations

from campaign import console
from campaign.cells.folder import CampaignFolder, existing
from campaign.cli import arguments
from campaign.cluster.cancel import cancel
from campaign.console import counted
from campaign.errors import SchedulerError
from campaign.worker.batch import read_all


def main(argv: list[str]) -> int:
    """Cancel the jobs of a campaign; exit code 4 where Slurm does not answer or would not."""
    parser = arguments.parser("cancel", "Cancel the Slurm jobs of a campaign, and nothing else.", json=False)
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = existing(options.campaign_dir)
    batches = [batch for batch in read_all(folder) if batch.cluster == "slurm"]
    jobs, left = cancel(batches) if batches else ([], [])
    if not jobs:
        return _nothing(folder)
    if left:
        raise SchedulerError(
            f"Slurm did not cancel {counted(len(left), 'job')}: {', '.join(job.job_id for job in left)}",
            "scancel them by hand, or try again",
        )
    console.say(
        f"cancelled {counted(len(jobs), 'job')}; what was measured is kept, and the same command continues from it"
    )
    return 0


def _nothing(folder: CampaignFolder) -> int:
    if folder.worker_at_work():
        console.say(
            "no Slurm job of this campaign is left; a worker is running on this machine: Ctrl-C its front process"
        )
        return 1
    console.say("no job of this campaign is left")
    return 0
