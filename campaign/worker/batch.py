"""A batch: the work lists that were handed over together, and what became of their workers.

::

    workers/<token>-<number>/
      batch.json            what it is; written before the scheduler hears of it
      work-<index>.json     the work list of one worker
      ended.json            how workers ended that left cells behind, once anybody has found out
      cancelled.json        the workers whose jobs were cancelled by the verb; Slurm forgets those that waited
      job.sh                what sbatch gets
      …                     logs of the workers

A batch is found again by its folder, from any process on any day: nothing here depends on a job id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar

from campaign.cells.folder import CampaignFolder
from campaign.errors import EnvironmentFaultError
from campaign.worker.runner import tail
from jobs.model import reading
from jobs.model.codes import WorkerEnd
from jobs.system.files import write_json

_FILE = "batch.json"
_ENDED, _CANCELLED = "ended.json", "cancelled.json"
_OF_ANY_END = re.compile(
    r"srun: (error: \S+ task|Terminating)|slurmstepd\S*: (error: )?\*\*\*"
)  # Slurm's, below the cause
_LONGEST_LINE = 300
_Shape = TypeVar("_Shape")


class _Explained(TypedDict):
    message: str
    hint: str


class Fault(_Explained, total=False):
    """The error that ended a worker."""

    not_quiet: bool  # others disturbed its runs: another try may do better


class _Said(TypedDict):
    """``batch.json``."""

    cluster: str
    token: str
    job_name: str
    cells: list[list[str]]
    submitted_utc: str
    job_id: str | None
    refused: str | None


@dataclass(frozen=True)
class Batch:
    """One batch of workers."""

    folder: Path  # where it lies; on Slurm the jobs' working directory, and so their identity
    cluster: str  # ``slurm``, ``local`` or ``debug``
    token: str  # of the submission; every record and run names it
    job_name: str
    cells: list[list[str]]  # ids of the cells of each worker, in the order in which it takes them
    submitted_utc: str
    job_id: str | None = None  # what the scheduler called it; for people
    refused: str | None = None  # the scheduler's words, where it did not take it
    ended: dict[int, WorkerEnd] = field(default_factory=dict, compare=False)

    def work_list(self, index: int) -> Path:
        """Path of the work list of one worker."""
        return self.folder / f"work-{index}.json"

    @property
    def script(self) -> Path:
        """Path of the script that sbatch gets."""
        return self.folder / "job.sh"

    def fault(self, index: int) -> Fault | None:
        """Return the error that ended a worker, where it could leave it."""
        with suppress(OSError, ValueError):
            return reading.read(self.work_list(index).with_suffix(".error.json"), Fault)
        return None

    def last_words(self, index: int) -> str:
        """Return the last telling line of one worker's log, and the log's path; empty where there is none."""
        logs = sorted(self.folder.glob(f"*_{index}_0_log.err" if self.cluster == "slurm" else "*_log.err"))
        lines = [line for line in tail(logs[-1]).splitlines() if line.strip()] if logs else []
        telling = [line for line in lines if not _OF_ANY_END.match(line)] or lines
        return f"{telling[-1][:_LONGEST_LINE]} ({logs[-1]})" if telling else ""

    def save(self) -> None:
        """Write ``batch.json``; its folder is made where there is none."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        values = asdict(self)
        write_json(self.folder / _FILE, {key: values[key] for key in values if key not in ("folder", "ended")})

    def save_ends(self, ends: Mapping[int, WorkerEnd]) -> None:
        """Keep how workers ended: the scheduler forgets."""
        new = {index: end for index, end in ends.items() if index not in self.ended}
        if new:
            self.ended.update(new)
            write_json(self.folder / _ENDED, {str(index): end for index, end in self.ended.items()})

    def save_cancelled(self, indices: Iterable[int]) -> None:
        """Keep that the jobs of these workers are cancelled, with those before."""
        write_json(self.folder / _CANCELLED, sorted({*indices, *self.cancelled()}))

    def cancelled(self) -> list[int]:
        """List the workers whose jobs were cancelled by the verb, as it is written by now."""
        with suppress(OSError, ValueError):
            return reading.read(self.folder / _CANCELLED, list[int])
        return []

    def open_workers(self) -> list[int]:
        """List the workers that have not ended, as far as is known."""
        return [] if self.refused else [index for index in range(len(self.cells)) if index not in self.ended]


def read_all(folder: CampaignFolder) -> list[Batch]:
    """Read every batch of a campaign, oldest first."""
    found = [_read(path.parent) for path in folder.workers.glob(f"*/{_FILE}")]
    # Of one submission the longer name has the larger number: token-10 comes after token-9.
    return sorted(found, key=lambda batch: (batch.submitted_utc, len(batch.folder.name), batch.folder.name))


def latest(batches: list[Batch]) -> dict[str, tuple[Batch, int]]:
    """Return the batch and the worker that had each cell last."""
    return {cell: (batch, index) for batch in batches for index, cells in enumerate(batch.cells) for cell in cells}


def _read(folder: Path) -> Batch:
    said = read_file(folder / _FILE, _Said)
    batch = Batch(folder, **{key: said.get(key) for key in _Said.__annotations__})  # type: ignore[arg-type] # as read
    if (folder / _ENDED).exists():
        ended = read_file(folder / _ENDED, dict[str, WorkerEnd])
        batch.ended.update((int(index), end) for index, end in ended.items() if index.isdecimal())
    return batch


def read_file(path: Path, shape: type[_Shape]) -> _Shape:
    """Read a file of a batch.

    Raises
    ------
    EnvironmentFaultError
        It is missing or damaged.
    """
    try:
        return reading.read(path, shape)
    except (OSError, ValueError) as error:
        raise EnvironmentFaultError(
            f"{path} is damaged: {error}", "move its folder away; the records are complete without it"
        ) from error
