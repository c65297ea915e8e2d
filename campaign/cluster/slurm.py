"""The front process on a cluster: follow the jobs there are, submit what is missing, watch, record how jobs ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from campaign import console
from campaign.cells.cell_plan import Entry, Plan
from campaign.cells.folder import CampaignFolder, existing
from campaign.cluster import fleet, limits, making, packing, price, submission
from campaign.cluster.making import Making, politely
from campaign.cluster.price import Price
from campaign.cluster.submission import Array
from campaign.console import counted
from campaign.errors import CampaignError, EnvironmentFaultError, SchedulerError, UsageError
from campaign.slurm import client, scheduler
from campaign.storage import datasets
from campaign.worker.batch import read_all
from campaign.worker.work_list import Request

_LATER = "what is missing is submitted when the others are over"


def work(planned: Plan, request: Request, *, sure: bool) -> bool:
    """Bring every cell to its end, as far as the cluster lets it; each is submitted at most once.

    Returns whether jobs continue without this process, as ``detach=true`` asks.
    """
    facts = client.facts()
    tried: set[str] = set()
    followed = False
    while True:
        workers = _settled(request.folder, facts)
        planned = planned.refreshed()
        todo = _left(planned, request, workers, tried)
        refused = None
        if todo:
            offer = _Offer(todo, packing.applied(todo, request, facts), facts)
            offer.examine()
            offer.data.require_room()
            if not sure:
                offer.ask()
            sure, refused = True, offer.submit(tried)
            workers = fleet.of(request.folder, facts)
        elif not (workers.open or followed):
            console.say(f"nothing to run: {planned.done} of {len(planned.entries)} cells are done")
        if request.conduct["detach"] or not workers.open:
            break
        fleet.follow(request.folder, workers)
        console.say_first(fleet.settle_ends(request.folder, workers))
        followed = True
    if refused:
        raise refused
    return bool(workers.open)


def preview(planned: Plan, request: Request) -> list[Entry]:
    """Print the scripts and the price of what would be submitted; returns those cells, and writes nothing."""
    facts = client.facts()
    workers = fleet.of(request.folder, facts)
    workers.settle()
    taken = _taken(planned, request, workers, "would be followed")
    todo = [entry for entry in planned.to_do if entry.cell.id not in taken]
    if not todo:
        return todo
    offer = _Offer(todo, packing.applied(todo, request, facts), facts)
    offer.say_cost()
    job_ids = {array.folder: f"JOB_ID_OF_ARRAY_{number}" for number, array in enumerate(offer.arrays, start=1)}
    for number, array in enumerate(offer.arrays, start=1):
        what = " (makes data)" if array.makes_data else ""
        console.show_lines(
            f"\n# array {number} of {len(offer.arrays)}{what}: sbatch would get\n{array.script(job_ids)}"
        )
    offer.examine()
    return todo


def refuse_beside_jobs(folder: CampaignFolder) -> None:
    """Refuse to work on this machine while jobs of the campaign live: two workers would write one record."""
    if not any(batch.cluster == "slurm" and batch.open_workers() for batch in read_all(folder)):
        return
    workers = _settled(folder, client.facts())
    if workers.open:
        raise EnvironmentFaultError(
            f"{counted(len(workers.open), 'job')} of this campaign on the cluster, not over as far as Slurm knows",
            f"`python -m campaign cancel {folder.root}` ends them; cluster=slurm continues with them; "
            "another folder is free: campaign_dir=…",
        )


def _settled(folder: CampaignFolder, facts: client.Facts) -> fleet.Fleet:
    """Find out how the workers are that were open, and write down how they ended."""
    workers = fleet.of(folder, facts)
    workers.settle()
    console.say_first(fleet.settle_ends(folder, workers))
    return workers


def _left(planned: Plan, request: Request, workers: fleet.Fleet, tried: set[str]) -> list[Entry]:
    """List what is neither done nor in a job nor was tried already; `tried` grows by what jobs repeat for redo=true."""
    again = ", which redo=true does not start again" if request.conduct["redo"] else ""
    taken = _taken(planned, request, workers, f"following them{again}")
    if request.conduct["redo"]:
        tried |= taken
    return [entry for entry in planned.to_do if entry.cell.id not in taken | tried]


def _taken(planned: Plan, request: Request, workers: fleet.Fleet, what_then: str) -> set[str]:
    """List the cells that are in jobs of an earlier start, and report those that lack runs."""
    taken = {cell: workers.batch(key).token for key in workers.open for cell in workers.batch(key).cells[key[1]]}
    here = [entry for entry in planned.to_do if entry.cell.id in taken]
    if here:
        console.say(f"{counted(len(here), 'cell')} wait or run in jobs of an earlier start; {what_then}")
        _say_what_comes_too_late(request, [taken[entry.cell.id] for entry in here])
    if workers.open and workers.silent_s:
        console.say("the scheduler does not answer: jobs of an earlier start are assumed to be alive until it does")
    return {*taken}


def _say_what_comes_too_late(request: Request, tokens: Sequence[str]) -> None:
    """Name the words ``cluster.…`` in which this command differs from those that submitted these cells' jobs."""
    words_of = {each["token"]: each["words"] for each in existing(request.folder.root)[1]["requests"]}
    now, changes = _of_cluster(request.words), Counter[str]()
    for before in (_of_cluster(words_of.get(token, request.words)) for token in tokens):
        changes.update(
            f"{now.get(key, f'no {key}')} (they have {before.get(key, 'the default')})"
            for key in dict.fromkeys((*now, *before))
            if now.get(key) != before.get(key)
        )
    for change, number in changes.items():
        console.say(f"{change} does not reach {counted(number, 'cell')} in these jobs")
    if changes:
        console.say(f"`python -m campaign cancel {request.folder.root}`, then this command, submits them with it")


