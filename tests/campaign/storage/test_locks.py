import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock, Timeout

from campaign.errors import EnvironmentFaultError
from campaign.storage.locks import acquire_lock, device_locks, hold_storage, lock_path
from jobs.system.device import device_of
from tests.lies import setup

_HOLDER = """
from jobs.model.codes import wait_sentence
import sys
from pathlib import Path
from campaign.storage.locks import hold_storage
lock, *also = map(Path, sys.argv[1:])
with hold_storage("lock", lock, {}, also, lambda wait: print(wait_sentence(wait), flush=True)):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """A function that starts another process that wants the storage, and holds it until its stdin ends."""
    started = []

    def start(*also, name="lock"):
        command = [sys.executable, "-c", _HOLDER, str(tmp_path / name), *map(str, also)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


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

    with hold_storage(how, lock, job) as given:
        assert given == proof

    assert not lock.exists()


def test_a_lock_is_proved_by_its_file_which_another_user_can_take_whatever_the_umask(tmp_path, monkeypatch):
    lock, ticks = tmp_path / "lock", itertools.count(100.0, 12.5)
    monkeypatch.setattr("campaign.storage.locks.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    before = os.umask(0o077)

    try:
        with hold_storage("lock", lock, {"Licenses": "lustre:1"}) as proof, pytest.raises(Timeout):
            FileLock(lock).acquire(timeout=0)
    finally:
        os.umask(before)

    assert proof == {"how": "lock", "lock": str(lock), "waited_s": 12.5}
    assert lock.stat().st_mode & 0o777 == 0o666


def test_the_lock_is_let_go_when_a_run_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), hold_storage("lock", tmp_path / "lock", {}):
        raise ZeroDivisionError

    with FileLock(tmp_path / "lock").acquire(timeout=0) as again:
        assert again.is_locked


def test_another_process_waits_says_for_whom_and_has_the_storage_when_it_is_let_go(holder):
    first = holder()
    assert first.stdout.readline() == "held\n"
    second = holder()
    assert f"held by process {first.pid} of " in second.stdout.readline()

    first.stdin.write("\n")

    assert second.stdout.readline() == "held\n"


def test_two_campaigns_on_one_device_wait_for_each_other_whatever_their_roots(holder, tmp_path, staged):
    disk = staged(setup.disk, tmp_path / "image", tmp_path / "mounted")
    places = [disk.point / name for name in ("a", "b")]
    for place in places:
        place.mkdir()
    (lock, *_), (same, *_) = (device_locks([str(place)]) for place in places)
    assert lock == same == Path("/sys/block", disk.device, "stat")
    first = holder(lock, name="mounted/a/lock")
    assert first.stdout.readline() == "held\n"
    second = holder(lock, name="mounted/b/lock")

    assert second.stdout.readline().startswith(f"the device {disk.device}, held by process {first.pid} of ")
    first.kill()

    assert second.stdout.readline() == "held\n"


def test_all_devices_behind_a_storage_are_locked_and_of_one_that_is_gone_none(tmp_path, staged):
    disk = staged(setup.disk, tmp_path / "image", tmp_path / "mounted")
    below = device_of(tmp_path)

    found = [lock.parent.name for lock in device_locks([str(disk.point), str(tmp_path), str(tmp_path / "gone")])]

    assert found == sorted({disk.device, below.name})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_device_can_be_locked_by_a_user_who_owns_nothing(tmp_path, staged):
    lock = Path("/sys/block", staged(setup.disk, tmp_path / "image", tmp_path / "mounted").device, "stat")
    pid = os.fork()
    if not pid:
        os.setgroups([])
        os.setuid(65534)
        with acquire_lock(lock):
            os._exit(0)

    assert os.waitpid(pid, 0)[1] == 0


def test_a_file_system_without_locks_is_the_environment_s_fault(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))  # Lustre, mounted with noflock

    monkeypatch.setattr("fcntl.flock", flock)

    with (
        pytest.raises(EnvironmentFaultError, match=r"cannot lock .*not implemented") as caught,
        hold_storage("lock", tmp_path / "lock", {}),
    ):
        pass

    assert "-o flock" in caught.value.hint
    assert "storage.exclusive=license" in caught.value.hint


def test_a_read_only_storage_is_locked_in_the_campaign_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("campaign.storage.locks.os.access", lambda *_: False)

    assert lock_path(tmp_path / "root", tmp_path / "results").parent == tmp_path / "results"


@pytest.mark.parametrize(
    ("data", "place"), [("data", "results"), (".", "results"), ("data/images", "data"), (None, "data")]
)
def test_nothing_is_written_to_a_users_own_data_that_are_the_root_of_a_storage_or_hold_it(data, place, tmp_path):
    (tmp_path / "data").mkdir()

    assert lock_path(tmp_path / "data", tmp_path / "results", data and str(tmp_path / data)).parent == tmp_path / place


def test_a_storage_that_is_reached_by_two_names_has_one_lock(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "link").symlink_to("storage")

    locks = {lock_path(tmp_path / name, tmp_path) for name in ("link", "storage")}

    assert locks == {tmp_path / "storage" / ".tfio-campaign.lock"}


def test_a_storage_that_is_gone_is_not_made_by_its_lock(tmp_path):
    with pytest.raises(EnvironmentFaultError, match="is gone"):
        acquire_lock(tmp_path / "hdd" / "data" / ".lock")

    assert list(tmp_path.iterdir()) == []
