"""What a submission may cost, and what it will."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from campaign.cells import record
from campaign.cells.contract import Conduct
from campaign.cells.folder import CampaignFolder
from campaign.cells.plan import Entry
from campaign.cluster.progress import Follower
from campaign.cluster.submission import Array
from campaign.console import counted
from jobs.settings import Settings

_MINUTE_S = 60
_START_S = 15.0  # a job's start and its one import of TensorFlow, 3-13 s where it was measured
_RECORDS_READ = 200


class Expected(NamedTuple):
    """Seconds that runs are to take, at least and with all that ``until_spread`` may add, from so many earlier ones."""

    least_s: float
    most_s: float
    known: int

    def __str__(self) -> str:
        """Say it in one line."""
        unit, unit_s = ("min", 60) if self.least_s >= _MINUTE_S else ("s", 1)
        time = f"{self.least_s / unit_s:.0f}" + (
            f" to {self.most_s / unit_s:.0f}" if self.most_s > self.least_s else ""
        )
        return f"about {time} {unit} expected, from {counted(self.known, 'earlier run')}"


@dataclass(frozen=True)
class Price:
    """Node-hours of some jobs; `runs` is None where no earlier run is known."""

    jobs: int
    timeout_min: int
    max_requeues: int
    retries: int
    runs: Expected | None
    more_nodes: int = 0  # than jobs

    @property
    def nodes(self) -> int:
        """Nodes of all jobs together."""
        return self.jobs + self.more_nodes

    @property
    def at_most_h(self) -> float:
        """Node-hours if every job takes its whole time once."""
        return self.nodes * self.timeout_min / 60

    def __str__(self) -> str:
        """Say it in one line."""
        on = f" on {self.nodes} nodes" if self.more_nodes else ""
        jobs = f"{counted(self.jobs, 'job')}{on} of at most {self.timeout_min} min"
        factors = (self.max_requeues, "requeued"), (self.retries, "tried again")
        again = "".join(f", times {number + 1} if all are {what}" for number, what in factors if number)
        text = f"{_two_digits(self.at_most_h)} node-hours at most ({jobs}{again})"
        if self.runs is None:
            return text
        least, most = ((seconds + self.nodes * _START_S) / 3600 for seconds in (self.runs.least_s, self.runs.most_s))
        hours = _two_digits(least) + (f" to {_two_digits(most)}" if most > least else "")
        return f"{text}; about {hours} expected, from {counted(self.runs.known, 'earlier run')}"


def _two_digits(hours: float) -> str:
    """Write a number above 0 with two significant digits, or with all before the point."""
    return f"{hours:.{max(0, 1 - math.floor(math.log10(hours)))}f}"


def of(arrays: Sequence[Array], folder: CampaignFolder) -> Price:
    """Price some array jobs, from the records in `folder`."""
    entries = [entry for array in arrays for task in array.tasks for entry in task]
    conduct = arrays[0].request.conduct
    cluster, jobs = conduct["cluster"], sum(len(array.tasks) for array in arrays)
    more = sum(len(array.tasks) * (array.nodes - 1) for array in arrays)
    runs = expected(entries, conduct, folder, of_nodes=True)
    return Price(jobs, cluster["timeout_min"], cluster["max_requeues"], conduct["retries"], runs, more)


def expected(
    entries: Sequence[Entry], conduct: Conduct, folder: CampaignFolder, *, of_nodes: bool = False
) -> Expected | None:
    """Expect of runs what those of their kind took before, on each of their nodes if `of_nodes`.

    None where the records in `folder` have none.
    """
    known = list(_known(folder))
    if not known:
        return None
    nodes = [entry.cell.settings.get("nodes", 1) if of_nodes else 1 for entry in entries]
    took = [_mean(known, _kind(entry.cell.settings)) for entry in entries]
    of_run = [(entry, seconds * many) for entry, seconds, many in zip(entries, took, nodes, strict=True)]
    warmups = conduct["warmup_runs"]
    least = sum((entry.missing + warmups) * seconds for entry, seconds in of_run)
    most = sum((entry.at_most + warmups) * seconds for entry, seconds in of_run)
    return Expected(least, most, len(known))


def to_go(folder: CampaignFolder, followers: Iterable[Follower], at_once: int) -> str:
    """Say how many runs workers have before them, `at_once` of them at work, and how long these are to take.

    Empty where that is none, or the records have no earlier run.
    """
    followers = list(followers)
    for follower in followers:
        follower.news()
    left = sum(follower.runs_total - follower.runs_over for follower in followers)
    known = [seconds for _, seconds in _known(folder)]
    if not (left and known):
        return ""
    seconds = left * statistics.fmean(known) / max(1, at_once)
    return f"{counted(left, 'run')} to go, {Expected(seconds, seconds, len(known))}"


def _known(folder: CampaignFolder) -> Iterator[tuple[tuple[str, ...], float]]:
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


def _mean(known: Sequence[tuple[tuple[str, ...], float]], kind: tuple[str, ...]) -> float:
    alike = [seconds for other, seconds in known if other == kind]
    return statistics.fmean(alike or [seconds for _, seconds in known])
