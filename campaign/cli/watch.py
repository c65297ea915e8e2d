"""`python -m campaign watch`: come back to a campaign whose jobs go on."""

from __future__ import annotations

from contextlib import suppress

from campaign import console
from campaign.cells.folder import CampaignFolder, existing, occupied
from campaign.cli import arguments, status
from campaign.cluster import display, fleet
from campaign.cluster.progress import Follower
from campaign.errors import CampaignError
from campaign.worker import batch as batches

_TICK_S = 1.0


def main(argv: list[str]) -> int:
    """Show the live table until every job is over, or Ctrl-C; then do as `status` does."""
    parser = arguments.parser("watch", "Watch a campaign that is under way, from any shell, on any day.", json=False)
    arguments.add_folder(parser)
    options = parser.parse_args(argv)
    folder, _ = existing(options.campaign_dir)
    workers = fleet.of(folder)
    workers.settle()
    try:
        if workers.open:
            fleet.follow(folder, workers)
        elif folder.worker_at_work():
            last = batches.read_all(folder)[-1]  # of a worker that was started from another shell
            display.follow_here(Follower.of(folder, last, 0), folder.worker_at_work, _TICK_S)
    except KeyboardInterrupt:
        console.say(f"no longer watched; what runs continues. Come back: python -m campaign watch {folder.root}")
        raise
    _keep_ends(folder, workers)
    return status.main([str(folder.root)])


def _keep_ends(folder: CampaignFolder, workers: fleet.Fleet) -> None:
    """Write down how jobs ended, for Slurm forgets; a front process at work in the folder does so itself."""
    if all(seen.state != "ended" for seen in workers.seen.values()):
        return
    with suppress(CampaignError, OSError), occupied(folder):
        fleet.settle_records(folder, workers)
