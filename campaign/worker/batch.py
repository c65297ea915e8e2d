"""A batch: the work lists that were handed over together, and what became of their workers.

::

    workers/<token>-<number>/
      batch.json            what it is; written before the scheduler hears of it
      work-<index>.json     the work list of one worker
      ended.json            how workers ended that left cells behind, once anybody has found out
      …                     submitit's script, logs of the workers

A batch is found again by its folder, from any process on any day: nothing here depends on a job id.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from campaign.errors import EnvironmentFaultError
from jobs.system import versioned
from jobs.system.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from campaign.cells.folder import CampaignFolder

_FILE = "batch.json"
_ENDED = "ended.json"


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
    ended: dict[int, str] = field(default_factory=dict, compare=False)

    def work_list(self, index: int) -> Path:
        """Path of the work list of one worker."""
        return self.folder / f"work-{index}.json"

    def fault(self, index: int) -> dict[str, str] | None:
        """Return ``message`` and ``hint`` of the error that ended a worker, where it could leave them."""
        try:
            left = versioned.load(self.work_list(index).with_suffix(".error.json"))
            return {key: str(left[key]) for key in ("message", "hint")}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self) -> None:
        """Write ``batch.json``; its folder is made where there is none."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        values = asdict(self)
        write_json(self.folder / _FILE, {key: values[key] for key in values if key not in ("folder", "ended")})

    def save_ends(self, ends: Mapping[int, str]) -> None:
        """Keep how workers ended: the scheduler forgets."""
        new = {index: why for index, why in ends.items() if index not in self.ended}
        if new:
            self.ended.update(new)
            write_json(self.folder / _ENDED, {str(index): why for index, why in self.ended.items()})

    def open_workers(self) -> list[int]:
        """List the workers of which nobody has found out yet that they ended."""
        return [] if self.refused else [index for index in range(len(self.cells)) if index not in self.ended]


def read_all(folder: CampaignFolder) -> list[Batch]:
    """Read every batch of a campaign, oldest first."""
    found = [_read(path.parent) for path in folder.workers.glob(f"*/{_FILE}")]
    # Of one submission the longer name has the larger number: token-10 comes after token-9.
    return sorted(found, key=lambda batch: (batch.submitted_utc, len(batch.folder.name), batch.folder.name))


def latest(batches: list[Batch]) -> Iterator[tuple[str, Batch, int]]:
    """Yield each cell with the batch and the worker that had it last."""
    last = {cell: (batch, index) for batch in batches for index, cells in enumerate(batch.cells) for cell in cells}
    for cell, (batch, index) in last.items():
        yield cell, batch, index


def _read(folder: Path) -> Batch:
    path = folder / _FILE
    try:
        values: dict[str, Any] = versioned.load(path)
        batch = Batch(folder=folder, **values)
        _check(batch)
        if (folder / _ENDED).exists():
            ended = versioned.load(folder / _ENDED)
            batch.ended.update({int(index): str(why) for index, why in ended.items()})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise EnvironmentFaultError(
            f"{path} is damaged: {error}", "move its folder away; the records are complete without it"
        ) from error
    return batch


def _check(batch: Batch) -> None:
    """Raise ValueError where a file that parses describes no batch."""
    cells: Any = batch.cells
    lists = isinstance(cells, list) and all(isinstance(worker, list) for worker in cells)
    if not lists or not all(isinstance(cell, str) for worker in cells for cell in worker):
        raise ValueError("its cells are not lists of names")
    if not isinstance(batch.submitted_utc, str):
        raise ValueError("it does not say when it was submitted")  # noqa: TRY004 - of a file, not of a caller
