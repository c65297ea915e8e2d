"""What a submission may cost, and how long it takes: one expectation, before it and while it is under way."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from campaign.cells import record
from campaign.cells.folder import CampaignFolder
from campaign.cluster.progress import Follower, Picture, Share
from campaign.cluster.submission import Array
from campaign.console import counted
from jobs.model.codes import CellState
from jobs.model.settings import Settings

_MINUTE_S, _HOUR_S = 60, 3600
START_S = 15.0  # a job's start and its one import of TensorFlow, 3-13 s where it was measured
_RECORDS_READ = 200
_READ_EACH_S = 30.0  # records of a campaign under way


class Amount(NamedTuple):
    """How long jobs take until the last one ends, the queue apart, and what all their nodes take together."""

    seconds: float
    node_hours: float


class Expected(NamedTuple):
    """What jobs are to take by earlier runs: at least, and with all runs that ``until_spread`` may add."""

    least: Amount
    most: Amount
    at_once: int  # jobs
    runs: int  # earlier ones

    def __str__(self) -> str:
        """Say it in one line."""
        unit, unit_s = ("min", _MINUTE_S) if self.least.seconds >= _MINUTE_S else ("s", 1)
        time_in_words = _span(*(f"{amount.seconds / unit_s:.0f}" for amount in (self.least, self.most)))
        at_once = f" with {self.at_once} jobs at once" if self.at_once > 1 else ""
        return f"about {time_in_words} {unit} expected{at_once}, from {counted(self.runs, 'earlier run')}"


@dataclass(frozen=True)
class Price:
    """Node-hours of some jobs; `expected` is None where no earlier run is recorded."""

    jobs: int
    timeout_min: int
    max_requeues: int
    retries: int
    expected: Expected | None
    more_nodes: int = 0  # than jobs
    data_h: float = 0.0  # node-hours at most of the jobs that make data for them, one node each

    @property
    def nodes(self) -> int:
        """Nodes of all jobs together."""
        return self.jobs + self.more_nodes

    @property
    def at_most_h(self) -> float:
        """Node-hours if every job takes its whole time once, those that make data with them."""
        return self.nodes * self.timeout_min / 60 + self.data_h

    def __str__(self) -> str:
        """Say it in one line."""
        on = f" on {self.nodes} nodes" if self.more_nodes else ""
        jobs = f"{counted(self.jobs, 'job')}{on} of at most {self.timeout_min} min"
        again = ((self.max_requeues, "requeues"), (self.retries, "retries"))
        after = " and ".join(what for number, what in again if number)
        every_h = self.at_most_h * math.prod(number + 1 for number, _ in again)
        jobs += f", and {two_digits(self.data_h)} to make data" if self.data_h else ""
        text = f"{two_digits(self.at_most_h)} node-hours"
        text += f", at most {two_digits(every_h)} after {after} ({jobs})" if after else f" at most ({jobs})"
        if self.expected is None:
            return text
        hours = _span(*(two_digits(amount.node_hours) for amount in self.expected[:2]))
        return f"{text}; {hours} node-hours in {self.expected}"


def _span(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def two_digits(hours: float) -> str:
    """Write a number above 0 with two significant digits, or with all before the point."""
    return f"{hours:.{max(0, 1 - math.floor(math.log10(hours)))}f}"


def of(arrays: Sequence[Array], folder: CampaignFolder) -> Price:
    """Price some array jobs, from the records in `folder`."""
    conduct = arrays[0].request.conduct
    cluster, measuring = conduct["cluster"], [array for array in arrays if not array.makes_data]
    jobs = sum(len(array.tasks) for array in measuring)
    more = sum(len(array.tasks) * (array.nodes - 1) for array in measuring)
    data_h = sum(array.node_hours for array in arrays if array.makes_data)
    workers = [Follower.to_be(folder, task, conduct) for array in measuring for task in array.tasks]
    at_once = sum(array.at_once for array in measuring if array.after is None)  # those of one storage run one by one
    times = expected(workers, RunTimes(folder), at_once)
    return Price(jobs, cluster["timeout_min"], cluster["max_requeues"], conduct["retries"], times, more, data_h)


class RunTimes:
    """What the runs took that a campaign has recorded, by their kind."""

    def __init__(self, folder: CampaignFolder) -> None:
        seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for kind, run_s in _recorded(folder):
            seconds[kind].append(run_s)
        every = [run_s for alike in seconds.values() for run_s in alike]
        self.number = len(every)
        self._of_all_s = statistics.fmean(every) if every else math.nan
        self._of_kind_s = {kind: statistics.fmean(alike) for kind, alike in seconds.items()}

    def run_s(self, settings: Settings) -> float:
        """Return what a run takes: as those of its kind did, or as all did where there is none."""
        return self._of_kind_s.get(_kind(settings), self._of_all_s)


def expected(workers: Iterable[Follower], times: RunTimes, at_once: int = 1) -> Expected | None:
    """Expect of workers, `at_once` of them at work, what the runs take that they have to go.

    What a job's start takes is part of it, unless the job has begun a run. A worker that makes data has no run. None
    where nothing is to go, or no earlier run is recorded.
    """
    jobs = [(0.0 if worker.begun else START_S, shares) for worker in workers if (shares := worker.left())]
    if not (jobs and times.number):
        return None
    at_once = max(1, min(at_once, len(jobs)))
    nodes = [shares[0].settings.get("nodes", 1) for _, shares in jobs]

    def amount(runs: Callable[[Share], int]) -> Amount:
        took = [start_s + sum(times.run_s(each.settings) * runs(each) for each in shares) for start_s, shares in jobs]
        return Amount(max(*took, sum(took) / at_once), sum(map(math.prod, zip(took, nodes, strict=True))) / _HOUR_S)

    return Expected(amount(lambda share: share.missing), amount(lambda share: share.at_most), at_once, times.number)


def to_go(folder: CampaignFolder, workers: Collection[Follower], at_once: int) -> str:
    """Say how many runs workers have before them, `at_once` of them at work, and how long these are to take.

    Empty where that is none, or the records have no earlier run.
    """
    for worker in workers:
        worker.news()
    times = expected(workers, RunTimes(folder), at_once)
    left = sum(worker.runs_total - worker.runs_over for worker in workers)
    return f"{counted(left, 'run')} to go, {times}" if times else ""


class Eta:
    """How long a campaign under way has to go, by its records, which are read now and then."""

    def __init__(self, folder: CampaignFolder) -> None:
        self._folder = folder
        self._read()

    def _read(self) -> None:
        self._times, self._next_s = RunTimes(self._folder), time.monotonic() + _READ_EACH_S

    def __call__(self, picture: Picture) -> float | None:
        """Return the seconds until the workers end that have not; None where no run is recorded or nothing is to go."""
        if not self._times.number or time.monotonic() >= self._next_s:
            self._read()
        times = expected(picture.workers, self._times, picture.counts[CellState.RUNNING])
        return times and times.least.seconds


def _recorded(folder: CampaignFolder) -> Iterator[tuple[tuple[str, ...], float]]:
    for path in islice(folder.records.glob("*/record.json"), _RECORDS_READ):
        recorded, _ = record.read_or_fault(path)
        settings = recorded["cell"]["settings"] if recorded else {}
        for run in recorded["runs"] if recorded else []:
            if "elapsed_s_with_fork" in run:
                yield _kind(settings), run["elapsed_s_with_fork"]


def _kind(settings: Settings) -> tuple[str, ...]:
    """Return what runs that take as long have in common; a baseline of a whole file has no dataset."""
    names = tuple(settings[group]["name"] for group in ("benchmark", "dataset", "storage") if group in settings)
    return (*names, str(settings.get("nodes", 1)))
