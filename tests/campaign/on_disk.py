"""What a campaign leaves on disk, and what Slurm says of its jobs, written without a worker."""

from campaign.cells import record
from campaign.worker.batch import Batch
from tests.campaign.fake_template import PROFILED, TERMS, failed, figures, invalid, with_amounts
from tests.campaign.work_lists import UTC

_RUNS = {"done": [figures()] * 5, "invalid": [invalid()] * 5, "failed": [failed()] * 2}
_RAW = {"valid": figures, "invalid": invalid, "failed": dict}


def leave_record(folder, cell, *runs, token="first", data=None, status="running", **changed):
    """Write the record of a cell; each run has the figures that are given, or is under way (None).

    A run that is given as valid or invalid gets the other figures of one that is judged so. A cell of another `status`
    than ``running`` is over; without runs it gets such as are judged so. `changed` are keys of the record.
    """
    made = record.make_record(cell, {"token": token, "words": ["threads=1"]}, data or {}, TERMS)
    for run in runs or _RUNS.get(status, ()):
        begun = record.begin_run(made, "measured", token)
        begun |= {"started_utc": f"2026-11-21T09:00:00.{begun['run']:03}Z", **_raw(run or {})}
    made |= {"status": "running" if status == "running" else "ended", **changed}
    record.write_record(folder.record(cell.id), made)
    return made


def _raw(run):
    verdict = run.get("status")
    ended = {"status": "ended"} if verdict in ("valid", "invalid") else {}
    profile = {"profile": PROFILED | run["profile"]} if "profile" in run else {}
    return with_amounts({**_RAW.get(verdict, dict)(), **run, **profile, **ended})


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
