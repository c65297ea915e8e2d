"""Who makes the data of a campaign: this machine, the login node without being in others' way, or a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from campaign.cells.contract import Site
from campaign.cells.plan import Entry
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError
from campaign.storage.to_make import ToMake, to_make

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
    def bytes(self) -> int:
        """Bytes of what the login node would make."""
        return sum(each.lacking.bytes for each in self.things if each.shared)

    @property
    def is_too_much(self) -> bool:
        """Whether that is more than the site lets a login node make unasked."""
        return self.site is not None and self.bytes > self.site["login_data_gb"] * 1e9

    @property
    def by_job(self) -> set[str]:
        """Ids of the cells whose data a job makes."""
        if self.site is None or not self.is_too_much or self.site["make_data"] == "login":
            return set()
        return set().union(*(each.cells for each in self.things if each.shared))

    @property
    def needs_a_yes(self) -> bool:
        """Whether it is not done unasked."""
        return bool(self.by_job) and self.site is not None and self.site["make_data"] == "ask"

    def require_room(self) -> None:
        """Raise EnvironmentFaultError where something does not fit, before anything is made or submitted."""
        lacks = dict.fromkeys(each.lacking.lack for each in self.things if each.lacking.lack)
        if self.site is not None and lacks:
            raise EnvironmentFaultError("; ".join(lacks), "free some space, or name another storage, or smaller data")

    @property
    def lines(self) -> list[str]:
        """Say in one line for each thing what it is, how much, where and for how long."""
        return [self._line(thing) for thing in self.things]

    def _line(self, thing: ToMake) -> str:
        found = thing.lacking
        amount = (f"{found.files:,} files, " if found.files > 1 else "") + _amount(found.bytes, _UNITS_BYTES)
        lack = f"; IT DOES NOT FIT: {found.lack}" if found.lack else ""
        return f"to make: {found.what}: {amount}, {found.place}, {self._how(thing)}{lack}"

    def _how(self, thing: ToMake) -> str:
        took_s, cores = thing.lacking.processor_s, len(os.sched_getaffinity(0))
        if self.site is None:
            return f"in about {_amount(took_s / min(cores, thing.lacking.files), _UNITS_S)}"
        if not thing.shared:
            return "unless it is there, by each node that reads it"
        if thing.cells <= self.by_job:
            return f"by a job before the others, in about {_amount(took_s, _UNITS_S)} of one of its processors"
        most = min(self.site["login_processes"], thing.lacking.files)
        who = f"by {most} process{'es' * (most > 1)} of nice {_LEAST_PRIORITY}"
        return f"on this login node {who}, in about {_amount(took_s / most, _UNITS_S)}"


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
