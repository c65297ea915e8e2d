"""Decide where the work is done: on which cluster cells run, and which machine makes their data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from campaign import console
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import Entry
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.slurm import client
from campaign.storage.made_data import ToMake, to_make
from jobs.model.conduct import Conduct, Site


def choose_cluster(cells: Iterable[Cell], conduct: Conduct, *, quiet: bool = False) -> str:
    """Return ``slurm``, ``local`` or ``debug``; ``auto`` is Slurm on a machine that submits to a Slurm cluster.

    What ``auto`` is, is said unless the caller says it for many campaigns at once (`quiet`).
    """
    name = str(conduct["cluster"]["name"])
    if name == "auto":
        name = "slurm" if client.has_cluster() else "local"
        if not quiet:
            console.say(f"cluster=auto: {'Slurm' if name == 'slurm' else 'this machine (there is no Slurm cluster)'}")
    if conduct["detach"] and name != "slurm":
        raise UsageError("detach=true: there is no Slurm here to leave the work to", "nohup python -m campaign … &")
    if name == "slurm":
        _check_roots(cells)
    return name


def _check_roots(cells: Iterable[Cell]) -> None:
    """Refuse a relative root that each node has for itself: a job starts in a folder of the campaign."""
    for cell in cells:
        storage = cell.settings["storage"]
        if not cell.access["shared"] and not Path(storage["root"]).expanduser().is_absolute():
            raise UsageError(
                f"storage.shared=false needs an absolute storage.root, and storage={storage['name']} has "
                f"{storage['root']}",
                "storage.root=/… with a folder that every node has for itself",
            )


_LEAST_PRIORITY = 19
_UNITS_S = {"h": 3600.0, "min": 60.0, "s": 1.0}
_UNITS_BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6}
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class DataPlan:
    """The data sets to make before cells run, and the machine that makes them."""

    data_sets: Sequence[ToMake]
    site: Site | None  # None: nothing is made on a login node

    @property
    def by_job(self) -> set[str]:
        """Return the ids of the cells whose data a job makes: more than the site lets a login node make unasked."""
        shared = [thing for thing in self.data_sets if thing.shared]
        if self.site is None or self.site["make_data"] == "login":
            return set()
        is_too_much = sum(thing.bytes for thing in shared) > self.site["login_data_gb"] * 1e9
        return set().union(*(thing.cells for thing in shared)) if is_too_much else set()

    @property
    def needs_consent(self) -> bool:
        """Return whether the user must agree to a job that makes data."""
        return bool(self.by_job) and self.site is not None and self.site["make_data"] == "ask"

    def require_room(self) -> None:
        """Raise EnvironmentFaultError where a data set does not fit, before anything is made or submitted."""
        if lacks := dict.fromkeys(thing.no_room for thing in self.data_sets if thing.no_room):
            raise EnvironmentFaultError("; ".join(lacks), "free some space, or name another storage, or smaller data")

    @property
    def lines(self) -> list[str]:
        """Return one line per data set: its content, amount, place, and the time that it takes."""
        return [self._describe(thing) for thing in self.data_sets]

    def _describe(self, thing: ToMake) -> str:
        amount = (f"{thing.files:,} files, " if thing.files > 1 else "") + _format_amount(thing.bytes, _UNITS_BYTES)
        no_room = f"; IT DOES NOT FIT: {thing.no_room}" if thing.no_room else ""
        return f"to make: {thing.what}: {amount}, {thing.place}, {self._describe_making(thing)}{no_room}"

    def _describe_making(self, thing: ToMake) -> str:
        if self.site is None:
            cores = min(len(os.sched_getaffinity(0)), thing.files)
            return f"in about {_format_amount(thing.processor_s / cores, _UNITS_S)}"
        if not thing.shared:
            return "unless it is there, by each node that reads it"
        if thing.cells <= self.by_job:
            seconds = _format_amount(thing.processor_s, _UNITS_S)
            return f"by a job before the others, in about {seconds} of one of its processors"
        processes = min(self.site["login_processes"], thing.files)
        who = f"by {processes} process{'es' * (processes > 1)} of nice {_LEAST_PRIORITY}"
        return f"on this login node {who}, in about {_format_amount(thing.processor_s / processes, _UNITS_S)}"


def plan_data(entries: Sequence[Entry], site: Site | None) -> DataPlan:
    """Return the data that these cells lack; `site` is that of a campaign on Slurm, None on a workstation."""
    return DataPlan(to_make(entries), site)


def call_with_least_priority(make: Callable[[Progress], _Made], progress: Progress) -> _Made:
    """Call a function that makes data in a thread of the least priority, which its processes inherit.

    This process itself keeps its own: Slurm may hand it on to jobs (PropagatePrioProcess), and nobody gets it back.
    """
    stopped = False

    def show(what: str, done: int, total: int, of_what: str) -> None:
        if stopped:
            raise KeyboardInterrupt
        progress(what, done, total, of_what)

    # setpriority(2): on Linux of the calling thread.
    lower = partial(os.setpriority, os.PRIO_PROCESS, 0, _LEAST_PRIORITY)
    with ThreadPoolExecutor(1, "make data", initializer=lower) as thread:
        try:
            return thread.submit(make, show).result()
        except BaseException:
            stopped = True
            raise


def _format_amount(number: float, units: dict[str, float]) -> str:
    """Return a number in the largest unit of which it is one or more, with two significant digits."""
    unit, size = next((each for each in units.items() if number >= each[1]), list(units.items())[-1])
    return f"{max(number / size, 0.1):.{1 if number < 10 * size else 0}f} {unit}"