def _of_cluster(words: Sequence[str]) -> dict[str, str]:
    """Return the words ``cluster.…`` by their keys; the last of a key counts."""
    plain = (word.lstrip("+~") for word in words)
    return {word.partition("=")[0]: word for word in plain if word.startswith("cluster.")}


@dataclass(frozen=True)
class _Offer:
    """Cells that are to be submitted, the data that they lack, and the array jobs of both."""

    todo: Sequence[Entry]
    request: Request
    facts: client.Facts

    @cached_property
    def data(self) -> Making:
        return making.making(self.todo, self.request.conduct["site"])

    @cached_property
    def arrays(self) -> list[Array]:
        return list(submission.arrays(self.todo, self.request, self.facts.tasks_at_most, self.data.by_job))

    @cached_property
    def price(self) -> Price:
        return price.of(self.arrays, self.request.folder)

    def examine(self) -> None:
        """Refuse what the cluster would not run; a controller that does not answer is asked nothing more."""
        if self.facts.text:
            limits.examine([array for array in self.arrays if not array.makes_data])

    def say_cost(self, what: str = "") -> None:
        """Say what is to be made, what the jobs may cost, and with which word they would cost less."""
        for line in (*self.data.lines, f"{what}{self.price}"):
            console.say(line)
        packing.propose(self.todo, self.request, self.facts)

    def ask(self) -> None:
        """Say the cost and ask; without a terminal, raise UsageError for more than the site lets pass unasked."""
        self.say_cost(f"{counted(len(self.todo), 'cell')} to submit: ")
        answer, limit_h = console.agreed("submit?"), self.request.conduct["site"]["ask_above_node_hours"]
        is_dear = self.price.at_most_h > limit_h
        if answer is None and (is_dear or self.data.needs_a_yes):
            limit = f"{self.price}: more than site.ask_above_node_hours={limit_h:g}"
            why = limit if is_dear else "so much data is made by a job with a yes alone (site.make_data=ask)"
            raise UsageError(f"{why}, and there is no terminal to ask on", "--yes, or CAMPAIGN_YES=1, does not ask")
        if answer is False:
            raise CampaignError("nothing was submitted", "--yes, or CAMPAIGN_YES=1, does not ask")

    def submit(self, tried: set[str]) -> SchedulerError | None:
        """Hand over array after array until one is refused; returns the refusal if others were taken."""
        request, by_job = self.request, self.data.by_job
        if not self.facts.text and scheduler.listed([request.token]) is None:
            raise SchedulerError(
                "the scheduler does not answer: nothing was submitted",
                "`scontrol ping` shows whether it is back; then the same command",
            )
        processes = request.conduct["site"]["login_processes"]
        with console.progress() as progress:
            data = politely(
                lambda show: datasets.for_jobs(self.todo, request.folder, show, processes, by_job), progress
            )
        job_ids: dict[Path, str | None] = {}
        for array in self.arrays:
            try:
                batch = array.hand_over(data, job_ids)
            except SchedulerError as error:
                if not job_ids:
                    raise
                later = "the same command submits what is missing" if request.conduct["detach"] else _LATER
                console.say(f"{error.message}; {later}")
                return error
            job_ids[array.folder] = batch.job_id
            tried.update(cell for task in batch.cells for cell in task)
            what = " that makes the data first" if array.makes_data else ""
            console.say(f"submitted {counted(len(batch.cells), 'job')}{what} as {batch.job_id}, in {batch.folder}")
        return None
