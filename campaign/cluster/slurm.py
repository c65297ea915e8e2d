"""Run a campaign on Slurm: follow its jobs, submit what is missing, record how jobs ended.

It refuses, before anything is made or submitted, what the cluster would refuse or never start.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from campaign import console
from campaign.cells.cell_plan import Entry, Plan
from campaign.cells.folder import CampaignFolder, open_existing
from campaign.cluster import fleet, placement, price, submission
from campaign.cluster.placement import DataPlan, call_with_least_priority
from campaign.cluster.price import Price
from campaign.cluster.submission import Array
from campaign.console import counted
from campaign.errors import CampaignError, EnvironmentFaultError, SchedulerError, UsageError, refuse
from campaign.slurm import client, scheduler
from campaign.slurm.client import Partition, Refusal, call_sbatch, find_partitions
from campaign.storage import datasets
from campaign.worker.batch import Request, read_batches


def require_runnable(arrays: Sequence[Array]) -> None:
    """Refuse jobs that no node can run, and warn of a limit of the partition with which they would wait for ever.

    Raises
    ------
    UsageError
        A cell has more threads than its job would have CPUs, or a job asks for more CPUs than any node has.
    SchedulerError
        ``sbatch --test-only`` does not take a script.
    """
    partitions = find_partitions(arrays[0].request.conduct["cluster"]["partition"])
    refuse(why for array in arrays for why in _cpu_refusals(array, partitions))
    for line in dict.fromkeys(line for array in arrays for line in _partition_warnings(array, partitions)):
        console.say(f"warning: {line}")
    for array in arrays:
        _test_submission(array, sum(partition.nodes_away for partition in partitions))


def _cpu_refusals(array: Array, partitions: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    """Yield why the jobs of an array ask for a wrong number of CPUs, and the cure."""
    cluster = array.request.conduct["cluster"]
    if array.threads > array.cpus and not cluster["oversubscribe"]:
        yield (
            f"threads={array.threads} with cluster.cpus_per_task={array.cpus}: a job has fewer CPUs than threads",
            f"cluster.cpus_per_task={array.threads}, or cluster.oversubscribe=true to measure it so",
        )
    most = max((partition.cpus_at_most for partition in partitions), default=array.cpus)
    if array.cpus > most:
        what = "cluster.cpus_per_task" if cluster["cpus_per_task"] else "threads"
        so = f"cluster.cpus_per_task={most} cluster.oversubscribe=true to measure more threads than CPUs"
        yield (
            f"{what}={array.cpus}: a job gets {most} CPUs of a node at most in {_partition_names(partitions)}",
            f"{what}={most} or less, another cluster.partition, or {so}",
        )


def _partition_warnings(array: Array, partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield each request above the limit of all partitions: Slurm takes such a job and never starts it."""
    requests = (
        ("cluster.timeout_min", array.request.conduct["cluster"]["timeout_min"], "MaxTime", "min"),
        ("memory", array.mem_mb, "MaxMemPerNode", "MiB"),
        ("nodes", array.nodes, "MaxNodes", "nodes"),
    )
    for what, number, key, unit in requests:
        limits = [math.inf if (limit := each.limit(key)) is None else limit for each in partitions]
        if number is not None and number > (most := max(limits, default=math.inf)):
            yield (
                f"{what}={number}: {_partition_names(partitions)} allows {most} {unit} ({key}); Slurm takes such a job "
                f"and never starts it: ask for {most} or less, or for another cluster.partition"
            )
    if partitions and all(each.values.get("State") == "DOWN" for each in partitions):
        names = _partition_names(partitions)
        yield f"{names} is down: jobs wait until it is up again, or take another cluster.partition"


def _partition_names(partitions: Sequence[Partition]) -> str:
    """Return ``partition`` with the names of some."""
    return f"partition {', '.join(partition.name for partition in partitions)}"


def _test_submission(array: Array, nodes_away: int) -> None:
    """Let ``sbatch --test-only`` read the script; raise SchedulerError for a refusal that will not pass by itself."""
    answer = call_sbatch("--test-only", script=array.script())
    if answer.refusal in (None, Refusal.NO_ANSWER, Refusal.TOO_MANY_NOW):
        return
    why = f"sbatch --test-only refuses {counted(len(array.tasks), 'job')}: {answer.words}"
    if nodes_away and answer.refusal == Refusal.NODES_AWAY:
        console.say(f"warning: {why}; {counted(nodes_away, 'node')} of the partition cannot be used now")
        return
    raise SchedulerError(
        why, "`python -m campaign doctor` tries account, partition and limits; --dry-run shows the script"
    )


