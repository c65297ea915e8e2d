"""What Slurm sends to a worker, and what the worker does about it: real signals to a real process."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from filelock import FileLock

from campaign.cells import record
from jobs.model.codes import run_end_sentence

# Its template forks nothing and says when a run is under way; with SLOW_DISK=1 a record is written when stdin ends.
_WORKER = """
import os, signal, sys, time
from campaign.worker import __main__ as worker
from jobs.system import files

class Template:
    def __init__(self, *_):
        self.runs = 0
    def start(self):
        pass
    def close(self):
        pass
    def run(self, *_):
        self.runs += 1
        if os.environ.get("SLOW_DISK"):
            files.os.fsync = slow
        print("run", self.runs, flush=True)
        time.sleep(60)

def slow(fd):
    print("recording", flush=True)
    sys.stdin.read()

worker.Template = Template
sys.exit(worker.main(sys.argv[1]))
"""


@pytest.fixture
def listed(job, tmp_path):
    """A function that writes the work list of one cell and returns it with its path."""

    def write(cluster="slurm", **keys):
        work = {**job(**keys), "cluster": cluster}
        work["cells"] = work["cells"][:1]
        path = tmp_path / "work-0.json"
        path.write_text(json.dumps(work))
        return work, path

    return write


@pytest.fixture
def scontrol(programs, monkeypatch):
    """A function that makes this a job whose scontrol answers so; returns Slurm's programs."""

    def install(code=0, says=""):
        programs("scontrol", f"echo {says}; exit {code}")
        monkeypatch.setenv("SLURM_JOB_ID", "77")
        return programs

    return install


@contextmanager
def _started(path, **environment):
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(path)],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _signalled(path, *numbers, **environment):
    """Start a worker, send the signals as it says that it is in a run or (the later ones) recording; its exit code."""
    with _started(path, **environment) as process:
        for number in numbers:
            assert process.stdout.readline()
            process.send_signal(number)
        _, said = process.communicate(timeout=30)
    return process.returncode, said


def _only_run(folder, work):
    recorded = record.read_record(folder.record(work["cells"][0]["id"]))
    (run,) = recorded["runs"]
    return recorded["status"], run["status"], run_end_sentence(run["end"])


@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGTERM, "the worker was told to end during this run"), (signal.SIGUSR2, "the job's time limit was near")],
    ids=["cancelled", "its time is up"],
)
def test_a_job_that_is_ended_records_the_run_and_goes_back_into_the_queue_when_its_time_is_up(
    number, why, folder, listed, scontrol
):
    work, path = listed(max_requeues=3)
    slurm = scontrol()

    code, _ = _signalled(path, number, SLURM_RESTART_COUNT="2")

    assert code == 143
    assert _only_run(folder, work) == ("running", "failed", f"interrupted: {why}")
    assert ("scontrol requeue 77" in slurm.calls) is (number == signal.SIGUSR2)
    assert not path.with_suffix(".error.json").exists()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGUSR2])
def test_a_second_signal_does_not_interrupt_the_recording_of_the_first(second, folder, listed, scontrol):
    work, path = listed()
    slurm = scontrol()

    code, _ = _signalled(path, signal.SIGUSR2, second, SLOW_DISK="1")

    assert code == 143
    assert _only_run(folder, work) == ("running", "failed", "interrupted: the job's time limit was near")
    assert slurm.calls[-1] == "scontrol requeue 77"


def test_a_job_that_is_stopped_while_it_waits_for_the_storage_has_begun_no_run(folder, listed, scontrol):
    work, path = listed()
    slurm = scontrol()

    with FileLock(work["cells"][0]["dataset"]["lock"]), _started(path) as process:
        while not folder.record(work["cells"][0]["id"]).exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGUSR2)
        process.communicate(timeout=30)

    assert process.returncode == 143
    assert record.read_record(folder.record(work["cells"][0]["id"]))["runs"] == []
    assert slurm.calls[-1] == "scontrol requeue 77"


def test_on_this_machine_a_worker_that_is_told_to_end_records_the_run_under_way(folder, listed):
    work, path = listed(cluster="local")

    code, said = _signalled(path, signal.SIGTERM)

    assert code == 1
    assert "WorkerStoppedError" in said
    assert _only_run(folder, work) == ("running", "failed", "interrupted: the worker was told to end during this run")
