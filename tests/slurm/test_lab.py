"""The cluster that the tests of Slurm stand on counts calls, can be mended, and leaves nothing behind.

That it is a real one, and that its faults happen, the tests of campaigns show, which would not pass otherwise.
"""

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.slurm import lab as laboratory
from tests.slurm.campaigns import wait

pytestmark = pytest.mark.long

ESCAPE = "(setsid sh -c 'echo $$ >{file}; exec sleep 600' &); sleep 600"  # an orphan: Slurm does not find it


def _client(lab, *words):
    """What someone gets who uses the lab as its users do."""
    return subprocess.run(words, env=lab.environment, capture_output=True, text=True, check=False)


def _programs_of(folder):
    """Programs whose command line or environment names the lab's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if str(folder).encode() in command + (process / "environ").read_bytes():
                found.append(Path(command.split(b"\0")[0].decode()).name)
    return found


def test_calls_of_a_client_are_counted_and_those_of_the_test_are_not(lab):
    lab.run("squeue")
    for _ in range(3):
        _client(lab, "squeue")
    lab.silence("sinfo")
    _client(lab, "sinfo")

    assert (lab.calls("squeue"), lab.calls("sinfo"), lab.calls("sbatch")) == (3, 1, 0)


def test_mending_takes_back_every_fault(lab):
    lab.run("sbatch", "--output=/dev/null", "-w", "n2", "--wrap=sleep 600")
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
        cluster.run("sbatch", "--output=/dev/null", f"--wrap={ESCAPE.format(file=file)}")
        wait(file.exists, 20)
        during = _programs_of(cluster.folder)

    assert {"munged", "slurmctld", "slurmd", *["slurmdbd", "mariadbd"] * accounting} <= {*during}
    assert _programs_of(cluster.folder) == []
    assert not cluster.folder.exists()
