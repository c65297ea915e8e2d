"""Store a batch in a folder: the work lists that are submitted together, and how their workers ended.

::

    workers/<token>-<number>/
      batch.json            the batch and the cells of the workers; written before the submission
      work-<index>.json     the work list of one worker
      ended.json            how workers ended
      cancelled.json        the workers whose jobs `cancel` ended, because Slurm forgets jobs that never started
      job.sh                the batch script for sbatch
      …                     logs of the workers

Later commands find a batch by its folder, and need no job id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, TypeVar

from campaign.cells.cell_plan import PlannedCell
from campaign.cells.folder import CampaignFolder
from campaign.errors import CampaignError, EnvironmentFaultError, NotQuietError, environment_fault
from campaign.storage import checkpoint_targets
from campaign.worker.runner import last_lines
from jobs.model import reading
from jobs.model.codes import WorkerEnd
from jobs.model.conduct import SBATCH_TEXTS, Conduct
from jobs.model.record import SITE_LIMIT_NAMES, Data
from jobs.model.work import ListedItem, WorkList
from jobs.system.files import resolve_links, write_json

_FILE = "batch.json"
_ENDED, _CANCELLED = "ended.json", "cancelled.json"
# Lines that Slurm writes at the end of a log, after the line with the cause of a failure. A line like
# "srun: error: n1: task 0: Killed" is itself the cause: a killed worker writes nothing.
_SLURM_LINES = re.compile(r"srun: (error: \S+ tasks? \S+ Exited|(Force )?Terminat)|slurmstepd\S*: (error: )?\*\*\*")
_LONGEST_LINE = 300
_Shape = TypeVar("_Shape")


class WorkerFault(TypedDict):
    """The error that ended a worker, as stored in the worker's error file."""

    message: str
    hint: str
    not_quiet: NotRequired[bool]  # whether other programs disturbed the runs, so that another try may succeed


def describe_fault(error: CampaignError | OSError) -> WorkerFault:
    """Return the content of the error file for an error that stops the worker."""
    if isinstance(error, CampaignError):
        fault: WorkerFault = {"message": error.message, "hint": error.hint}
        return {**fault, "not_quiet": True} if isinstance(error, NotQuietError) else fault
    cure = "correct this error; `python -m campaign doctor` checks the folders on a node"
    explained = environment_fault(error, cure=cure)
    return {"message": f"the worker cannot continue: {explained.message}", "hint": explained.hint}


class _BatchFile(TypedDict):
    """The content of ``batch.json``."""

    cluster: str
    token: str
    job_name: str
    cells: list[list[str]]
    submitted_utc: str
    job_id: str | None
    refused: str | None


