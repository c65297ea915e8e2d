import shutil
import subprocess
import sys

import pytest

from campaign.cli import cancel as cancelling
from campaign.cli.cancel import cancel_jobs
from campaign.cluster import fleet
from campaign.cluster.survey import cell_states
from campaign.errors import SchedulerError, UsageError
from campaign.slurm import scheduler
from campaign.worker.batch import read_batches
from jobs.system.files import write_json
from tests.campaign.fake_slurm import SQUEUE_HEAD
from tests.campaign.on_disk import leave_batch, squeue_line
from tests.campaign.work_lists import slurm_conduct, work_list


@pytest.fixture(autouse=True)
def time(clock):
    return clock(cancelling)


def _after_scancel(programs, *lines):
    """Let the controller answer this once scancel was called."""
    (programs.folder / "later").write_text("".join(f"{line}\n" for line in (SQUEUE_HEAD, *lines)), encoding="utf-8")
    programs("scancel", f"cp {programs.folder}/later {programs.folder}/squeue.answer")


def _scancels(programs):
    return [call for call in programs.calls if call.startswith("scancel")]


@pytest.mark.parametrize(
    ("then", "left"),
    [(["CANCELLED"] * 2, []), (["COMPLETING"] * 2, []), (["CANCELLED", "PENDING"], [1]), (None, [0, 1])],
    ids=["ended", "about to end", "one lives on", "nobody knows"],
)
def test_cancel_names_exactly_our_jobs_and_returns_those_that_are_not_seen_to_have_ended(then, left, folder, programs):
    made, foreign = leave_batch(folder), "70|2|RUNNING|None|n1|/somebody/else"
    ours = (squeue_line(made, index, was) for index, was in ((0, "RUNNING"), (1, "PENDING"), (3, "COMPLETED")))
    programs.answer("squeue", *ours, foreign)
    if then:
        _after_scancel(programs, *(squeue_line(made, index, state) for index, state in enumerate(then)), foreign)
    else:
        programs("scancel", f"rm {programs.folder}/squeue")

    jobs, alive = cancel_jobs(folder)

    assert _scancels(programs) == ["scancel 70_0 70_1"]
    assert [(job.folder, job.index) for job in jobs] == [(str(made.folder), 0), (str(made.folder), 1)]
    assert [job.index for job in alive] == left


def test_a_job_that_was_taken_for_refused_or_for_over_is_cancelled_too(folder, programs):
    refused, over = leave_batch(folder, refused="Socket timed out"), leave_batch(folder, "second-0")
    over.save_ends({0: {"code": "LOST"}, 1: {"code": "NODE_FAIL"}})
    programs.answer("squeue", squeue_line(refused, 0, "RUNNING"), squeue_line(over, 1, "PENDING"))
    _after_scancel(programs)

    code = cancelling.main([str(folder.root)])

    assert code == 0
    assert _scancels(programs) == ["scancel 70_0 70_1"]


def test_a_cancelled_job_that_slurm_forgets_at_once_is_cancelled_and_not_lost(folder, programs, clock):
    made = leave_batch(folder)
    programs("scontrol", "exit 1")
    programs.answer("squeue", squeue_line(made, 0, "RUNNING"), squeue_line(made, 1, "PENDING"))
    _after_scancel(programs, squeue_line(made, 0, "CANCELLED", node="n1"))  # as for what waits, without accounting
    clock(fleet, scheduler)

    cancelling.main([str(folder.root)])
    found = cell_states(folder, {"requests": [{"cells": ["a", "b"]}]})
    workers = fleet.open_fleet(folder)
    workers.refresh_until_explained()
    fleet.record_ends(folder, workers)

    assert {cell: (state["status"], state["reason"]) for cell, state in found.items()} == {
        "a": ("interrupted", "Slurm: CANCELLED by `python -m campaign cancel` on n1"),
        "b": ("interrupted", "Slurm: CANCELLED by `python -m campaign cancel`"),
    }
    assert [end["code"] for end in read_batches(folder)[0].ended.values()] == ["CANCELLED", "CANCELLED"]


