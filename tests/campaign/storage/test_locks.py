from __future__ import annotations

import errno
import os
import select
import subprocess
import sys

import pytest
from filelock import FileLock, Timeout

from campaign.errors import EnvironmentFaultError
from campaign.storage.locks import doubt, held, lock_path, locked

_HOLDER = """
import sys, time
from pathlib import Path
from campaign.storage.locks import held
print("begun", flush=True)
with held("lock", Path(sys.argv[1]), {}):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """A function that starts another process that wants the storage, and holds it until its stdin ends."""
    started = []

    def start():
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", _HOLDER, str(tmp_path / "lock")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        )
        assert started[-1].stdout.readline() == "begun\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _says_within(process, seconds):
    return bool(select.select([process.stdout], [], [], seconds)[0])


@pytest.mark.parametrize(
    ("how", "job", "proof"),
    [
        ("license", {"Licenses": "lustre:1"}, {"how": "license", "licenses": "lustre:1"}),
        ("license", {}, {"how": "license", "licenses": None}),
        ("singleton", {"JobName": "tfio-hdd-1"}, {"how": "singleton", "job_name": "tfio-hdd-1"}),
        ("none", {"Licenses": "lustre:1"}, {"how": "none"}),
    ],
)
def test_what_slurm_does_is_proved_by_what_it_granted_and_no_file_is_locked(how, job, proof, tmp_path):
    lock = tmp_path / "lock"

    with held(how, lock, job) as given:
        assert given == proof

    assert not lock.exists()


def test_a_lock_is_proved_by_its_file_and_the_wait_for_it(tmp_path):
    lock = tmp_path / "lock"

    with held("lock", lock, {"Licenses": "lustre:1"}) as proof, pytest.raises(Timeout):
        FileLock(lock).acquire(timeout=0)

    assert (proof["how"], proof["lock"]) == ("lock", str(lock))
    assert 0 <= proof["waited_s"] < 1


def test_the_lock_is_let_go_when_a_run_fails(tmp_path):
    lock = tmp_path / "lock"

    with pytest.raises(ZeroDivisionError), held("lock", lock, {}):
        raise ZeroDivisionError

    with FileLock(lock).acquire(timeout=0) as again:
        assert again.is_locked


def test_another_process_waits_until_the_storage_is_let_go(holder):
    first = holder()
    assert first.stdout.readline() == "held\n"
    second = holder()
    waited = not _says_within(second, 0.3)

    first.stdin.write("\n")

    assert waited
    assert _says_within(second, 20)
    assert second.stdout.readline() == "held\n"


def test_a_process_that_is_killed_does_not_keep_the_storage(holder, tmp_path):
    first = holder()
    assert first.stdout.readline() == "held\n"

    first.kill()
    first.wait()

    with FileLock(tmp_path / "lock").acquire(timeout=1) as again:
        assert again.is_locked


def test_another_user_of_the_storage_can_take_the_lock_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        with held("lock", tmp_path / "lock", {}):
            mode = (tmp_path / "lock").stat().st_mode & 0o777
    finally:
        os.umask(before)

    assert mode == 0o666


def test_a_file_system_without_locks_is_the_environment_s_fault(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))  # Lustre, mounted with noflock

    monkeypatch.setattr("fcntl.flock", flock)

    with pytest.raises(EnvironmentFaultError, match=r"cannot lock .*not implemented") as caught, _held(tmp_path):
        pass

    assert "-o flock" in caught.value.hint
    assert "storage.exclusive=license" in caught.value.hint


def _held(folder):
    return held("lock", folder / "lock", {})


@pytest.mark.parametrize(
    ("granted", "asked", "proved"),
    [
        ("lustre:1", "lustre:1", True),
        ("matlab:2,lustre:1", "lustre:1", True),
        ("lustre", "lustre:1", True),
        ("lustre@db:1", "lustre@db:1", True),
        ("lustre2:1", "lustre:1", False),
        ("(null)", "lustre:1", False),
        (None, "lustre:1", False),
        ("nvme:1", "nvme:1,lustre:1", False),
    ],
)
def test_a_licence_is_proved_by_its_name_in_what_slurm_granted(granted, asked, proved):
    said = doubt({"how": "license", "licenses": granted}, {"license": asked})

    assert (said is None) == proved
    assert proved or asked in said


def test_what_is_no_licence_needs_none():
    assert doubt({"how": "lock"}, {"license": "lustre:1"}) is None


def test_a_storage_is_locked_in_its_root(tmp_path):
    assert lock_path(tmp_path, tmp_path / "results") == tmp_path / ".tfio-campaign.lock"


def test_a_read_only_storage_is_locked_in_the_campaign_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("campaign.storage.locks.os.access", lambda *_: False)

    assert lock_path(tmp_path / "root", tmp_path / "results").parent == tmp_path / "results"


def test_a_storage_that_is_reached_by_two_names_has_one_lock(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "link").symlink_to("storage")

    assert lock_path(tmp_path / "link", tmp_path) == lock_path(tmp_path / "storage", tmp_path)


def test_a_storage_that_is_gone_is_not_made_by_its_lock(tmp_path):
    with pytest.raises(EnvironmentFaultError, match="is gone"):
        locked(tmp_path / "hdd" / "data" / ".lock")

    assert list(tmp_path.iterdir()) == []
