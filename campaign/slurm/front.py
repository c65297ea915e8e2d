"""The front process's part on a cluster: take up what is there, submit what is missing, watch, write down the ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from campaign import plan, prepare, talk
from campaign.errors import CampaignError, SchedulerError
from campaign.slurm import client, fleet, price, submission
from campaign.talk import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from campaign.batch import Batch
    from campaign.cell import Cell
    from campaign.plan import Entry
    from campaign.work import Request


def work(cells: Sequence[Cell], request: Request, *, sure: bool) -> None:
    """Bring every cell to its end, as far as the cluster lets it; each is submitted at most once.

    Parameters
    ----------
    sure
        Spend without asking.

    Raises
    ------
    SchedulerError
        The scheduler took nothing of what was left, or does not answer at all.
    KeyboardInterrupt
        Ctrl-C while watching; the jobs go on.
    """
    facts = client.facts()
    tried: set[str] = set()
    while True:
        flotilla = fleet.of(request.folder, facts)
        flotilla.settle()
        _tell(fleet.settle_records(request.folder, flotilla))
        todo = _left(cells, request, flotilla, tried)
        refused = None
        if todo:
            sure = sure or _agreed(todo, request, facts)
            refused = _submit(todo, request, facts, tried)
            flotilla = fleet.of(request.folder, facts)
        if request.conduct["detach"] or not flotilla.open:
            break
        fleet.follow(request.folder, flotilla)
        _tell(fleet.settle_records(request.folder, flotilla))
    if refused:
        raise refused


def preview(todo: Sequence[Entry], request: Request) -> None:
    """Print the scripts and the price of what would be submitted."""
    arrays = list(submission.arrays(todo, request, client.facts().tasks_at_most))
    if arrays:
        talk.say(str(price.of(arrays, request.folder)))
    for number, array in enumerate(arrays, start=1):
        print(f"\n# array {number} of {len(arrays)}: sbatch would get")
        print(array.script("JOB_ID_OF_THE_ARRAY_BEFORE" if array.after else None))


def _left(cells: Sequence[Cell], request: Request, flotilla: fleet.Fleet, tried: set[str]) -> list[Entry]:
    """List what is neither done nor in a job nor was tried already."""
    conduct = {**request.conduct, "redo": request.conduct["redo"] and not tried}
    planned = plan.make(cells, conduct, request.folder)
    taken = {cell for key in flotilla.open for cell in flotilla.batch(key).cells[key[1]]}
    here = [entry for entry in planned.to_do if entry.cell.id in taken]
    if here:
        talk.say(f"{counted(len(here), 'cell')} wait or run in jobs of an earlier start; following them")
    if flotilla.open and flotilla.silent_s:
        talk.say("the scheduler does not answer: jobs of an earlier start are taken for alive until it does")
    return [entry for entry in planned.to_do if entry.cell.id not in taken | tried]


def _agreed(todo: Sequence[Entry], request: Request, facts: client.Facts) -> bool:
    """Say the price and, on a terminal, ask."""
    arrays = list(submission.arrays(todo, request, facts.tasks_at_most))
    talk.say(f"{counted(len(todo), 'cell')} to submit: {price.of(arrays, request.folder)}")
    if not talk.agreed("submit?"):
        raise CampaignError("nothing was submitted", "--yes, or CAMPAIGN_YES=1, does not ask")
    return True


def _submit(todo: Sequence[Entry], request: Request, facts: client.Facts, tried: set[str]) -> SchedulerError | None:
    """Hand over array after array until one is refused; returns the refusal if others were taken.

    Raises
    ------
    SchedulerError
        The first array was refused.
    """
    with talk.preparation() as progress:
        data = prepare.for_jobs(todo, request.folder, progress)
    taken: dict[str, Batch] = {}
    for array in submission.arrays(todo, request, facts.tasks_at_most):
        before = taken.get(str(array.after.folder)) if array.after else None
        try:
            batch = array.hand_over(data, before.job_id if before else None)
        except SchedulerError as error:
            if not taken:
                raise
            talk.say(f"{error.message}; they are submitted when the others are over")
            return error
        taken[str(array.folder)] = batch
        tried.update(cell for task in batch.cells for cell in task)
        talk.say(f"submitted {counted(len(batch.cells), 'job')} as {batch.job_id}, in {batch.folder}")
    return None


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        talk.say(line)
