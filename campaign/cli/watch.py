"""Come back to a campaign whose jobs go on: `python -m campaign watch`, or `status --watch`."""

from __future__ import annotations

from contextlib import suppress

from campaign import console
from campaign.cells.folder import CampaignFolder, occupied
from campaign.cluster import display, fleet, price
from campaign.cluster.conclude import Phase, WorkerState, ended
from campaign.cluster.progress import Follower
from campaign.errors import CampaignError
from campaign.worker import batch as batches
from jobs.model.codes import JobEnd

_TICK_S = 1.0


def watch(folder: CampaignFolder) -> None:
    """Show the live table until every job is over, or Ctrl-C."""
    workers = fleet.of(folder)
    workers.settle()
    try:
        if workers.open:
            say_to_go(folder, sum(worker.phase == Phase.RUNNING for worker in workers.seen.values()))
            fleet.follow(folder, workers)
        elif folder.worker_at_work():
            say_to_go(folder, at_once=1)
            last = batches.read_all(folder)[-1]  # of a worker that was started from another shell

            def state() -> WorkerState:
                at_work = folder.worker_at_work()
                return WorkerState(Phase.RUNNING) if at_work else ended(last, 0, {"code": JobEnd.GONE})

            display.follow_here(Follower.of(folder, last, 0), state, _TICK_S)
    except KeyboardInterrupt:
        console.say(f"no longer watched; what runs continues. Come back: python -m campaign watch {folder.root}")
        raise
    _keep_ends(folder, workers)


def say_to_go(folder: CampaignFolder, at_once: int) -> None:
    """Say how long the open workers, `at_once` of them at work, may still take by the records there are."""
    made = batches.read_all(folder)
    on_slurm = [batch for batch in made if batch.cluster == "slurm"]
    here = [] if folder.worker_at_work() is False else made[-1:]  # this machine has one worker
    open_ones = [(batch, index) for batch in (on_slurm or here) for index in batch.open_workers()]
    text = price.to_go(folder, [Follower.of(folder, *worker) for worker in open_ones], at_once)
    if text:
        console.say(text)


def _keep_ends(folder: CampaignFolder, workers: fleet.Fleet) -> None:
    """Write down how jobs ended, for Slurm forgets; a front process at work in the folder does so itself."""
    if all(worker.phase != Phase.ENDED for worker in workers.seen.values()):
        return
    with suppress(CampaignError, OSError), occupied(folder):
        fleet.settle_ends(folder, workers)