def test_a_worker_on_this_machine_whose_command_is_gone_is_ended(folder, capsys):
    batch = leave_batch(folder, cluster="local")
    script = "from signal import *; print(pthread_sigmask(0, [15]), flush=True); print(int(sigwait([15])), flush=True)"
    words = [sys.executable, "-c", script, "submitit.core._submit", str(batch.folder)]
    with folder.worker_lock(), subprocess.Popen(words, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()

        code = cancelling.main([str(folder.root)])
        last_word = worker.stdout.read()

    assert (code, last_word) == (0, b"15\n")
    assert f"ended the worker on this machine (process {worker.pid})" in capsys.readouterr().err


def test_of_a_folder_that_was_moved_the_jobs_are_named_by_its_earlier_path(folder, cells, programs, capsys):
    made = leave_batch(folder)
    write_json(made.work_list(0), work_list(folder, cells[0], slurm_conduct(cells[1]), "slurm"))
    programs.answer("squeue", squeue_line(made, 0, "RUNNING"))
    new = folder.root.rename(folder.root.parent / "new")

    code = cancelling.main([str(new)])

    assert (code, _scancels(programs)) == (1, [])
    said = " ".join(capsys.readouterr().err.split())
    assert f"no Slurm job has {new} as its folder, but 1 job of {folder.root}" in said
    assert said.endswith(f"python -m campaign cancel campaign_dir={folder.root}")


def test_only_the_jobs_of_the_cells_that_are_named_are_cancelled(folder, programs):
    made = leave_batch(folder, cells=[["micro-t1-aa"], ["micro-t2-bb"], ["micro-t4-cc", "micro-t8-dd"]])
    programs.answer("squeue", *(squeue_line(made, index, "RUNNING") for index in range(3)))
    _after_scancel(programs, squeue_line(made, 0, "RUNNING"))

    assert cancelling.main(["bb", str(folder.root)]) == 0
    assert _scancels(programs) == ["scancel 70_1"]
    with pytest.raises(UsageError, match="micro-t4-cc has other cells, too: micro-t8-dd"):
        cancelling.main(["micro-t4", str(folder.root)])
    with pytest.raises(UsageError, match="no job of this campaign has a cell 'ee'"):
        cancelling.main(["ee", str(folder.root)])
    assert len(_scancels(programs)) == 1


@pytest.mark.parametrize(("words", "whose"), [(["t1"], "these cells"), ([], "this campaign")])
def test_where_no_job_is_left_it_is_said_of_what_was_named(words, whose, folder, programs, capsys):
    assert (cancelling.main([str(folder.root)]), programs.calls) == (0, [])  # it never went to the cluster
    leave_batch(folder, cells=[["t1-aa"], ["t2-bb"]])
    programs.answer("squeue")
    capsys.readouterr()

    assert cancelling.main([*words, str(folder.root)]) == 0
    assert capsys.readouterr().err == f"no job of {whose} is left\n"
    programs("squeue", "exit 1")
    with pytest.raises(SchedulerError, match="does not answer"):
        cancelling.main([str(folder.root)])
    assert _scancels(programs) == []


def test_the_jobs_of_a_folder_that_was_removed_are_found_by_where_they_work(folder, programs, capsys):
    made = leave_batch(folder)
    programs("sbatch")
    programs("sinfo")
    programs.answer("squeue", squeue_line(made, 0, "RUNNING"), "71|0|RUNNING|None|n1|/elsewhere/workers/first-0")
    _after_scancel(programs)
    shutil.rmtree(folder.root)

    with pytest.raises(UsageError, match="no job of this campaign has a cell 'a'"):
        cancelling.main(["a", str(folder.root)])
    assert cancelling.main([f"campaign_dir={folder.root}"]) == 0
    assert _scancels(programs) == ["scancel 70_0"]
    assert capsys.readouterr().err == "cancelled 1 job; their folder is gone\n"
    with pytest.raises(UsageError, match="no campaign in"):
        cancelling.main([str(folder.root)])
