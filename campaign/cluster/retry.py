"""Which cells are worth another try: those that lack runs for a reason that is not theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from campaign.cluster import fleet
from campaign.worker import batch as batches

if TYPE_CHECKING:
    from campaign.cells.cell import Cell
    from campaign.cells.plan import Plan

_LEFT = ("planned", "running")  # begun or not, its worker ended before it was over


def cells(after: Plan) -> list[Cell]:
    """List cells whose worker ended before them, or whose runs others disturbed; none that somebody cancelled."""
    last = batches.latest(batches.read_all(after.folder))

    def is_cancelled(cell: str) -> bool:
        batch, index = last.get(cell, (None, 0))
        return batch is not None and fleet.is_cancelled(batch.ended.get(index, ""))

    lacking = (entry for entry in after.to_do if entry.state in _LEFT or entry.disturbed)
    return [entry.cell for entry in lacking if not is_cancelled(entry.cell.id)]
