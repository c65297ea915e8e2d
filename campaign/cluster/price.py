"""Estimate the price (node-hours) and the time of Slurm jobs, and pack cells into fewer jobs if that is cheaper.

Estimates use the durations of the runs that the campaign has recorded.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from campaign import console
from campaign.cells import record
from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.cluster import submission
from campaign.cluster.progress import CellShare, Follower, WorkersPicture
from campaign.cluster.submission import Array
from campaign.console import count_noun
from campaign.slurm import client
from campaign.worker.batch import CampaignCall
from jobs.model.codes import CellState, Waiting
from jobs.model.conduct import Cluster
from jobs.model.settings import Settings

_MINUTE_S, _HOUR_S = 60, 3600
START_S = 15.0  # estimated time to start a job and to import TensorFlow; 3-13 s were measured
_RECORDS_READ = 200
_READ_EACH_S = 30.0  # while jobs run, the records are read again after this time


class JobCost(NamedTuple):
    """The cost of some jobs: the time until the last job ends, without queue time, and the node-hours of all jobs."""

    seconds: float
    node_hours: float


class ExpectedCost(NamedTuple):
    """The expected cost of some jobs, calculated from earlier runs."""

    least: JobCost
    most: JobCost  # the cost if ``until_spread`` adds as many runs as it may
    at_once: int  # number of jobs that run at the same time
    runs: int  # number of earlier runs that the estimate uses

    def __str__(self) -> str:
        """Return the expectation in one line."""
        unit, unit_s = ("min", _MINUTE_S) if self.least.seconds >= _MINUTE_S else ("s", 1)
        time_in_words = _format_span(*(f"{amount.seconds / unit_s:.0f}" for amount in (self.least, self.most)))
        at_once = f" with {self.at_once} jobs at once" if self.at_once > 1 else ""
        return f"about {time_in_words} {unit} expected{at_once}, from {count_noun(self.runs, 'earlier run')}"


@dataclass(frozen=True)
class Price:
    """The node-hours of some jobs; `expected` is None if no earlier run is recorded."""

    jobs: int
    timeout_min: int
    max_requeues: int
    retries: int
    expected: ExpectedCost | None
    more_nodes: int = 0  # number of nodes in excess of one node per job
    data_h: float = 0.0  # upper bound of the node-hours of the jobs that make data; such a job uses one node

    @property
    def nodes(self) -> int:
        """Return the number of nodes of all jobs together."""
        return self.jobs + self.more_nodes

    @property
    def at_most_h(self) -> float:
        """Return the node-hours of all jobs if each job runs once until its time limit; jobs that make data count."""
        return self.nodes * self.timeout_min / 60 + self.data_h

    def __str__(self) -> str:
        """Return the price in one line."""
        on = f" on {self.nodes} nodes" if self.more_nodes else ""
        jobs = f"{count_noun(self.jobs, 'job')}{on} of at most {self.timeout_min} min"
        repetitions = ((self.max_requeues, "requeues"), (self.retries, "retries"))
        repetitions_in_words = " and ".join(noun for number, noun in repetitions if number)
        with_repetitions_h = self.at_most_h * math.prod(number + 1 for number, _ in repetitions)
        jobs += f", and {format_two_digits(self.data_h)} to make data" if self.data_h else ""
        text = f"{format_two_digits(self.at_most_h)} node-hours"
        text += (
            f", at most {format_two_digits(with_repetitions_h)} after {repetitions_in_words} ({jobs})"
            if repetitions_in_words
            else f" at most ({jobs})"
        )
        if self.expected is None:
            return text
        hours = _format_span(*(format_two_digits(amount.node_hours) for amount in self.expected[:2]))
        return f"{text}; {hours} node-hours in {self.expected}"


def _format_span(least: str, most: str) -> str:
    """Return two numbers as ``LEAST to MOST``, or one number if both are equal."""
    return least if least == most else f"{least} to {most}"


def format_two_digits(hours: float) -> str:
    """Return a positive number with two significant digits; a number of 100 or more keeps all its integer digits."""
    return f"{hours:.{max(0, 1 - math.floor(math.log10(hours)))}f}"


def price_arrays(arrays: Sequence[Array], folder: CampaignFolder) -> Price:
    """Return the price of some array jobs, estimated from the records in `folder`."""
    conduct = arrays[0].request.conduct
    cluster, measuring = conduct["cluster"], [array for array in arrays if not array.makes_data]
    jobs = sum(len(array.tasks) for array in measuring)
    more_nodes = sum(len(array.tasks) * (array.nodes - 1) for array in measuring)
    data_h = sum(array.node_hours for array in arrays if array.makes_data)
    workers = [Follower.of_entries(folder, task, conduct) for array in measuring for task in array.tasks]
    # Arrays of the same storage run one after the other, so only the first array of each storage counts.
    at_once = sum(array.at_once for array in measuring if array.previous_array is None)
    times = expect_times(workers, RunTimes(folder), at_once)
    return Price(jobs, cluster["timeout_min"], cluster["max_requeues"], conduct["retries"], times, more_nodes, data_h)


class RunTimes:
    """The mean duration of each kind of run, from the runs that a campaign has recorded."""

    def __init__(self, folder: CampaignFolder) -> None:
        seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for kind, run_s in _recorded_times(folder):
            seconds[kind].append(run_s)
        all_times_s = [run_s for times_s in seconds.values() for run_s in times_s]
        self.number = len(all_times_s)
        self._of_all_s = statistics.fmean(all_times_s) if all_times_s else math.nan
        self._of_kind_s = {kind: statistics.fmean(times_s) for kind, times_s in seconds.items()}

    def run_s(self, settings: Settings) -> float:
        """Return the expected seconds of a run.

        The value is the mean of the recorded runs of the same kind, or of all recorded runs if the kind is new.
        """
        return self._of_kind_s.get(_kind_of_run(settings), self._of_all_s)


def expect_times(workers: Iterable[Follower], times: RunTimes, at_once: int = 1) -> ExpectedCost | None:
    """Return the expected cost of the workers' remaining runs, if `at_once` workers run at the same time.

    The cost includes the start of jobs that have begun no run. Workers that make data have no runs and add no cost.
    Return None if no run remains, or if no earlier run is recorded.
    """
    jobs = [(0.0 if worker.has_begun else START_S, shares) for worker in workers if (shares := worker.shares_left())]
    if not (jobs and times.number):
        return None
    at_once = max(1, min(at_once, len(jobs)))
    nodes = [shares[0].settings.get("nodes", 1) for _, shares in jobs]

    def amount(runs: Callable[[CellShare], int]) -> JobCost:
        jobs_s = [start_s + sum(times.run_s(cell.settings) * runs(cell) for cell in shares) for start_s, shares in jobs]
        node_seconds = sum(map(math.prod, zip(jobs_s, nodes, strict=True)))
        return JobCost(max(*jobs_s, sum(jobs_s) / at_once), node_seconds / _HOUR_S)

    return ExpectedCost(amount(lambda share: share.missing), amount(lambda share: share.at_most), at_once, times.number)


def describe_remaining_runs(folder: CampaignFolder, workers: Collection[Follower], at_once: int) -> str:
    """Return a sentence with the workers' remaining runs and time, if `at_once` workers run at the same time.

    Return an empty text if no run remains, or if no earlier run is recorded.
    """
    for worker in workers:
        worker.read_news()
    times = expect_times(workers, RunTimes(folder), at_once)
    runs_left = sum(worker.runs_total - worker.runs_over for worker in workers)
    return f"{count_noun(runs_left, 'run')} to go, {times}" if times else ""


class RemainingTime:
    """Estimates the remaining time of a running campaign from its records, which are read again every 30 s."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._folder = folder
        self._times: RunTimes | None = None  # read at the first call, because plain lines never show the time
        self._next_s = 0.0

    def __call__(self, picture: WorkersPicture) -> float | None:
        """Return the seconds until all open workers end.

        Return None if no run is recorded, if no run remains, or if a job is suspended for an unknown time.
        """
        if any(wait["code"] == Waiting.SUSPENDED for wait in picture.waits):
            return None
        if self._times is None or not self._times.number or time.monotonic() >= self._next_s:
            self._times, self._next_s = RunTimes(self._folder), time.monotonic() + _READ_EACH_S
        times = expect_times(picture.workers, self._times, picture.counts[CellState.RUNNING])
        return times and times.least.seconds


