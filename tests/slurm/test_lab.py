"""The cluster that the tests of Slurm stand on is a real one, fails when told to, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm import lab as laboratory

pytestmark = pytest.mark.long

ESCAPE = "(setsid sh -c 'echo $$ >{file}; exec sleep 600' &); sleep 600"  # an orphan: Slurm does not find it


def _until(ready, timeout_s=20):
    deadline = time.monotonic() + timeout_s
    while not (answer := ready()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
    return answer


def _submit(lab, body, *options):
    return lab.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={body}")


def _state(lab, number):
    return lab.run("squeue", "-h", "--states=all", f"--jobs={number}", "-o", "%T")


def _client(lab, *words):
    """What someone gets who uses the lab as its users do."""
    return subprocess.run(words, env=lab.environment, capture_output=True, text=True, check=False)


def _runs(file):
    """Whether the process that wrote its pid there is alive."""
    return laboratory.alive(int(file.read_text()))


def _programs_of(folder):
    """Programs whose command line or environment names the lab's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if str(folder).encode() in command + (process / "environ").read_bytes():
                found.append(Path(command.split(b"\0")[0].decode()).name)
    return found


def test_a_job_runs_on_every_node(lab):
    nodes = lab.run("srun", "-N4", "sh", "-c", "echo $SLURMD_NODENAME").split()

    assert sorted(nodes) == ["n1", "n2", "n3", "n4"]


def test_a_batch_job_is_accepted_and_completes(lab, tmp_path):
    marker = tmp_path / "ran"

    number = _submit(lab, f"touch {marker}")

    assert number.isdigit()
    assert _until(marker.exists)


def test_with_accounting_sacct_tells_the_state_and_the_exit_code_of_a_job(accounting_lab):
    number = _submit(accounting_lab, "exit 3")

    said = ("sacct", "-X", "-n", "-P", "-j", number, "-o", "State,ExitCode")
    _until(lambda: accounting_lab.run(*said) == "FAILED|3:0")


def test_a_job_over_its_memory_is_killed_and_its_output_says_why(accounting_lab, tmp_path):
    hog = "python3 -c \"import time; held = b'x' * 400_000_000; time.sleep(60)\""

    number = _submit(accounting_lab, hog, "--mem=100M", f"--output={tmp_path}/out")

    _until(lambda: _state(accounting_lab, number) == "FAILED")
    assert "ExitCode=0:9" in accounting_lab.run("scontrol", "show", "job", number)
    assert "exceeded memory limit" in (tmp_path / "out").read_text()


def test_a_silent_node_keeps_its_jobs_and_one_without_power_does_not(lab, tmp_path):
    file, asked, answered = tmp_path / "pid", tmp_path / "asked", tmp_path / "answered"
    _submit(lab, f"echo $$ >{file}; until [ -e {asked} ]; do sleep 0.1; done; touch {answered}; exec sleep 600", "-wn4")
    _until(lambda: file.exists() and file.read_text())

    lab.kill_node(4)
    asked.touch()
    _until(answered.exists)
    lab.cut_power(4)

    assert not _runs(file)


def test_a_node_that_was_killed_comes_back(lab):
    lab.kill_node(3)
    lab.start_node(3)

    assert lab.run("srun", "-w", "n3", "sh", "-c", "echo $SLURMD_NODENAME") == "n3"


def test_jobs_outlive_a_controller_that_is_stopped_and_started(lab):
    number = _submit(lab, "sleep 600")
    _until(lambda: _state(lab, number) == "RUNNING")

    lab.stop_controller()
    gone = "is DOWN" in lab.run("scontrol", "ping", check=False)
    lab.start_controller()

    assert gone
    assert _state(lab, number) == "RUNNING"
    assert int(_submit(lab, "true")) > int(number)


