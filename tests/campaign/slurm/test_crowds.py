"""Whoever reads what Slurm prints of jobs finds his own among two arrays of a thousand tasks."""

from functools import partial

import pytest

from campaign.slurm import job
from campaign.slurm.scheduler import parse_completion_log, parse_sacct, parse_squeue
from tests.campaign.fake_slurm import ARRAYS, SQUEUE_HEAD, TASKS, crowd

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


READERS = {parse_squeue: _squeue, parse_sacct: _sacct, partial(parse_completion_log, user=0): _logged}


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

    facts = job.describe_job()
    job.requeue_or_explain({"max_requeues": 7, "timeout_min": 2}, tmp_path / "fault")

    asks = f"scontrol -o show job 70_{index}"
    assert programs.calls == [asks, asks, f"scontrol requeue 70_{index}"]
    assert (facts["ArrayTaskId"], facts["Restarts"]) == (str(index), str(_restarts("70", index)))
    assert facts["Licenses"] == f"disk70_{index}:1"
    assert not (tmp_path / "fault").exists()


def test_a_node_learns_its_own_address(programs, monkeypatch):
    programs.answer("scontrol", *(f"NodeName=n{number} NodeAddr=10.0.0.{number} OS=Linux" for number in range(250)))
    monkeypatch.setenv("SLURMD_NODENAME", "n7")

    assert job.node_address() == "10.0.0.7"
