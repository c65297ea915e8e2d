"""Choose the machine for each task: Slurm or this machine for the cells, a login node or a job to make their data."""

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
from campaign.cells.cell_plan import PlannedCell
from campaign.console import Progress
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.slurm import client
from campaign.storage.made_data import MissingData, missing_data
from jobs.model.conduct import Conduct, Site


def choose_cluster(cells: Iterable[Cell], conduct: Conduct, *, quiet: bool = False) -> str:
    """Return ``slurm``, ``local`` or ``debug``.

    ``auto`` means Slurm on a machine that can submit to a Slurm cluster, else this machine. The choice for ``auto`` is
    printed, unless `quiet` is true.
    """
    name = str(conduct["cluster"]["name"])
    if name == "auto":
        name = "slurm" if client.has_cluster() else "local"
        if not quiet:
            console.say(f"cluster=auto: {'Slurm' if name == 'slurm' else 'this machine (there is no Slurm cluster)'}")
    if conduct["detach"] and name != "slurm":
        raise UsageError("detach=true needs Slurm, but the cells run on this machine", "nohup python -m campaign … &")
    if name == "slurm":
        _check_roots(cells)
    return name


def _check_roots(cells: Iterable[Cell]) -> None:
    """Raise UsageError for a relative ``storage.root`` with ``storage.shared=false``.

    A job's working directory is a folder of the campaign, so a relative root would lie in that shared folder.
    """
    for cell in cells:
        storage = cell.settings["storage"]
        if not cell.access["shared"] and storage["root"] and not Path(storage["root"]).expanduser().is_absolute():
            raise UsageError(
                f"storage.shared=false needs an absolute storage.root, but storage={storage['name']} has "
                f"{storage['root']}",
                "set storage.root=/… to the path of a folder on the local disk of every node",
            )


_LEAST_PRIORITY = 19
_UNITS_S = {"h": 3600.0, "min": 60.0, "s": 1.0}
_UNITS_BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6}
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class DataPlan:
    """The data sets that must be made before cells run, and the machine that makes the data sets."""

    data_sets: Sequence[MissingData]
    site: Site | None  # None on a workstation, that is without Slurm

    @property
    def cells_with_data_by_job(self) -> set[str]:
        """Return the ids of the cells whose data a Slurm job makes.

        A job makes the data if the site does not allow its login node to make so many bytes.
        """
        shared = [data_set for data_set in self.data_sets if data_set.shared]
        if self.site is None or self.site["make_data"] == "login":
            return set()
        is_too_much = sum(data_set.bytes for data_set in shared) > self.site["login_data_gb"] * 1e9
        return set().union(*(data_set.cells for data_set in shared)) if is_too_much else set()

    @property
    def needs_consent(self) -> bool:
        """Return whether the user must agree to a job that makes data."""
        return bool(self.cells_with_data_by_job) and self.site is not None and self.site["make_data"] == "ask"

    def require_room(self) -> None:
        """Raise EnvironmentFaultError if a data set does not fit on its storage."""
        if faults := dict.fromkeys(data_set.no_room for data_set in self.data_sets if data_set.no_room):
            raise EnvironmentFaultError("; ".join(faults), "free some space, or choose another storage or smaller data")

    @property
    def lines(self) -> list[str]:
        """Return one line per data set: its content, size and folder, and which machine makes it in which time."""
        return [self._describe_data(data_set) for data_set in self.data_sets]

    def _describe_data(self, data_set: MissingData) -> str:
        amount = (f"{data_set.files:,} files, " if data_set.files > 1 else "") + _format_amount(
            data_set.bytes, _UNITS_BYTES
        )
        no_room = f"; IT DOES NOT FIT: {data_set.no_room}" if data_set.no_room else ""
        return (
            f"to make: {data_set.description}: {amount}, {data_set.place}, {self._describe_making(data_set)}{no_room}"
        )

    def _describe_making(self, data_set: MissingData) -> str:
        if self.site is None:
            cores = min(len(os.sched_getaffinity(0)), data_set.files)
            return f"in about {_format_amount(data_set.processor_s / cores, _UNITS_S)}"
        if not data_set.shared:
            return "by each node that reads the data set, unless the node has the data set already"
        if data_set.cells <= self.cells_with_data_by_job:
            seconds = _format_amount(data_set.processor_s, _UNITS_S)
            return f"by a job before the other jobs, in about {seconds} of processor time"
        processes = min(self.site["login_processes"], data_set.files)
        makers = f"by {processes} process{'es' * (processes > 1)} of nice {_LEAST_PRIORITY}"
        return f"on this login node {makers}, in about {_format_amount(data_set.processor_s / processes, _UNITS_S)}"


def plan_data(entries: Sequence[PlannedCell], site: Site | None) -> DataPlan:
    """Return the data sets that the cells lack; `site` is the site of the Slurm cluster, or None without Slurm."""
    return DataPlan(missing_data(entries), site)


def call_with_least_priority(make: Callable[[Progress], _Result], progress: Progress) -> _Result:
    """Call the function `make`, which makes data, in a thread of the lowest priority.

    The processes that the thread starts inherit this priority. The main thread keeps its priority for two reasons.
    Slurm may give the priority of the submitting process to jobs (PropagatePrioProcess), and a user cannot raise a
    lowered priority again.
    """
    is_stopped = False

    def report(what: str, done: int, total: int, detail: str) -> None:
        if is_stopped:
            raise KeyboardInterrupt
        progress(what, done, total, detail)

    # On Linux, setpriority(2) changes the priority of the calling thread only.
    lower = partial(os.setpriority, os.PRIO_PROCESS, 0, _LEAST_PRIORITY)
    with ThreadPoolExecutor(1, "make data", initializer=lower) as thread:
        try:
            return thread.submit(make, report).result()
        except BaseException:
            is_stopped = True
            raise


def _format_amount(number: float, units: dict[str, float]) -> str:
    """Return a number with its unit, in the largest unit that is not larger than the number."""
    unit, size = next((item for item in units.items() if number >= item[1]), list(units.items())[-1])
    return f"{max(number / size, 0.1):.{1 if number < 10 * size else 0}f} {unit}"
