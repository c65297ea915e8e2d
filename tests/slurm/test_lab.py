"""The cluster that the tests of Slurm stand on is a real one, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import lab as laboratory
import pytest


def _daemons_of(folder):
    """Programs of Slurm and munge whose command line or environment names the lab's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            program = command.partition(b"\0")[0]
            named = str(folder).encode() in command + (process / "environ").read_bytes()
            if named and (b"slurm" in program or b"munge" in program):
                found.append(program.decode())
    return found


def test_a_job_runs_on_every_node(lab):
    nodes = lab.run("srun", "-N4", "sh", "-c", "echo $SLURMD_NODENAME").split()

    assert sorted(nodes) == ["n1", "n2", "n3", "n4"]


def test_a_batch_job_is_accepted_and_completes(lab, tmp_path):
    marker = tmp_path / "ran"

    number = lab.run("sbatch", "--parsable", f"--output={tmp_path}/out", f"--wrap=touch {marker}")

    deadline = time.monotonic() + 20
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert number.isdigit()
    assert marker.exists()


def test_a_lab_that_is_taken_down_leaves_no_process_and_no_file():
    reason = laboratory.missing()
    if reason:
        pytest.skip(reason)
    with laboratory.lab(nodes=2) as cluster:
        cluster.run("sbatch", "--output=/dev/null", "--wrap=sleep 60")
        assert _daemons_of(cluster.folder)

    assert _daemons_of(cluster.folder) == []
    assert not cluster.folder.exists()
