"""Who makes the data of a campaign: this machine, the login node without being in others' way, or a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from campaign.cells.cell_plan import Entry
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError
from campaign.storage.to_make import ToMake, to_make
from jobs.model.conduct import Site

_LEAST_PRIORITY = 19
_UNITS_S = {"h": 3600.0, "min": 60.0, "s": 1.0}
_UNITS_BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6}
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Making:
    """What is to be made before cells are run, and by whom."""

    things: Sequence[ToMake]
    site: Site | None  # None: nothing is made on a login node

    @property
    def by_job(self) -> set[str]:
        """Ids of the cells whose data a job makes: they are more than the site lets a login node make unasked."""
        shared = [thing for thing in self.things if thing.shared]
        if self.site is None or self.site["make_data"] == "login":
            return set()
        is_too_much = sum(thing.bytes for thing in shared) > self.site["login_data_gb"] * 1e9
        return set().union(*(thing.cells for thing in shared)) if is_too_much else set()

    @property
    def needs_a_yes(self) -> bool:
        """Whether it is not done unasked."""
        return bool(self.by_job) and self.site is not None and self.site["make_data"] == "ask"

    def require_room(self) -> None:
        """Raise EnvironmentFaultError where something does not fit, before anything is made or submitted."""
        if lacks := dict.fromkeys(thing.no_room for thing in self.things if thing.no_room):
            raise EnvironmentFaultError("; ".join(lacks), "free some space, or name another storage, or smaller data")

    @property
    def lines(self) -> list[str]:
        """Say in one line for each thing what it is, how much, where and for how long."""
        return [self._line(thing) for thing in self.things]

    def _line(self, thing: ToMake) -> str:
        amount = (f"{thing.files:,} files, " if thing.files > 1 else "") + _amount(thing.bytes, _UNITS_BYTES)
        no_room = f"; IT DOES NOT FIT: {thing.no_room}" if thing.no_room else ""
        return f"to make: {thing.what}: {amount}, {thing.place}, {self._how(thing)}{no_room}"

    def _how(self, thing: ToMake) -> str:
        if self.site is None:
            cores = min(len(os.sched_getaffinity(0)), thing.files)
            return f"in about {_amount(thing.processor_s / cores, _UNITS_S)}"
        if not thing.shared:
            return "unless it is there, by each node that reads it"
        if thing.cells <= self.by_job:
            return (
                f"by a job before the others, in about {_amount(thing.processor_s, _UNITS_S)} of one of its processors"
            )
        processes = min(self.site["login_processes"], thing.files)
        who = f"by {processes} process{'es' * (processes > 1)} of nice {_LEAST_PRIORITY}"
        return f"on this login node {who}, in about {_amount(thing.processor_s / processes, _UNITS_S)}"


def making(entries: Sequence[Entry], site: Site | None) -> Making:
    """Find out what these cells lack; `site`: of a campaign on Slurm, None on a workstation."""
    return Making(to_make(entries), site)


def politely(make: Callable[[Progress], _Made], progress: Progress) -> _Made:
    """Call what makes data in a thread of the least priority, which the processes that it starts inherit.

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


def _amount(number: float, units: dict[str, float]) -> str:
    """Write a number in the largest unit of which it is one or more, with two digits that mean something."""
    unit, size = next((each for each in units.items() if number >= each[1]), list(units.items())[-1])
    return f"{max(number / size, 0.1):.{1 if number < 10 * size else 0}f} {unit}"
