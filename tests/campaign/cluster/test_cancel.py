from __future__ import annotations

import pytest

from campaign.cli import cancel as verb
from campaign.cluster import cancel as cancelling
from campaign.cluster.cancel import cancel
from campaign.errors import SchedulerError
from campaign.worker.batch import Batch
from tests.campaign.fake_slurm import Clock

UTC = "2026-11-21T09:00:00.000Z"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(cancelling, "time", clock)
    return clock


@pytest.fixture
def batch(folder):
    """A function that makes and saves a batch of two workers."""

    def make(name="first-0", **more):
        token = name.partition("-")[0]
        made = Batch(folder.workers / name, "slurm", token, f"tfio-{token}", [["a"], ["b"]], UTC, **more)
        made.save()
        return made

    return make


def _task(batch, index, state):
    return f"70|{index}|{state}|None||{batch.folder}"


def _after_scancel(programs, *lines):
    """Let the controller answer this once scancel was called."""
    (programs.folder / "later").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    programs("scancel", f"cp {programs.folder}/later {programs.folder}/squeue.answer")


def _scancels(programs):
    return [call for call in programs.calls if call.startswith("scancel")]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_cancel_names_exactly_our_jobs(batch, programs, state):
    made = batch()
    foreign = "70|2|RUNNING|None|n1|/somebody/else"
    programs.answer(
        "squeue", _task(made, 0, "RUNNING"), _task(made, 1, "PENDING"), _task(made, 3, "COMPLETED"), foreign
    )
    _after_scancel(programs, _task(made, 0, state), _task(made, 1, state), foreign)

    jobs, left = cancel([made])

    assert _scancels(programs) == ["scancel 70_0 70_1"]
    assert [(job.folder, job.index) for job in jobs] == [(str(made.folder), 0), (str(made.folder), 1)]
    assert left == []


def test_cancel_returns_the_jobs_that_live_on(batch, programs):
    made = batch()
    programs.answer("squeue", _task(made, 0, "RUNNING"), _task(made, 1, "PENDING"))
    _after_scancel(programs, _task(made, 0, "CANCELLED"), _task(made, 1, "PENDING"))

    _, left = cancel([made])

    assert [job.index for job in left] == [1]


def test_a_job_that_was_taken_for_refused_or_for_over_is_cancelled_too(folder, batch, programs):
    refused, over = batch(refused="Socket timed out"), batch("second-0")
    over.save_ends({0: "Slurm: LOST", 1: "Slurm: NODE_FAIL"})
    programs.answer("squeue", _task(refused, 0, "RUNNING"), _task(over, 1, "PENDING"))
    _after_scancel(programs)

    code = verb.main([str(folder.root)])

    assert code == 0
    assert _scancels(programs) == ["scancel 70_0 70_1"]
    assert all("--name=tfio-first,tfio-second " in call for call in programs.calls if call.startswith("squeue"))


def test_what_a_controller_that_fell_silent_was_told_to_end_is_not_said_to_have_ended(batch, programs):
    made = batch()
    programs.answer("squeue", _task(made, 0, "RUNNING"))
    programs("scancel", f"rm {programs.folder}/squeue")

    jobs, left = cancel([made])

    assert jobs == left != []


def test_a_silent_controller_cancels_nothing_and_that_is_said(folder, batch, programs):
    batch()
    programs("squeue", "exit 1")

    with pytest.raises(SchedulerError, match="does not answer"):
        verb.main([str(folder.root)])

    assert _scancels(programs) == []


def test_a_campaign_that_never_went_to_the_cluster_has_no_job_to_ask_for(folder, programs):
    code = verb.main([str(folder.root)])

    assert (code, programs.calls) == (0, [])
