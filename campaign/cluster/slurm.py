"""Run a campaign on Slurm: follow its jobs, submit the missing cells, and record how jobs ended.

Jobs that no node of the cluster can run are refused before data are made or jobs are submitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from campaign import console
from campaign.cells.cell_plan import Plan, PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.cluster import fleet, placement, price, submission
from campaign.cluster.placement import DataPlan, call_with_least_priority
from campaign.cluster.price import Price
from campaign.cluster.submission import Array
from campaign.console import count_noun
from campaign.errors import CampaignError, EnvironmentFaultError, SchedulerError, UsageError, raise_if_refused
from campaign.slurm import client, scheduler
from campaign.slurm.client import Partition, SubmissionRefusal, call_sbatch, find_partitions
from campaign.storage import datasets
from campaign.worker.batch import CampaignCall, read_batches


def require_runnable(arrays: Sequence[Array]) -> None:
    """Refuse jobs that no node can run, and warn of jobs that a limit of the partition would keep waiting for ever.

    Raises
    ------
    UsageError
        A cell has more threads than its job would have CPUs, or a job asks for more CPUs than any node has.
    SchedulerError
        ``sbatch --test-only`` refuses a script.
    """
    partitions = find_partitions(arrays[0].request.conduct["cluster"]["partition"])
    raise_if_refused(refusal for array in arrays for refusal in _cpu_refusals(array, partitions))
    for line in dict.fromkeys(line for array in arrays for line in _partition_warnings(array, partitions)):
        console.say(f"warning: {line}")
    for array in arrays:
        _test_submission(array, sum(partition.nodes_away for partition in partitions))


def _cpu_refusals(array: Array, partitions: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    """Yield an error message and its cure for each wrong number of CPUs that the jobs of an array ask for."""
    cluster = array.request.conduct["cluster"]
    if array.threads > array.cpus and not cluster["oversubscribe"]:
        yield (
            f"threads={array.threads} with cluster.cpus_per_task={array.cpus}: a job has fewer CPUs than threads",
            f"cluster.cpus_per_task={array.threads}, or cluster.oversubscribe=true to share the CPUs",
        )
    cpus_at_most = max((partition.cpus_at_most for partition in partitions), default=array.cpus)
    if array.cpus > cpus_at_most:
        key = "cluster.cpus_per_task" if cluster["cpus_per_task"] else "threads"
        oversubscribe = (
            f"cluster.cpus_per_task={cpus_at_most} cluster.oversubscribe=true to measure more threads than CPUs"
        )
        yield (
            f"{key}={array.cpus}: {_partition_names(partitions)} gives a job at most {cpus_at_most} CPUs of a node",
            f"{key}={cpus_at_most} or less, another cluster.partition, or {oversubscribe}",
        )


def _partition_warnings(array: Array, partitions: Sequence[Partition]) -> Iterator[str]:
    """Yield a warning for each request above the limits of all partitions: Slurm would never start such a job."""
    requests = (
        ("cluster.timeout_min", array.request.conduct["cluster"]["timeout_min"], "MaxTime", "min"),
        ("memory", array.mem_mb, "MaxMemPerNode", "MiB"),
        ("nodes", array.nodes, "MaxNodes", "nodes"),
    )
    for request, number, key, unit in requests:
        limits = [math.inf if (limit := partition.limit(key)) is None else limit for partition in partitions]
        if number is not None and number > (largest := max(limits, default=math.inf)):
            yield (
                f"{request}={number}: {_partition_names(partitions)} allows {largest} {unit} ({key}); Slurm accepts "
                f"such a job but never starts it: ask for {largest} or less, or for another cluster.partition"
            )
    if partitions and all(partition.values.get("State") == "DOWN" for partition in partitions):
        names = _partition_names(partitions)
        yield f"{names} is down: jobs wait until the partition is up again; or choose another cluster.partition"


def _partition_names(partitions: Sequence[Partition]) -> str:
    """Return the word ``partition`` with the names of the partitions."""
    return f"partition {', '.join(partition.name for partition in partitions)}"


def _test_submission(array: Array, nodes_away: int) -> None:
    """Test the script of an array with ``sbatch --test-only``; raise SchedulerError for a permanent refusal."""
    answer = call_sbatch("--test-only", script=array.script())
    if answer.refusal in (None, SubmissionRefusal.NO_ANSWER, SubmissionRefusal.TOO_MANY_NOW):
        return
    fault = f"sbatch --test-only refuses {count_noun(len(array.tasks), 'job')}: {answer.words}"
    if nodes_away and answer.refusal == SubmissionRefusal.NODES_AWAY:
        console.say(f"warning: {fault}; {count_noun(nodes_away, 'node')} of the partition cannot be used now")
        return
    raise SchedulerError(
        fault, "`python -m campaign doctor` tests the account, partition and limits; --dry-run shows the script"
    )


_LATER = "the missing cells are submitted when the jobs of the other cells have ended"


def run_campaign_on_slurm(planned: Plan, request: CampaignCall, *, sure: bool) -> bool:
    """Submit each unfinished cell that is in no job, at most once, and follow all jobs until all jobs have ended.

    With ``detach=true``, return after the submission. The returned value says whether jobs still wait or run.
    """
    facts = client.read_slurm_config()
    submitted: set[str] = set()
    has_followed = False
    while True:
        workers = _update_fleet(request.folder, facts)
        planned = planned.refresh()
        todo = _entries_to_submit(planned, request, workers, submitted)
        refusal = None
        if todo:
            new_jobs = _Submission(todo, price.apply_packing(todo, request, facts), facts)
            new_jobs.require_runnable()
            new_jobs.data.require_room()
            if not sure:
                new_jobs.ask_for_consent()
            sure, refusal = True, new_jobs.submit_arrays(submitted)
            workers = fleet.open_fleet(request.folder, facts)
        elif not (workers.open or has_followed):
            console.say(f"nothing to run: {planned.done} of {len(planned.entries)} cells are done")
        if request.conduct["detach"] or not workers.open:
            break
        fleet.follow_fleet(request.folder, workers)
        console.say_first(fleet.record_ends(request.folder, workers))
        has_followed = True
    if refusal:
        raise refusal
    return bool(workers.open)


def preview_submission(planned: Plan, request: CampaignCall) -> list[PlannedCell]:
    """Print the scripts and the price of a submission, and return the cells to submit; write no file."""
    facts = client.read_slurm_config()
    workers = fleet.open_fleet(request.folder, facts)
    workers.refresh_until_explained()
    followed_cells = _cells_in_jobs(planned, request, workers, "this command would follow these jobs")
    todo = [entry for entry in planned.to_do if entry.cell.id not in followed_cells]
    if not todo:
        return todo
    new_jobs = _Submission(todo, price.apply_packing(todo, request, facts), facts)
    new_jobs.say_cost()
    job_ids = {array.folder: f"JOB_ID_OF_ARRAY_{number}" for number, array in enumerate(new_jobs.arrays, start=1)}
    for number, array in enumerate(new_jobs.arrays, start=1):
        purpose = " (makes data)" if array.makes_data else ""
        console.show_lines(
            f"\n# array {number} of {len(new_jobs.arrays)}{purpose}: sbatch would get\n{array.script(job_ids)}"
        )
    new_jobs.require_runnable()
    return todo


def refuse_while_jobs_live(folder: CampaignFolder) -> None:
    """Refuse to run cells on this machine while Slurm has jobs of the campaign: two workers could write one record."""
    if not any(batch.cluster == "slurm" and batch.open_workers() for batch in read_batches(folder)):
        return
    workers = _update_fleet(folder, client.read_slurm_config())
    if workers.open:
        raise EnvironmentFaultError(
            f"the cluster still has {count_noun(len(workers.open), 'job')} of this campaign, as far as Slurm knows",
            f"`{folder.cancel_command}` ends the jobs; the option cluster=slurm follows the jobs; "
            "campaign_dir=… chooses another folder",
        )


def _update_fleet(folder: CampaignFolder, facts: client.SlurmConfig) -> fleet.Fleet:
    """Return the fleet of the open workers with their present states, and record how ended workers ended."""
    workers = fleet.open_fleet(folder, facts)
    workers.refresh_until_explained()
    console.say_first(fleet.record_ends(folder, workers))
    return workers


def _entries_to_submit(
    planned: Plan, request: CampaignCall, workers: fleet.Fleet, submitted: set[str]
) -> list[PlannedCell]:
    """Return the cells that lack runs and are not in `submitted`, to which this function adds the cells in jobs.

    So a cell whose job was there before this command is not submitted again by it, however the job ends: a job that was
    cancelled stays so until somebody gives a command.
    """
    exception = ", and redo=true does not start the cells again" if request.conduct["redo"] else ""
    submitted |= _cells_in_jobs(planned, request, workers, f"this command follows these jobs{exception}")
    return [entry for entry in planned.to_do if entry.cell.id not in submitted]


def _cells_in_jobs(planned: Plan, request: CampaignCall, workers: fleet.Fleet, consequence: str) -> set[str]:
    """Return the cells in jobs of an earlier command; print how many of the cells lack runs, and `consequence`."""
    in_jobs = {cell for key in workers.open for cell in workers.batch(key).cells[key[1]]}
    if number := sum(entry.cell.id in in_jobs for entry in planned.to_do):
        keep = f"they keep the options cluster.… of that command until `{request.folder.cancel_command}` ends them"
        console.say(f"jobs of an earlier command have {count_noun(number, 'cell')}; {consequence}; {keep}")
    if workers.open and workers.silent_s:
        console.say("the scheduler does not answer: jobs of an earlier command are assumed to wait or run")
    return in_jobs


@dataclass(frozen=True)
class _Submission:
    """The cells to submit, the data that these cells lack, and the array jobs that make the data and run the cells."""

    todo: Sequence[PlannedCell]
    request: CampaignCall
    facts: client.SlurmConfig

    @cached_property
    def data(self) -> DataPlan:
        return placement.plan_data(self.todo, self.request.conduct["site"])

    @cached_property
    def arrays(self) -> list[Array]:
        return list(
            submission.make_arrays(self.todo, self.request, self.facts.tasks_at_most, self.data.cells_with_data_by_job)
        )

    @cached_property
    def price(self) -> Price:
        return price.price_arrays(self.arrays, self.request.folder)

    def require_runnable(self) -> None:
        """Refuse jobs that the cluster would not run; if the controller does not answer, check nothing."""
        if self.facts.text:
            require_runnable([array for array in self.arrays if not array.makes_data])

    def say_cost(self, prefix: str = "") -> None:
        """Print the data to make, the price of the jobs, and a cheaper packing of the cells if there is one."""
        for line in (*self.data.lines, f"{prefix}{self.price}"):
            console.say(line)
        price.propose_packing(self.todo, self.request, self.facts)

    def ask_for_consent(self) -> None:
        """Print the cost and ask the user whether to submit.

        Without a terminal, raise UsageError if the site requires consent for this cost.
        """
        self.say_cost(f"{count_noun(len(self.todo), 'cell')} to submit: ")
        answer, limit_h = console.ask_for_yes("submit?"), self.request.conduct["site"]["ask_above_node_hours"]
        is_expensive = self.price.at_most_h > limit_h
        if answer is None and (is_expensive or self.data.needs_consent):
            limit = f"{self.price}: more than site.ask_above_node_hours={limit_h:g}"
            reason = limit if is_expensive else "a job that makes so much data needs your consent (site.make_data=ask)"
            raise UsageError(f"{reason}, and there is no terminal to ask on", "agree with --yes or CAMPAIGN_YES=1")
        if answer is False:
            raise CampaignError("nothing was submitted", "--yes or CAMPAIGN_YES=1 submits without a question")

    def submit_arrays(self, submitted: set[str]) -> SchedulerError | None:
        """Submit the arrays one by one until Slurm refuses an array.

        Raise the refusal of the first array, and return the refusal of a later array. Return None without a refusal.
        """
        request, by_job = self.request, self.data.cells_with_data_by_job
        if not self.facts.text and scheduler.list_tasks([request.token]) is None:
            raise SchedulerError(
                "the scheduler does not answer: nothing was submitted",
                "`scontrol ping` shows whether the scheduler answers again; then repeat the command",
            )
        processes = request.conduct["site"]["login_processes"]
        with console.progress() as progress:
            data = call_with_least_priority(
                lambda show: datasets.datasets_for_jobs(self.todo, request.folder, show, processes, by_job), progress
            )
        job_ids: dict[Path, str | None] = {}
        for array in self.arrays:
            try:
                batch = array.submit(data, job_ids)
            except SchedulerError as error:
                if not job_ids:
                    raise
                later = "the same command submits the missing cells" if request.conduct["detach"] else _LATER
                console.say(f"{error.message}; {later}")
                return error
            job_ids[array.folder] = batch.job_id
            submitted.update(cell for task in batch.cells for cell in task)
            purpose = " that makes the data first" if array.makes_data else ""
            console.say(
                f"submitted {count_noun(len(batch.cells), 'job')}{purpose} as {batch.job_id}, in {batch.folder}"
            )
        return None
