"""How many cells a job takes, and for how many minutes, by what earlier runs took: ``cluster.pack``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from campaign import console
from campaign.cells.cell_plan import Entry
from campaign.cluster import price, submission
from campaign.console import counted
from campaign.slurm import client
from campaign.worker.work_list import Request
from jobs.model.conduct import Cluster

_JOB_S = 1800  # of runs in a job, at most: beside it a start is nothing, and a requeue repeats little
_ROOM = 2  # times what is expected
_START_MIN = 5  # more: a first import of TensorFlow from a busy network file system takes minutes
_WORTH = 0.5  # of the node-hours that are asked for: a proposal asks for no more


@dataclass(frozen=True)
class Packing:
    """Jobs for the same cells that ask for fewer node-hours; both numbers of hours are at most."""

    request: Request  # with its cells_per_job and timeout_min
    jobs: int
    job_s: float  # seconds that the longest of them is expected to take
    hours: float
    hours_before: float

    def __str__(self) -> str:
        """Say it in one line."""
        cluster = self.request.conduct["cluster"]
        return (
            f"{counted(self.jobs, 'job')} of {cluster['cells_per_job']} cells and at most {cluster['timeout_min']} min "
            f"(about {math.ceil(self.job_s / 60)} min expected): {price.two_digits(self.hours)} node-hours at most "
            f"instead of {price.two_digits(self.hours_before)}"
        )


def cheaper(todo: Sequence[Entry], request: Request, facts: client.Facts) -> Packing | None:
    """Return a packing of these cells that asks for less; None where there is none, or no earlier run is recorded."""
    times, cluster = price.RunTimes(request.folder), request.conduct["cluster"]
    if not times.number:
        return None
    warmups = request.conduct["warmup_runs"]
    seconds = {entry.cell.id: (entry.at_most + warmups) * times.run_s(entry.cell.settings) for entry in todo}
    most = max(1, int(min(_JOB_S, cluster["timeout_min"] * 60 / _ROOM) // max(seconds.values())))
    cells_per_job = math.ceil(len(todo) / math.ceil(len(todo) / most))  # the same number in each
    arrays = submission.arrays(todo, _with(request, cells_per_job, cluster["timeout_min"]), facts.tasks_at_most)
    tasks = [task for array in arrays for task in array.tasks]
    job_s = price.START_S + max(sum(seconds[entry.cell.id] for entry in task) for task in tasks)
    minutes = math.ceil((_ROOM * job_s + cluster["signal_delay_s"]) / 60) + _START_MIN
    packed = _with(request, cells_per_job, min(minutes, cluster["timeout_min"]))
    before, after = (
        sum(array.node_hours for array in submission.arrays(todo, each, facts.tasks_at_most))
        for each in (request, packed)
    )
    return Packing(packed, len(tasks), job_s, after, before) if after < before else None


def applied(todo: Sequence[Entry], request: Request, facts: client.Facts) -> Request:
    """Return the request as it is submitted: with ``cluster.pack=true`` packed, where that asks for less."""
    if not request.conduct["cluster"]["pack"]:
        return request
    packing = cheaper(todo, request, facts)
    if packing is None:
        console.say("cluster.pack=true changes nothing: no earlier run is recorded, or the jobs ask for no more")
        return request
    console.say(f"cluster.pack=true: {packing}")
    return packing.request


def propose(todo: Sequence[Entry], request: Request, facts: client.Facts) -> None:
    """Say what ``cluster.pack=true`` would save, where that is half of what is asked for or more."""
    packing = None if request.conduct["cluster"]["pack"] else cheaper(todo, request, facts)
    if packing and packing.hours <= _WORTH * packing.hours_before:
        console.say(f"far more than the runs take; cluster.pack=true submits {packing}")


def _with(request: Request, cells_per_job: int, timeout_min: int) -> Request:
    cluster: Cluster = {**request.conduct["cluster"], "cells_per_job": cells_per_job, "timeout_min": timeout_min}
    return dataclasses.replace(request, conduct={**request.conduct, "cluster": cluster})
