"""Which cells are worth another try."""

import pytest

from campaign.cells import cell_plan
from campaign.cluster import retry
from tests.campaign.fake_template import failed, figures
from tests.campaign.on_disk import leave_batch, leave_record

LOUD = figures(other_cpu=8.93)
SAYS = "1 cell not tried again: "


@pytest.mark.parametrize(
    ("runs", "code", "why"),
    [
        *(([], code, None) for code in ("NODE_FAIL", "PREEMPTED", "LOST")),
        *((runs, "CANCELLED", "cancelled") for runs in ([], [None], [LOUD] * 5)),
        ([None], "DEADLINE", "the job's deadline has passed"),
        ([None], "OUT_OF_MEMORY", "the job's memory did not suffice (cluster.mem_gb=… asks for more)"),
        ([None], "TIMEOUT", "the time limit was reached (cluster.timeout_min=… asks for more)"),
        ([None], "ERROR", "no such module: CUDA"),
        *(([], code, "the job failed before its first run") for code in ("FAILED", "COMPLETED")),
        *(([None], code, None) for code in ("FAILED", "COMPLETED")),
        *(([LOUD] * 5, code, None) for code in ("TIMEOUT", "FAILED", "ERROR", "")),
        ([failed("of its own")] * 5, "NODE_FAIL", ""),
    ],
)  # fmt: skip
def test_a_cell_is_tried_again_unless_the_next_job_would_end_as_the_last_did(runs, code, why, cells, folder):
    (one, *_), conduct = cells
    batch = leave_batch(folder, cells=[["another"], [one.id]])
    batch.save_ends({1: {"code": code, "words": "no such module: CUDA"}} if code else {})
    if runs:
        leave_record(folder, one, *runs, status="running" if runs == [None] else "invalid")

    again, lines = retry.chosen(cell_plan.make([one], conduct, folder))

    assert (again, lines) == ([one] if why is None else [], [f"{SAYS}{why}"] if why else [])


def test_cells_that_are_not_tried_again_are_counted_by_their_reason(cells, folder):
    made, conduct = cells
    leave_batch(folder, cells=[[cell.id] for cell in made]).save_ends(
        {0: {"code": "TIMEOUT"}, 1: {"code": "CANCELLED"}, 2: {"code": "CANCELLED", "node": "n2"}}
    )

    again, lines = retry.chosen(cell_plan.make(made, conduct, folder))

    assert (again, [line.partition(" (")[0] for line in lines]) == (
        [], [f"{SAYS}the time limit was reached", "2 cells not tried again: cancelled"],
    )  # fmt: skip