_LATER = "what is missing is submitted when the others are over"


def run_campaign_on_slurm(planned: Plan, request: Request, *, sure: bool) -> bool:
    """Bring every cell to its end, as far as the cluster allows; each cell is submitted at most once.

    Returns whether jobs continue without this process, as ``detach=true`` asks.
    """
    facts = client.read_facts()
    tried: set[str] = set()
    followed = False
    while True:
        workers = _settle_fleet(request.folder, facts)
        planned = planned.refresh()
        todo = _entries_to_submit(planned, request, workers, tried)
        refused = None
        if todo:
            offer = _Submission(todo, price.apply_packing(todo, request, facts), facts)
            offer.require_runnable()
            offer.data.require_room()
            if not sure:
                offer.ask_for_consent()
            sure, refused = True, offer.submit_arrays(tried)
            workers = fleet.open_fleet(request.folder, facts)
        elif not (workers.open or followed):
            console.say(f"nothing to run: {planned.done} of {len(planned.entries)} cells are done")
        if request.conduct["detach"] or not workers.open:
            break
        fleet.follow_fleet(request.folder, workers)
        console.say_first(fleet.record_ends(request.folder, workers))
        followed = True
    if refused:
        raise refused
    return bool(workers.open)


def preview_submission(planned: Plan, request: Request) -> list[Entry]:
    """Print the scripts and the price of a submission; return its cells, and write nothing."""
    facts = client.read_facts()
    workers = fleet.open_fleet(request.folder, facts)
    workers.refresh_until_explained()
    followed = _cells_in_jobs(planned, request, workers, "would be followed")
    todo = [entry for entry in planned.to_do if entry.cell.id not in followed]
    if not todo:
        return todo
    offer = _Submission(todo, price.apply_packing(todo, request, facts), facts)
    offer.say_cost()
    job_ids = {array.folder: f"JOB_ID_OF_ARRAY_{number}" for number, array in enumerate(offer.arrays, start=1)}
    for number, array in enumerate(offer.arrays, start=1):
        what = " (makes data)" if array.makes_data else ""
        console.show_lines(
            f"\n# array {number} of {len(offer.arrays)}{what}: sbatch would get\n{array.script(job_ids)}"
        )
    offer.require_runnable()
    return todo


def refuse_while_jobs_live(folder: CampaignFolder) -> None:
    """Refuse to work on this machine while jobs of the campaign live: two workers would write one record."""
    if not any(batch.cluster == "slurm" and batch.open_workers() for batch in read_batches(folder)):
        return
    workers = _settle_fleet(folder, client.read_facts())
    if workers.open:
        raise EnvironmentFaultError(
            f"{counted(len(workers.open), 'job')} of this campaign on the cluster, not over as far as Slurm knows",
            f"`python -m campaign cancel {folder.root}` ends them; cluster=slurm continues with them; "
            "another folder is free: campaign_dir=…",
        )


def _settle_fleet(folder: CampaignFolder, facts: client.Facts) -> fleet.Fleet:
    """Return the workers that were open with their present states, and write down how they ended."""
    workers = fleet.open_fleet(folder, facts)
    workers.refresh_until_explained()
    console.say_first(fleet.record_ends(folder, workers))
    return workers


def _entries_to_submit(planned: Plan, request: Request, workers: fleet.Fleet, tried: set[str]) -> list[Entry]:
    """Return the entries neither done, nor in a job, nor tried; adds to `tried` what jobs repeat for redo=true."""
    exception = ", which redo=true does not start again" if request.conduct["redo"] else ""
    in_jobs = _cells_in_jobs(planned, request, workers, f"following them{exception}")
    if request.conduct["redo"]:
        tried |= in_jobs
    return [entry for entry in planned.to_do if entry.cell.id not in in_jobs | tried]


