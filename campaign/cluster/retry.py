"""Which cells are worth another try: those that lack runs for a reason that is not theirs."""

from __future__ import annotations

from collections import Counter
from functools import cache

from campaign.cells import record
from campaign.cells.cell import Cell
from campaign.cells.cell_plan import Plan
from campaign.console import counted
from campaign.worker import batch as batches
from jobs.model.codes import CellState, JobEnd, WorkerEnd, worker_sentence

_LEFT = (CellState.PLANNED, CellState.RUNNING, CellState.UNFINISHED)  # its worker ended before it was over
# What would end the next job, too.
_OWN = {
    JobEnd.CANCELLED: "cancelled",
    JobEnd.DEADLINE: "the job's deadline has passed",
    JobEnd.OUT_OF_MEMORY: "the job's memory did not suffice (cluster.mem_gb=… asks for more)",
    JobEnd.TIMEOUT: "the time limit was reached (cluster.timeout_min=… asks for more)",
}
_OF_THE_SCRIPT = (JobEnd.COMPLETED, JobEnd.FAILED)  # it came to an end; no node was lost
_BEFORE_A_RUN = "the job failed before its first run"


def chosen(after: Plan) -> tuple[list[Cell], list[str]]:
    """Choose cells whose worker ended before them for no reason of its own, or whose runs others disturbed.

    Returns them, and a line on each reason for which others are not tried again.
    """
    made = {batch.folder.name: batch for batch in batches.read_all(after.folder)}
    last = batches.latest([*made.values()])

    @cache
    def has_begun(name: str, index: int) -> bool:
        """Return whether a worker has recorded anything."""
        recorded = (record.read_or_fault(after.folder.record(cell))[0] for cell in made[name].cells[index])
        return any(each is not None and each["campaign"].get("token") == made[name].token for each in recorded)

    again: list[Cell] = []
    not_again: Counter[str] = Counter()
    for entry in after.to_do:
        is_left = entry.state in _LEFT
        if not (is_left or entry.disturbed):
            continue
        batch, index = last.get(entry.cell.id, (None, 0))
        end = batch.ended.get(index) if batch else None
        why = _reason(end, is_left=is_left) if end else ""
        if batch and end and is_left and end["code"] in _OF_THE_SCRIPT and not has_begun(batch.folder.name, index):
            why = _BEFORE_A_RUN
        if why:
            not_again[why] += 1
        else:
            again.append(entry.cell)
    return again, [f"{counted(number, 'cell')} not tried again: {why}" for why, number in not_again.items()]


def _reason(end: WorkerEnd, *, is_left: bool) -> str:
    """Return why the next worker would end as the last one did; empty where it may not.

    Of a cell that it did not leave behind (`is_left`) only a cancellation counts.
    """
    if end["code"] == JobEnd.ERROR:
        return worker_sentence(end) if is_left else ""
    return _OWN.get(end["code"], "") if is_left or end["code"] == JobEnd.CANCELLED else ""
