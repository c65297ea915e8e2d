"""What `doctor` looks at, and what it makes of it."""

import errno
import os

import pytest

from campaign.cli import doctor
from campaign.doctor import node
from campaign.errors import UsageError
from jobs.system.device import mount_of

MEMORY = "/dev/shm"  # noqa: S108 - the storage that is under test


def _found(root, *, cold, exclusive="lock"):
    storage = {"name": "s", "root": str(root), "cold": cold, "exclusive": exclusive}
    return {finding.what: finding for finding in node.storage(storage)}


@pytest.mark.skipif(mount_of(MEMORY).fstype != "tmpfs", reason="no file system in memory here")
@pytest.mark.parametrize(("cold", "passed"), [(True, False), (False, None)])
def test_memory_is_a_storage_where_no_cell_asks_that_it_is_cold(cold, passed):
    found = _found(MEMORY, cold=cold)

    assert (found["storage"].passed, found["cold"].passed) == (passed, passed)


def test_a_storage_without_locks_is_found_out_where_it_is_to_be_locked(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    well = _found(tmp_path, cold=False)["lock"]
    monkeypatch.setattr("fcntl.flock", flock)

    assert well.passed
    assert _found(tmp_path, cold=False)["lock"].passed is False
    assert "lock" not in _found(tmp_path, cold=False, exclusive="license")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "looked_at"),
    [
        ("cache=cold", {"local": (True, "lock")}),
        ("cache=warm", {"local": (False, "lock")}),
        ("cache=as_is", {"local": (False, "lock")}),
        ("cache=as_is,cold", {"local": (True, "lock")}),
        (
            "benchmark=alexnet storage.exclusive=none checkpoint=hdd checkpoint.root=. checkpoint.every=2",
            {"local": (True, "none"), "hdd": (False, "lock")},
        ),
    ],
)
def test_a_storage_is_looked_at_for_what_it_is_to_do(words, looked_at, tmp_path, monkeypatch):
    seen = {}

    def machine(storages, _):
        seen.update({storage["name"]: (storage["cold"], storage["exclusive"]) for storage in storages})
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(node, "machine", machine)

    assert doctor.main(["-m", "cluster=local", *words.split()]) == 0
    assert seen == looked_at


def test_a_relative_root_that_each_node_has_for_itself_is_refused():
    with pytest.raises(UsageError, match=r"needs an absolute storage\.root"):
        doctor.main(["cluster=slurm", "storage.shared=false"])
