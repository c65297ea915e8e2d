import copy
import os
import subprocess

import pytest

from campaign.cells.folder import open_or_create
from campaign.config.collect import make_cells
from campaign.slurm import client
from campaign.worker import __main__ as worker
from tests.campaign.command_line import CommandLine
from tests.campaign.fake_slurm import Clock, Programs
from tests.campaign.work_lists import DIRECT, compose, compose_once, slurm_conduct, work_list


@pytest.fixture(scope="session", autouse=True)
def _composed_once():
    """Hydra takes 0.2 s to compose, and tests of every verb ask for the same few words."""
    with pytest.MonkeyPatch.context() as patch:
        compose_once(patch)
        yield


@pytest.fixture(autouse=True)
def device_locks(monkeypatch):
    """Let a test hold no device: it would wait for the runs of whoever else tests on this machine."""
    monkeypatch.setattr("campaign.storage.locks.device_locks", lambda _: [])


@pytest.fixture
def point():
    """The default configuration."""
    return compose()


@pytest.fixture
def direct_point():
    """The same of a training with snapshots on a storage."""
    return compose(*DIRECT)


@pytest.fixture
def cells(point):
    """Three cells and the conduct."""
    points = [{**copy.deepcopy(point), "threads": threads} for threads in (1, 2, 4)]
    return make_cells(points)


@pytest.fixture
def site(tmp_path):
    """A function that writes the file of a site of the user's own; returns the words that name it."""

    def write(text):
        file = tmp_path / "conf" / "site" / "mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(f"defaults: [none, _self_]\nname: mine\n{text}")
        return "--config-dir", str(tmp_path / "conf"), "site=mine"

    return write


@pytest.fixture
def folder(tmp_path):
    """An open campaign folder."""
    return open_or_create(tmp_path / "results")[0]


@pytest.fixture
def command(tmp_path):
    """Run the command line in an empty folder."""
    return CommandLine(tmp_path)


@pytest.fixture
def work(cells, folder):
    """A work list for three cells, on this machine."""
    return work_list(folder, *cells)


@pytest.fixture
def job(cells, folder):
    """A function that makes the work list of a Slurm job for the three cells."""

    def make(**cluster):
        made, conduct = cells
        return work_list(folder, made, slurm_conduct(conduct, **cluster), "slurm")

    return make


@pytest.fixture
def one(job):
    """The work list of a Slurm job with one cell."""
    work = job()
    work["cells"] = work["cells"][:1]
    return work


@pytest.fixture
def cpus(monkeypatch):
    """As many CPUs as any cell has threads; a function that changes the number."""

    def have(number):
        monkeypatch.setattr(
            worker, "place_of_process", lambda: {"host": "h", "node": "n1", "job": "77", "cpus": number}
        )

    have(4)
    return have


@pytest.fixture
def clock(monkeypatch):
    """A function that gives modules a clock that nobody waits for; returns it."""

    def give(*modules):
        clock = Clock()
        for module in modules:
            monkeypatch.setattr(module, "time", clock)  # not time.sleep itself: subprocess naps with it
        return clock

    return give


@pytest.fixture
def small_disk(tmp_path, request):
    """A file system of 64 kB, or of the size that the test's module has as SMALL_DISK."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "small"
    place.mkdir()
    size = getattr(request.module, "SMALL_DISK", "64k")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Slurm's clients as scripts, the only programs on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(client, "_patience", client._PatienceWithSlurm())  # noqa: SLF001 - of the test before
    return Programs(folder)