def test_a_controller_that_forgot_gives_an_id_to_another_job_and_ends_the_first(lab, tmp_path):
    lab.stop_controller()
    lab.start_controller(forget=True)
    file = tmp_path / "pid"
    first = _submit(lab, f"echo $$ >{file}; exec sleep 600")
    _until(lambda: file.exists() and file.read_text())

    lab.stop_controller()
    lab.start_controller(forget=True)

    assert _submit(lab, "true", "--job-name=other") == first
    assert lab.run("squeue", "-h", "--states=all", "-o", "%j") == "other"
    _until(lambda: not _runs(file))


def test_a_silenced_client_fails_as_if_nobody_answered_and_the_others_work(lab):
    lab.silence("squeue")
    silent, other, own = _client(lab, "squeue"), _client(lab, "sinfo"), lab.run("squeue", "-h")
    lab.unsilence("squeue")

    assert (silent.returncode, silent.stdout) == (1, "")
    assert "Unable to contact slurm controller" in silent.stderr
    assert other.returncode == 0
    assert own == ""
    assert _client(lab, "squeue").returncode == 0


def test_calls_of_a_client_are_counted_and_those_of_the_test_are_not(lab):
    lab.run("squeue")
    for _ in range(3):
        _client(lab, "squeue")
    lab.silence("sinfo")
    _client(lab, "sinfo")

    assert (lab.calls("squeue"), lab.calls("sinfo"), lab.calls("sbatch")) == (3, 1, 0)


def test_submissions_are_refused_after_as_many_as_asked_until_accepted_again(lab):
    lab.refuse_submissions(after=2)
    answers = [_client(lab, "sbatch", "-o", "/dev/null", "--wrap=true") for _ in range(4)]
    lab.accept_submissions()

    assert [answer.returncode for answer in answers] == [0, 0, 1, 1]
    assert "Job violates accounting/QOS policy" in answers[2].stderr
    assert _client(lab, "sbatch", "-o", "/dev/null", "--wrap=true").returncode == 0
    assert len(lab.run("squeue", "-h", "--states=all", "--name=wrap", "--Format=JobID").split()) >= 3


def test_a_preempted_job_is_requeued_and_waits_until_it_is_released(lab):
    number = _submit(lab, "exec sleep 600", "-w", "n1")
    _until(lambda: _state(lab, number) == "RUNNING")
    _submit(lab, "sleep 1", "-w", "n1", "-p", "high", "--exclusive")
    _until(lambda: lab.run("squeue", "-h", "-j", number, "-o", "%T %r") == "PENDING BeginTime")

    lab.release(number)

    _until(lambda: _state(lab, number) == "RUNNING")
    assert "Restarts=1" in lab.run("scontrol", "show", "job", number)


def test_mending_takes_back_every_fault(lab):
    _submit(lab, "sleep 600", "-w", "n2")
    lab.silence("squeue", "sbatch")
    lab.refuse_submissions()
    lab.kill_node(2)
    lab.stop_controller()

    lab.mend()

    assert _client(lab, "squeue", "-h").stdout == ""
    assert lab.calls("squeue") == 1
    assert _client(lab, "sbatch", "-o", "/dev/null", "-w", "n2", "--wrap=true").returncode == 0
    assert lab.run("sinfo", "-h", "-p", "debug", "-t", "idle,mix", "-o", "%D") == "4"


@pytest.mark.parametrize("accounting", [False, True])
def test_a_lab_that_is_taken_down_leaves_no_process_and_no_file(accounting, tmp_path):
    reason = laboratory.missing(accounting=accounting)
    if reason:
        pytest.skip(reason)
    with laboratory.lab(nodes=2, accounting=accounting) as cluster:
        file = tmp_path / "pid"
        _submit(cluster, ESCAPE.format(file=file))
        _until(file.exists)
        during = _programs_of(cluster.folder)

    assert {"munged", "slurmctld", "slurmd", *["slurmdbd", "mariadbd"] * accounting} <= {*during}
    assert _programs_of(cluster.folder) == []
    assert not cluster.folder.exists()
