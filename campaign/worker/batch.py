"""Store a batch: the work lists that are submitted together, and how their workers ended.

::

    workers/<token>-<number>/
      batch.json            the batch and the cells of its workers; written before the submission
      work-<index>.json     the work list of one worker
      ended.json            the known ends of workers
      cancelled.json        the workers whose jobs the verb `cancel` ended; Slurm forgets a job that never started
      job.sh                the script for sbatch
      …                     logs of the workers

Any later process finds a batch by its folder; nothing here depends on a job id.
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
from campaign.errors import EnvironmentFaultError
from campaign.storage import checkpoint_targets
from campaign.worker.runner import last_lines
from jobs.model import reading
from jobs.model.codes import WorkerEnd
from jobs.model.conduct import Conduct
from jobs.model.record import OF_SITE, Data
from jobs.model.work import ListedItem, WorkList
from jobs.system.files import write_json

_FILE = "batch.json"
_ENDED, _CANCELLED = "ended.json", "cancelled.json"
# Lines that Slurm writes into a log below the cause.
_SLURM_LINES = re.compile(r"srun: (error: \S+ task|Terminating)|slurmstepd\S*: (error: )?\*\*\*")
_LONGEST_LINE = 300
_Shape = TypeVar("_Shape")


class WorkerFault(TypedDict):
    """The error that ended a worker."""

    message: str
    hint: str
    not_quiet: NotRequired[bool]  # others disturbed its runs: another try may succeed


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
    """A batch of workers."""

    folder: Path  # on Slurm also the working directory of its jobs, which identifies them
    cluster: str  # ``slurm``, ``local`` or ``debug``
    token: str  # of the submission; every record and run names it
    job_name: str
    cells: list[list[str]]  # ids of the cells of each worker, in the order in which it runs them
    submitted_utc: str
    job_id: str | None = None  # Slurm's id, for messages
    refused: str | None = None  # Slurm's message, if it refused the jobs
    ended: dict[int, WorkerEnd] = field(default_factory=dict, compare=False)

    def work_list(self, index: int) -> Path:
        """Return the path of the work list of one worker."""
        return self.folder / f"work-{index}.json"

    @property
    def script(self) -> Path:
        """Return the path of the script that sbatch gets."""
        return self.folder / "job.sh"

    def fault(self, index: int) -> WorkerFault | None:
        """Return the error that ended a worker; None without an error."""
        with suppress(OSError, ValueError):
            return reading.read_json(self.work_list(index).with_suffix(".error.json"), WorkerFault)
        return None

    def last_words(self, index: int) -> str:
        """Return the last line of a worker's log that is not Slurm's, with the path of the log; empty if none."""
        logs = sorted(self.folder.glob(f"*_{index}_0_log.err" if self.cluster == "slurm" else "*_log.err"))
        lines = [line for line in last_lines(logs[-1]).splitlines() if line.strip()] if logs else []
        own_lines = [line for line in lines if not _SLURM_LINES.match(line)] or lines
        return f"{own_lines[-1][:_LONGEST_LINE]} ({logs[-1]})" if own_lines else ""

    def save(self) -> None:
        """Write ``batch.json``, and make its folder if there is none."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        values = asdict(self)
        write_json(self.folder / _FILE, {key: values[key] for key in values if key not in ("folder", "ended")})

    def save_ends(self, ends: Mapping[int, WorkerEnd]) -> None:
        """Add the ends of workers to ``ended.json``, because the scheduler forgets them."""
        new = {index: end for index, end in ends.items() if index not in self.ended}
        if new:
            self.ended.update(new)
            write_json(self.folder / _ENDED, {str(index): end for index, end in self.ended.items()})

    def save_cancelled(self, indices: Iterable[int]) -> None:
        """Add workers to ``cancelled.json``."""
        write_json(self.folder / _CANCELLED, sorted({*indices, *self.cancelled_workers()}))

    def cancelled_workers(self) -> list[int]:
        """Return the workers whose jobs ``cancel`` ended, from ``cancelled.json``."""
        with suppress(OSError, ValueError):
            return reading.read_json(self.folder / _CANCELLED, list[int])
        return []

    def open_workers(self) -> list[int]:
        """Return the workers whose end is not known."""
        return [] if self.refused else [index for index in range(len(self.cells)) if index not in self.ended]


def read_batches(folder: CampaignFolder) -> list[Batch]:
    """Return every batch of a campaign, oldest first."""
    batches = [_read_batch(path.parent) for path in folder.workers.glob(f"*/{_FILE}")]
    # Within one submission a longer name has a larger number: token-10 comes after token-9.
    return sorted(batches, key=lambda batch: (batch.submitted_utc, len(batch.folder.name), batch.folder.name))


def last_workers(batches: list[Batch]) -> dict[str, tuple[Batch, int]]:
    """Return the last batch and the last worker of each cell, by the cell's id."""
    return {cell: (batch, index) for batch in batches for index, cells in enumerate(batch.cells) for cell in cells}


def _read_batch(folder: Path) -> Batch:
    content = read_file(folder / _FILE, _BatchFile)
    batch = Batch(folder, **{key: content.get(key) for key in _BatchFile.__annotations__})  # type: ignore[arg-type] # as read
    if (folder / _ENDED).exists():
        ended = read_file(folder / _ENDED, dict[str, WorkerEnd])
        batch.ended.update((int(index), end) for index, end in ended.items() if index.isdecimal())
    return batch


def read_file(path: Path, shape: type[_Shape]) -> _Shape:
    """Return the content of a file of a batch.

    Raises
    ------
    EnvironmentFaultError
        The file is missing or damaged.
    """
    try:
        return reading.read_json(path, shape)
    except (OSError, ValueError) as error:
        raise EnvironmentFaultError(
            f"{path} is damaged: {error}", "move its folder away; the records are complete without it"
        ) from error


_SLURM_OPTIONS = {
    *("partition", "account", "qos", "constraint", "pool", "exclude", "dependency", "licenses"),
    *("wckey", "comment", "modules", "prelude", "extra"),
}


@dataclass(frozen=True)
class CampaignCall:
    """One call of the command: the user's overrides and the conduct of the campaign."""

    folder: CampaignFolder
    conduct: Conduct
    token: str  # eight hex digits that identify this submission
    utc: str  # time of the call; a worker of a later request has precedence
    words: Sequence[str]  # the overrides as typed
    attempt: int = 0  # number of the retry (``retries``)
    first: str = ""  # token of the campaign's first request, if this is a later one

    @property
    def campaign_id(self) -> str:
        """Return an id that only this campaign has."""
        return checkpoint_targets.campaign_id(self.folder, self.first or self.token)

    def work_list(
        self, cluster: str, entries: Sequence[PlannedCell], data: Mapping[str, Data | None], first: int = 0
    ) -> WorkList:
        """Return the work list of a worker under ``slurm``, ``local`` or ``debug``.

        `data`: the dataset by cell id, None if the worker makes it; `first`: the position of the first entry in the
        shuffled order of the whole submission.
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
    """Return the conduct without Slurm's options: a worker needs none, and they may hold a secret (``${oc.env:…}``)."""
    cluster = {key: value for key, value in conduct["cluster"].items() if key not in _SLURM_OPTIONS}
    site = {key: value for key, value in conduct["site"].items() if key in ("name", *OF_SITE)}
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
        "root": str(Path(root).expanduser().resolve()) if (root := cell.settings["storage"].get("root")) else None,
        "targets": checkpoint_targets.target_roots(cell.settings),
        "position": position,
        "missing": entry.missing,
        "at_most": entry.at_most,
    }
