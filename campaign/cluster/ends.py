"""How workers of a campaign ended: written down, for Slurm forgets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from campaign.cells import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from campaign.cells.folder import CampaignFolder
    from campaign.cluster.fleet import Fleet
    from campaign.worker.batch import Batch

_LATE_S = 5.0  # in which a record may come into sight that a node has written (NFS)
_LOOK_EACH_S = 1.0


def settle_records(folder: CampaignFolder, fleet: Fleet) -> list[str]:
    """Write down how workers ended that left cells behind, in their batch and in the records they had begun.

    Returns
    -------
    list of str
        A line for each such worker.
    """
    said = []
    deadline = time.monotonic() + _LATE_S
    for batch, ends in _by_batch(fleet):
        for index, how in ends.items():
            until = deadline if how.startswith("COMPLETED") else 0.0  # its worker says that all are over
            left = _left(folder, batch, index, until)
            if left:
                why = _why(fault) if (fault := batch.fault(index)) else f"Slurm: {how}"
                ends[index] = why
                said.append(f"{_few(left)}: {why}")
                for cell in left:
                    _close_record(folder, cell, batch.token, why)
        batch.save_ends(ends)
    return said


def _left(folder: CampaignFolder, batch: Batch, index: int, until: float) -> list[str]:
    """List the cells that a worker left behind; what it wrote may be seen late, so it is looked for until then."""
    while True:
        left = [cell for cell in batch.cells[index] if not _over(folder, cell, batch.token)]
        if not left or time.monotonic() >= until:
            return left
        time.sleep(_LOOK_EACH_S)


def _why(fault: Mapping[str, str]) -> str:
    return f"{fault['message']} ({fault['hint']})" if fault["hint"] else fault["message"]


def _by_batch(fleet: Fleet) -> list[tuple[Batch, dict[int, str]]]:
    found: dict[str, tuple[Batch, dict[int, str]]] = {}
    for key, seen in fleet.seen.items():
        if seen.state == "ended":
            found.setdefault(key[0], (fleet.batch(key), {}))[1][key[1]] = seen.why
    return list(found.values())


def _over(folder: CampaignFolder, cell: str, token: str) -> bool:
    recorded, _ = record.look(folder.record(cell))
    return recorded is not None and recorded["campaign"].get("token") == token and recorded["status"] != "running"


def _close_record(folder: CampaignFolder, cell: str, token: str, why: str) -> None:
    """Mark the runs that the worker left open; the cell stays begun, and the same command goes on with it."""
    recorded, _ = record.look(folder.record(cell))
    if recorded is not None and recorded["campaign"].get("token") == token:
        record.fail_open_runs(recorded, f"interrupted: {why}")
        recorded["reason"] = why
        record.write(folder.record(cell), recorded)


def _few(cells: Sequence[str]) -> str:
    return cells[0] if len(cells) == 1 else f"{cells[0]} and {len(cells) - 1} more"