def _recorded_times(folder: CampaignFolder) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the kind and the seconds of each recorded run, from at most 200 records of the folder."""
    for path in islice(folder.records.glob("*/record.json"), _RECORDS_READ):
        recorded, _ = record.read_or_fault(path)
        settings = recorded["cell"]["settings"] if recorded else {}
        for run in recorded["runs"] if recorded else []:
            if "elapsed_s_with_fork" in run:
                yield _kind_of_run(settings), run["elapsed_s_with_fork"]


def _kind_of_run(settings: Settings) -> tuple[str, ...]:
    """Return the kind of a run: its benchmark, dataset, storage and number of nodes, which set its duration."""
    names = tuple(settings[group]["name"] for group in ("benchmark", "dataset", "storage") if group in settings)
    return (*names, str(settings.get("nodes", 1)))


# The runs of a packed job take at most this time, which is long compared with the start of a job.
# Longer jobs would repeat more runs after a requeue.
_JOB_S = 1800
_TIME_MARGIN = 2  # ratio of the time limit to the expected time
_START_MIN = 5  # added to the time limit, because TensorFlow's import from a busy network file system takes minutes
_PROPOSED_SHARE = 0.5  # a packing is proposed if it needs at most this share of the original node-hours


@dataclass(frozen=True)
class Packing:
    """A way to run the same cells in fewer jobs, which request fewer node-hours."""

    request: CampaignCall  # the request with the new ``cells_per_job`` and ``timeout_min``
    jobs: int
    job_s: float  # expected seconds of the longest job
    hours: float  # upper bound of the node-hours with this packing
    hours_before: float  # upper bound of the node-hours without packing

    def __str__(self) -> str:
        """Return the packing in one line."""
        cluster = self.request.conduct["cluster"]
        return (
            f"{count_noun(self.jobs, 'job')} of {count_noun(cluster['cells_per_job'], 'cell')} and at most "
            f"{cluster['timeout_min']} min (about {math.ceil(self.job_s / 60)} min expected): "
            f"{format_two_digits(self.hours)} node-hours at most instead of {format_two_digits(self.hours_before)}"
        )


def find_cheaper_packing(
    todo: Sequence[PlannedCell], request: CampaignCall, facts: client.SlurmConfig
) -> Packing | None:
    """Return a packing that needs fewer node-hours than the request.

    Return None if no packing needs fewer node-hours, or if no run is recorded.
    """
    times, cluster = RunTimes(request.folder), request.conduct["cluster"]
    if not times.number:
        return None
    warmups = request.conduct["warmup_runs"]
    seconds = {entry.cell.id: (entry.at_most + warmups) * times.run_s(entry.cell.settings) for entry in todo}
    cells_at_most = max(1, int(min(_JOB_S, cluster["timeout_min"] * 60 / _TIME_MARGIN) // max(seconds.values())))
    cells_per_job = math.ceil(len(todo) / math.ceil(len(todo) / cells_at_most))  # equal in all jobs
    arrays = submission.make_arrays(
        todo, _with_packing(request, cells_per_job, cluster["timeout_min"]), facts.tasks_at_most
    )
    tasks = [task for array in arrays for task in array.tasks]
    job_s = START_S + max(sum(seconds[entry.cell.id] for entry in task) for task in tasks)
    minutes = math.ceil((_TIME_MARGIN * job_s + cluster["signal_delay_s"]) / 60) + _START_MIN
    packed = _with_packing(request, cells_per_job, min(minutes, cluster["timeout_min"]))
    hours_before, hours = (
        sum(array.node_hours for array in submission.make_arrays(todo, variant, facts.tasks_at_most))
        for variant in (request, packed)
    )
    return Packing(packed, len(tasks), job_s, hours, hours_before) if hours < hours_before else None


def apply_packing(todo: Sequence[PlannedCell], request: CampaignCall, facts: client.SlurmConfig) -> CampaignCall:
    """Return the request to submit: with ``cluster.pack=true``, the cheaper packing if there is such a packing."""
    if not request.conduct["cluster"]["pack"]:
        return request
    packing = find_cheaper_packing(todo, request, facts)
    if packing is None:
        console.say(
            "cluster.pack=true changes nothing: no earlier run is recorded, or no packing needs fewer node-hours"
        )
        return request
    console.say(f"cluster.pack=true: {packing}")
    return packing.request


def propose_packing(todo: Sequence[PlannedCell], request: CampaignCall, facts: client.SlurmConfig) -> None:
    """Print the packing of ``cluster.pack=true`` if this packing saves half of the node-hours or more."""
    packing = None if request.conduct["cluster"]["pack"] else find_cheaper_packing(todo, request, facts)
    if packing and packing.hours <= _PROPOSED_SHARE * packing.hours_before:
        console.say(f"the runs need far fewer node-hours; cluster.pack=true submits {packing}")


def _with_packing(request: CampaignCall, cells_per_job: int, timeout_min: int) -> CampaignCall:
    """Return the request with another number of cells per job and another time limit."""
    cluster: Cluster = {**request.conduct["cluster"], "cells_per_job": cells_per_job, "timeout_min": timeout_min}
    return dataclasses.replace(request, conduct={**request.conduct, "cluster": cluster})
