"""The command line as its user speaks it, for real: TensorFlow, submitit, the page cache, signals, full disks."""

import contextlib
import fcntl
import os
import re
import signal

import psutil
import pytest
from PIL import Image

from tests.campaign.command_line import TINY
from tests.judged import records_of
from tests.slurm.campaigns import wait

LONG = (*TINY, "runs=9")
SMALL_DISK = "3m"


def _records(folder):
    return {recorded["cell"]["id"]: recorded for recorded in records_of(folder / "results")}


def _measured_some(folder):
    return any(run["status"] == "valid" for record in _records(folder).values() for run in record["runs"][1:])


def _processes_in(folder):
    """Processes of a campaign: those whose command line or working folder is in `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.long
def test_a_killed_worker_loses_at_most_the_run_in_progress(command):
    front = command.start("-m", "threads=1,2", *LONG)
    wait(lambda: _measured_some(command.cwd))
    (worker,) = [process for process in _processes_in(command.cwd) if "campaign.worker" in process.cmdline()]
    before = [run for record in _records(command.cwd).values() for run in record["runs"] if run["status"] == "valid"]

    worker.kill()
    _, said = front.communicate(timeout=240)

    assert front.returncode == 3
    assert "the worker ended with 2 unfinished cells" in said
    assert _processes_in(command.cwd) == []
    status = command("status")
    assert "2 interrupted" in status.stdout  # the one under way, and the one behind it
    assert command("-m", "threads=1,2", *LONG).returncode == 0
    after = [run for record in _records(command.cwd).values() for run in record["runs"]]
    assert all(run in after for run in before)
    assert sum(run["role"] == "measured" and run["status"] == "valid" for run in after) == 16


@pytest.mark.long
def test_ctrl_c_stops_the_worker_and_the_same_command_goes_on(command):
    front = command.start("-m", "threads=1,2", *LONG)
    wait(lambda: _measured_some(command.cwd))

    second = command("-m", "threads=8", *TINY)
    os.killpg(front.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, said = front.communicate(timeout=240)

    assert second.returncode == 3
    assert f"another campaign is running in {command.cwd}/results (process {front.pid} on" in second.stderr
    assert front.returncode == 130
    assert "the same command continues from here" in said
    assert "Traceback" not in said
    assert _processes_in(command.cwd) == []
    stopped = [run for record in _records(command.cwd).values() for run in record["runs"] if run["status"] == "failed"]
    assert len(stopped) <= 1
    assert command("-m", "threads=1,2", *LONG).returncode == 0


@pytest.mark.long
def test_a_killed_front_process_leaves_its_worker_and_the_next_one_waits_for_it(command):
    words = ("-m", "threads=1,2", *TINY, "runs=24")  # two commands start while they run
    front = command.start(*words)
    wait(lambda: _measured_some(command.cwd))

    front.kill()
    front.wait()
    told = command("status")
    again = command(*words)
    front.communicate()  # its pipes stay open as long as its worker lives

    assert "1 running" in told.stdout
    assert again.returncode == 0
    assert re.search(r"a worker of an earlier command \(process \d+\) is still running", again.stderr)
    runs = [run for record in _records(command.cwd).values() for run in record["runs"]]
    assert len(runs) == 48
    assert {run["status"] for run in runs} <= {"valid", "invalid"}  # a neighbour may spoil one


@pytest.mark.long
def test_a_truncated_image_is_named_and_the_campaign_says_that_it_failed(command):
    images = command.cwd / "images" / "cats"
    images.mkdir(parents=True)
    for number in range(16):
        Image.effect_noise((64, 64), 50).convert("RGB").save(images / f"{number}.jpg")
    whole = (images / "7.jpg").read_bytes()
    (images / "7.jpg").write_bytes(whole[: len(whole) // 2])
    limits = [word for word in TINY if word.startswith("checks.")]
    words = ["dataset=folder", "dataset.path=images", "batch_size=4", "runs=2", *limits]

    broken = command(*words)
    (cell,) = _records(command.cwd)
    shown = command("show", cell)
    (images / "7.jpg").write_bytes(whole)
    changed = command(*words)
    mended = command(*words, "redo=true")

    assert (broken.returncode, shown.returncode) == (1, 1)
    assert "1 unreadable:" in broken.stdout
    assert "unreadable   " in shown.stdout
    assert "cats/7.jpg: jpeg::Uncompress failed" in shown.stdout
    assert changed.returncode == 2
    assert "was measured on other data (checksum was" in changed.stderr
    assert mended.returncode == 0
    assert sorted(path.name for path in images.iterdir()) == sorted(f"{number}.jpg" for number in range(16))


@pytest.mark.long
def test_a_run_that_hangs_is_killed_at_its_limit_and_told(command):
    """The storage hangs: a file that is opened blocks, as on a dead NFS server; here a lease does it.

    The work is done in the front process (cluster=debug).
    """
    words = ("threads=1", "cluster=debug", *TINY)
    assert command("--dry-run", *words).returncode == 0
    assert command(*words, "runs=2").returncode == 0
    victim = min(command.cwd.glob("data/datasets/*/*/*.jpg"))
    fd = os.open(victim, os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    signal.signal(signal.SIGIO, signal.SIG_IGN)

    done = command(*words, "run_timeout_s=3", "redo=true")
    os.close(fd)

    (record,) = _records(command.cwd).values()
    assert done.returncode == 1
    assert [run["status"] for run in record["runs"]] == ["failed", "failed"]
    assert "still running after run_timeout_s=3, killed" in record["reason"]


@pytest.mark.long
def test_no_space_for_a_record_loses_nothing_and_the_same_command_finishes(command, small_disk):
    words = ("-m", "threads=1,2", *LONG, f"campaign_dir={small_disk}/results")
    front = command.start(*words)
    records = lambda: records_of(small_disk / "results")  # noqa: E731
    wait(lambda: any(len(record["runs"]) > 2 for record in records()))

    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    _, said = front.communicate(timeout=240)
    kept = [run for record in records() for run in record["runs"] if run["status"] == "valid"]
    ballast.unlink()
    again = command(*words)

    assert front.returncode == 3, said
    assert "No space left" in said
    assert len(kept) >= 2
    assert again.returncode == 0, again.stderr
    assert all(run in [run for record in records() for run in record["runs"]] for run in kept)