def _cells_in_jobs(planned: Plan, request: Request, workers: fleet.Fleet, what_then: str) -> set[str]:
    """Return the cells that are in jobs of an earlier start, and report those of them that lack runs."""
    tokens = {cell: workers.batch(key).token for key in workers.open for cell in workers.batch(key).cells[key[1]]}
    waiting = [entry for entry in planned.to_do if entry.cell.id in tokens]
    if waiting:
        console.say(f"{counted(len(waiting), 'cell')} wait or run in jobs of an earlier start; {what_then}")
        _report_ignored_options(request, [tokens[entry.cell.id] for entry in waiting])
    if workers.open and workers.silent_s:
        console.say("the scheduler does not answer: jobs of an earlier start are assumed to be alive until it does")
    return {*tokens}


def _report_ignored_options(request: Request, tokens: Sequence[str]) -> None:
    """Report the overrides ``cluster.…`` of this command that the jobs of an earlier start do not have."""
    words_of = {each["token"]: each["words"] for each in open_existing(request.folder.root)[1]["requests"]}
    now, changes = _cluster_overrides(request.words), Counter[str]()
    for before in (_cluster_overrides(words_of.get(token, request.words)) for token in tokens):
        changes.update(
            f"{now.get(key, f'no {key}')} (they have {before.get(key, 'the default')})"
            for key in dict.fromkeys((*now, *before))
            if now.get(key) != before.get(key)
        )
    for change, number in changes.items():
        console.say(f"{change} does not reach {counted(number, 'cell')} in these jobs")
    if changes:
        console.say(f"`python -m campaign cancel {request.folder.root}`, then this command, submits them with it")


def _cluster_overrides(words: Sequence[str]) -> dict[str, str]:
    """Return the overrides ``cluster.…`` by their keys; the last one of a key counts."""
    plain = (word.lstrip("+~") for word in words)
    return {word.partition("=")[0]: word for word in plain if word.startswith("cluster.")}


@dataclass(frozen=True)
class _Submission:
    """Cells to submit, the data that they lack, and the array jobs for both."""

    todo: Sequence[Entry]
    request: Request
    facts: client.Facts

    @cached_property
    def data(self) -> DataPlan:
        return placement.plan_data(self.todo, self.request.conduct["site"])

    @cached_property
    def arrays(self) -> list[Array]:
        return list(submission.make_arrays(self.todo, self.request, self.facts.tasks_at_most, self.data.by_job))

    @cached_property
    def price(self) -> Price:
        return price.price_arrays(self.arrays, self.request.folder)

    def require_runnable(self) -> None:
        """Refuse what the cluster would not run; if the controller does not answer, ask it nothing more."""
        if self.facts.text:
            require_runnable([array for array in self.arrays if not array.makes_data])

    def say_cost(self, what: str = "") -> None:
        """Print what must be made, the price of the jobs, and the option with which they would cost less."""
        for line in (*self.data.lines, f"{what}{self.price}"):
            console.say(line)
        price.propose_packing(self.todo, self.request, self.facts)

    def ask_for_consent(self) -> None:
        """Print the cost and ask; without a terminal, raise UsageError for more than the site allows unasked."""
        self.say_cost(f"{counted(len(self.todo), 'cell')} to submit: ")
        answer, limit_h = console.ask_for_yes("submit?"), self.request.conduct["site"]["ask_above_node_hours"]
        is_dear = self.price.at_most_h > limit_h
        if answer is None and (is_dear or self.data.needs_consent):
            limit = f"{self.price}: more than site.ask_above_node_hours={limit_h:g}"
            why = limit if is_dear else "so much data is made by a job with a yes alone (site.make_data=ask)"
            raise UsageError(f"{why}, and there is no terminal to ask on", "--yes, or CAMPAIGN_YES=1, does not ask")
        if answer is False:
            raise CampaignError("nothing was submitted", "--yes, or CAMPAIGN_YES=1, does not ask")

    def submit_arrays(self, tried: set[str]) -> SchedulerError | None:
        """Submit one array after another until Slurm refuses one; return the refusal if it took others before."""
        request, by_job = self.request, self.data.by_job
        if not self.facts.text and scheduler.list_tasks([request.token]) is None:
            raise SchedulerError(
                "the scheduler does not answer: nothing was submitted",
                "`scontrol ping` shows whether it is back; then the same command",
            )
        processes = request.conduct["site"]["login_processes"]
        with console.progress() as progress:
            data = call_with_least_priority(
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
