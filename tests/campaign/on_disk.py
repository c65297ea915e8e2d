"""What a campaign leaves on disk, and what Slurm says of its jobs, written without a worker."""

from campaign.cells import record
from campaign.worker.batch import Batch
from tests.campaign.fake_template import TERMS
from tests.campaign.work_lists import UTC


def leave_record(folder, cell, *runs, token="first", data=None, **changed):
    """Write the record of a cell; each run has the figures that are given, or is under way (None).

    `changed` are keys of the record, such as its status, which is ``running`` unless it is named.
    """
    made = record.new(cell, {"token": token, "words": ["threads=1"]}, data or {}, TERMS)
    for figures in runs:
        record.begin_run(made, "measured", token).update(figures or {})
    made |= changed
    record.write(folder.record(cell.id), made)
    return made


def leave_batch(folder, name="first-0", cells=(("a",), ("b",)), cluster="slurm", utc=UTC, **more):
    """Write a batch whose workers have these cells."""
    token = name.partition("-")[0]
    lists = [list(worker) for worker in cells]
    made = Batch(folder.workers / name, cluster, token, f"tfio-{token}", lists, utc, **more)
    made.save()
    return made


def squeue_line(batch, index, state, reason="None", node=""):
    """What the controller says of one worker of a batch."""
    return f"70|{index}|{state}|{reason}|{node}|{batch.folder}"
