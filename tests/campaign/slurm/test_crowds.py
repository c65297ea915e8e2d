"""Whoever reads what Slurm prints of jobs finds his own among two arrays of a thousand tasks."""

from functools import partial

import pytest

from campaign.cli.cancel import cancel
from campaign.cluster import fleet, submission
from campaign.cluster.states import states
from campaign.slurm import job, scheduler
from campaign.slurm.client import Facts
from campaign.slurm.task import from_completion_log, from_sacct, from_squeue
from tests.campaign.fake_slurm import ARRAYS, SQUEUE_HEAD, TASKS, crowd
from tests.campaign.on_disk import leave_batch

LAST = TASKS - 1  # the task that has the array's own id


def _state(array, index):
    return ("RUNNING", "PENDING", "FAILED", "COMPLETED")[(index + int(array)) % 4]


def _restarts(array, index):
    return (index + int(array)) % 7


def _squeue(array, folder, index):
    return f"{array}|{index}|{_state(array, index)}|None|n{index}|{folder}"


def _sacct(array, folder, index):
    return f"{array}_{index}|{_state(array, index)}|0:0|n{index}|None|{folder}"


def _logged(array, folder, index):
    return (
        f"JobId={array}{index} JobState={_state(array, index)} NodeList=n{index} WorkDir={folder} "
        f"ArrayJobId={array} ArrayTaskId={index} ExitCode=0:0"
    )


def _scontrol(array, folder, index):
    number = array if index == LAST else f"{array}{index:04}"
    return (
        f"JobId={number} ArrayJobId={array} ArrayTaskId={index} JobName=tfio-{array} JobState=RUNNING "
        f"Restarts={_restarts(array, index)} NodeList=n{index} NumCPUs=2 Licenses=disk{array}_{index}:1 "
        f"Command={folder}/job.sh WorkDir={folder} Comment=Restarts=99 Licenses=all:1"
    )


READERS = {from_squeue: _squeue, from_sacct: _sacct, partial(from_completion_log, user=0): _logged}


@pytest.mark.parametrize(("read", "line"), READERS.items())
def test_each_task_is_read_from_its_own_line(read, line):
    tasks = list(read("\n".join([SQUEUE_HEAD, *crowd(line)])))

    assert {task.key: (task.state, task.job_id, task.node) for task in tasks} == {
        (folder, index): (_state(array, index), f"{array}_{index}", f"n{index}")
        for array, folder in ARRAYS.items()
        for index in range(TASKS)
    }
    assert len(tasks) == 2 * TASKS


@pytest.fixture
def inside(programs, monkeypatch):
    """A function that makes this process a task of the first array; scontrol shows all jobs, whatever it is asked."""
    programs.answer("scontrol", *crowd(_scontrol))

    def be(index):
        monkeypatch.setenv("SLURM_JOB_ID", "70" if index == LAST else f"70{index:04}")
        monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "70")
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(index))
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(_restarts("70", index)))

    return be


@pytest.mark.parametrize("index", [0, 500, LAST])
def test_a_job_learns_its_own_facts_and_puts_itself_back_and_no_other(index, inside, programs, tmp_path):
    inside(index)  # the last one began once less than the task of the line below its own

    facts = job.described()
    job.go_back({"max_requeues": 7, "timeout_min": 2}, tmp_path / "fault")

    asks = f"scontrol -o show job 70_{index}"
    assert programs.calls == [asks, asks, f"scontrol requeue 70_{index}"]
    assert (facts["ArrayTaskId"], facts["Restarts"]) == (str(index), str(_restarts("70", index)))
    assert facts["Licenses"] == f"disk70_{index}:1"
    assert not (tmp_path / "fault").exists()


def test_a_node_learns_its_own_address(programs, monkeypatch):
    programs.answer("scontrol", *(f"NodeName=n{number} NodeAddr=10.0.0.{number} OS=Linux" for number in range(250)))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")

    assert job.node_address() == "10.0.0.7"


@pytest.fixture
def batches(folder):
    """Two batches of a thousand workers with a cell each."""
    return [
        leave_batch(folder, f"{name}-0", [[f"{name}-{index}"] for index in range(TASKS)], job_id=array)
        for array, name in zip(ARRAYS, ("first", "second"), strict=True)
    ]


def _of(batches):
    folders = dict(zip(ARRAYS, (batch.folder for batch in batches), strict=True))
    return crowd(lambda array, _, index: _squeue(array, folders[array], index))


def test_cancel_ends_what_lives_of_one_array_and_nothing_of_the_other(folder, batches, programs):
    programs.answer("squeue", *_of(batches))
    programs("scancel", f"echo '{SQUEUE_HEAD}' > {programs.folder}/squeue.answer")

    cancel(folder, {(str(batches[1].folder), index) for index in range(len(batches[1].cells))})

    ended = [word for call in programs.calls if call.startswith("scancel") for word in call.split()[1:]]
    assert ended == [f"71_{index}" for index in range(TASKS) if _state("71", index) in ("RUNNING", "PENDING")]


def test_the_job_of_a_submission_is_found_although_sbatch_failed(batches, programs):
    programs.answer("squeue", *_of(batches))

    assert submission.job_id_despite(batches[1], RuntimeError("Socket timed out")) == "71"


def test_status_tells_each_cell_by_its_own_task(batches, folder, programs, clock):
    clock(fleet, scheduler)
    programs.answer("squeue", *_of(batches))
    programs.answer("scontrol", "AccountingStorageType = accounting_storage/none")

    cells = states(folder, {"requests": [{"cells": [cell for batch in batches for (cell,) in batch.cells]}]})

    means = {"RUNNING": "running", "PENDING": "queued", "FAILED": "failed", "COMPLETED": "failed"}
    assert {cell: state["status"] for cell, state in cells.items()} == {
        f"{name}-{index}": means[_state(array, index)]
        for array, name in zip(ARRAYS, ("first", "second"), strict=True)
        for index in range(TASKS)
    }
    assert programs.asked.count("squeue") == 1
    assert Facts("").tasks_at_most >= TASKS


def test_the_nodes_outside_a_pool_of_a_large_cluster_are_named(programs, monkeypatch):
    submission._outside.cache_clear()  # noqa: SLF001 - of the test before
    every = [f"n{number}" for number in range(TASKS)]
    programs.answer("sinfo", *every, *every)  # a line for each partition of a node
    programs("scontrol", 'case "$*" in *hostlistsorted*) echo "$3";; *) printf "n5\\nn6\\n";; esac')

    assert set(submission._outside("n[5-6]").split(",")) == {*every} - {"n5", "n6"}  # noqa: SLF001