@dataclass(frozen=True)
class Batch:
    """A batch: one or more workers that were submitted together, for example the tasks of a Slurm array job."""

    folder: Path  # on Slurm also the working directory of the jobs, by which the jobs are found
    cluster: str  # ``slurm``, ``local`` or ``debug``
    token: str  # the token of the submission, which is also in every record and run
    job_name: str
    cells: list[list[str]]  # cell ids of each worker, in the order in which the worker runs the cells
    submitted_utc: str
    job_id: str | None = None  # Slurm's job id, used only in messages
    refused: str | None = None  # Slurm's message if Slurm refused the jobs, else None
    ended: dict[int, WorkerEnd] = field(default_factory=dict, compare=False)  # how workers ended, by worker index

    def work_list(self, index: int) -> Path:
        """Return the path of the work list of the worker with the index `index`."""
        return self.folder / f"work-{index}.json"

    @property
    def script(self) -> Path:
        """Return the path of the batch script for sbatch."""
        return self.folder / "job.sh"

    def worker_error(self, index: int) -> WorkerFault | None:
        """Return the error that ended a worker, or None if the worker wrote no error file."""
        with suppress(OSError, ValueError):
            return reading.read_json(self.work_list(index).with_suffix(".error.json"), WorkerFault)
        return None

    def last_log_line(self, index: int, node: str | None = None) -> str:
        """Return the last line of a worker's log and the path of the log, or an empty text if there is no line.

        Lines that Slurm has written are skipped. If a job left no log on `node`, return a question about the folder.
        """
        logs = sorted(self.folder.glob(f"*_{index}_0_log.err" if self.cluster == "slurm" else "*_log.err"))
        if node and not logs:
            return f"it left no log: is {self.folder} visible on {node}?"
        lines = [line for line in last_lines(logs[-1]).splitlines() if line.strip()] if logs else []
        own_lines = [line for line in lines if not _SLURM_LINES.match(line)] or lines
        return f"{own_lines[-1][:_LONGEST_LINE]} ({logs[-1]})" if own_lines else ""

    @property
    def file(self) -> Path:
        """Return the path of ``batch.json``."""
        return self.folder / _FILE

    def save(self) -> None:
        """Write the batch to ``batch.json``; create the folder of the batch if it is missing."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        values = asdict(self)
        write_json(self.file, {key: values[key] for key in values if key not in ("folder", "ended")})

    def save_ends(self, ends: Mapping[int, WorkerEnd]) -> None:
        """Add to ``ended.json`` how workers ended, because Slurm forgets ended jobs."""
        new = {index: end for index, end in ends.items() if index not in self.ended}
        if new:
            self.ended.update(new)
            write_json(self.folder / _ENDED, {str(index): end for index, end in self.ended.items()})

    def save_cancelled(self, indices: Iterable[int]) -> None:
        """Add to ``cancelled.json`` the indices of workers whose jobs `cancel` has ended."""
        write_json(self.folder / _CANCELLED, sorted({*indices, *self.cancelled_workers()}))

    def cancelled_workers(self) -> list[int]:
        """Return the indices of the workers whose jobs `cancel` has ended, from ``cancelled.json``."""
        with suppress(OSError, ValueError):
            return reading.read_json(self.folder / _CANCELLED, list[int])
        return []

    def open_workers(self) -> list[int]:
        """Return the indices of the open workers; a worker is open until its end is recorded in the batch."""
        return [] if self.refused else [index for index in range(len(self.cells)) if index not in self.ended]


def read_batches(folder: CampaignFolder) -> list[Batch]:
    """Return all batches of a campaign, the oldest batch first."""
    batches = [_read_batch(path.parent) for path in folder.workers.glob(f"*/{_FILE}")]
    # The length of the name is part of the key, so that token-10 comes after token-9.
    return sorted(batches, key=lambda batch: (batch.submitted_utc, len(batch.folder.name), batch.folder.name))


def last_workers(batches: list[Batch]) -> dict[str, tuple[Batch, int]]:
    """Return for each cell id the last batch and the index of the last worker that had the cell."""
    return {cell: (batch, index) for batch in batches for index, cells in enumerate(batch.cells) for cell in cells}


def _read_batch(folder: Path) -> Batch:
    content = read_file(folder / _FILE, _BatchFile)
    batch = Batch(folder, **{key: content.get(key) for key in _BatchFile.__annotations__})  # type: ignore[arg-type] # as read
    if (folder / _ENDED).exists():
        ended = read_file(folder / _ENDED, dict[str, WorkerEnd])
        batch.ended.update((int(index), end) for index, end in ended.items() if index.isdecimal())
    return batch


def read_file(path: Path, shape: type[_Shape]) -> _Shape:
    """Return the content of a JSON file of a batch, checked against the type `shape`.

    Raises
    ------
    EnvironmentFaultError
        The file is missing or damaged.
    """
    try:
        return reading.read_json(path, shape)
    except (OSError, ValueError) as error:
        raise EnvironmentFaultError(
            f"{path} is damaged: {error}", "move the folder of this file away; the records are complete without it"
        ) from error


_SLURM_OPTIONS = {*SBATCH_TEXTS, "modules", "prelude", "extra"}


@dataclass(frozen=True)
class CampaignCall:
    """One call of the command `run`: the user's overrides, and the settings of how the campaign runs."""

    folder: CampaignFolder
    conduct: Conduct
    token: str  # eight hexadecimal digits that identify this submission
    utc: str  # time of the call; if two workers have the same cell, the worker of the later call runs it
    words: Sequence[str]  # the overrides as the user typed them, or as a verb made them
    command: Sequence[str] = ()  # the verb and the arguments that the user typed, if the verb made `words`
    attempt: int = 0  # number of the retry (``retries``)
    first_token: str = ""  # token of the campaign's first call; empty if this is the first call

    @property
    def campaign_id(self) -> str:
        """Return the unique id of this campaign, which its snapshots in a bucket need."""
        return checkpoint_targets.campaign_id(self.folder, self.first_token or self.token)

    def work_list(
        self, cluster: str, entries: Sequence[PlannedCell], data: Mapping[str, Data | None], first: int = 0
    ) -> WorkList:
        """Return the work list of a worker that runs the cells `entries`.

        `cluster` is ``slurm``, ``local`` or ``debug``. `data` is the dataset of each cell id, or None if the worker
        makes the dataset. `first` is the position of the first entry in the shuffled order of the whole submission.
        """
        return {
            "token": self.token,
            "words": list(self.words),
            "submitted_utc": self.utc,
            "attempt": self.attempt,
            "campaign_dir": str(self.folder.root),
            "campaign_id": self.campaign_id,
            "cluster": cluster,
            "conduct": _conduct_for_worker(self.conduct),
            "cells": [_listed_item(entry, position, data) for position, entry in enumerate(entries, start=first)],
        }


def _conduct_for_worker(conduct: Conduct) -> Conduct:
    """Return the conduct without the options for Slurm, which a worker does not need.

    These options may contain a secret of the user (``${oc.env:…}``).
    """
    cluster = {key: value for key, value in conduct["cluster"].items() if key not in _SLURM_OPTIONS}
    site = {key: value for key, value in conduct["site"].items() if key in ("name", *SITE_LIMIT_NAMES)}
    return {**conduct, "cluster": cluster, "site": site}


def _listed_item(entry: PlannedCell, position: int, data: Mapping[str, Data | None]) -> ListedItem:
    """Return the item of a cell in a work list."""
    cell = entry.cell
    return {
        "id": cell.id,
        "benchmark": cell.benchmark,
        "version": cell.version,
        "settings": cell.settings,
        "access": {**cell.access},
        "dataset": data[cell.id],
        "root": str(resolve_links(root)) if (root := cell.settings["storage"].get("root")) else None,
        "targets": checkpoint_targets.target_roots(cell.settings),
        "position": position,
        "missing": entry.missing,
        "at_most": entry.at_most,
    }
