"""What `doctor` finds out of one machine: what it says just below, at and above each limit."""

import errno
import json
import os
import runpy
import subprocess
import sys
from types import SimpleNamespace

import pytest

from campaign import doctor_node
from campaign.cli import doctor
from jobs.errors import JobError
from jobs.objects.client import BucketSpace
from jobs.system.device import mount_of
from jobs.system.page_cache import Residency

MEMORY = "/dev/shm"  # noqa: S108 - the storage that is under test
GIB, PROBE = 1 << 30, 8 << 20
OTHERS = {"other_cpu": 0.25, "device_bytes": PROBE}
USUAL = {
    "tensorflow": SimpleNamespace(returncode=0, stdout="2.99\n", stderr="a note\n"), "resolution": 1e-9,
    "between": OTHERS, "free": 7 * GIB, "device": "sdx", "flags": 0, "residency": Residency(2048, 0, 0, "m"),
    "reclaim": [],
}  # fmt: skip


@pytest.fixture
def machine(monkeypatch):
    """A quiet machine with a quick clock, a light TensorFlow and a disk; a function that changes what it answers."""

    def answers(**changes):
        given = SimpleNamespace(**USUAL | changes)

        def imported(*_, **__):
            if isinstance(given.tensorflow, Exception):
                raise given.tensorflow
            return given.tensorflow

        monkeypatch.setattr(doctor_node.subprocess, "run", imported)
        monkeypatch.setattr(doctor_node.time, "sleep", lambda _: None)
        monkeypatch.setattr(doctor_node.time, "get_clock_info", lambda _: given)
        monkeypatch.setattr(doctor_node.os, "getloadavg", lambda: (1.25, 2.5, 3.75))
        monkeypatch.setattr(doctor_node.os, "statvfs", lambda _: SimpleNamespace(f_flag=given.flags))
        monkeypatch.setattr(doctor_node.shutil, "disk_usage", lambda _: given)
        monkeypatch.setattr(doctor_node, "device_of", lambda _: given.device and SimpleNamespace(name=given.device))
        monkeypatch.setattr(doctor_node, "mount_of", lambda _: mount_of("/"))
        monkeypatch.setattr(doctor_node.counters, "subtract_readings", lambda *_: given.between)
        monkeypatch.setattr(doctor_node.tunables, "proactive_reclaim", lambda: given.reclaim)
        monkeypatch.setattr(doctor_node.page_cache, "residency", lambda _: given.residency)

    answers()
    return answers


@pytest.fixture
def looked_at(machine, tmp_path):
    """What is found of the machine and of a storage on it, by name, where it answers so."""

    def look(*, checks=0.5, **changes):
        machine(**changes)
        described = {"name": "s", "root": str(tmp_path), "cold": True, "exclusive": "lock"}
        return {
            each.what: each for each in doctor_node.examine_machine([described], {"other_cpu_max": checks}, ["micro"])
        }

    return look


def failed(stderr):
    return SimpleNamespace(returncode=1, stdout="2.99", stderr=stderr)


@pytest.mark.parametrize(
    ("changes", "what", "told"),
    [
        ({}, "tensorflow", (True, "2.99, import 0.0 s")),
        ({"tensorflow": failed("first\nno such module\n")}, "tensorflow", (False,
         "cannot be imported: no such module")),
        ({"tensorflow": failed("")}, "tensorflow", (False, "nothing was printed")),
        ({"tensorflow": subprocess.TimeoutExpired("python", 1)}, "tensorflow", (False, "import took over 300 s")),
        ({"resolution": 1e-6}, "clock", (True, "resolution 1000 ns")),
        ({"resolution": 1.1e-6}, "clock", (None, "resolution 1100 ns")),
        ({}, "load", (True, "other programs keep 0.25 cores busy, load average 1.25")),
        ({"checks": 0.25}, "load", (True, "0.25")),
        ({"checks": 0.24}, "load", (None, "0.25")),
        ({"between": {**OTHERS, "other_cpu": None}}, "load", (True, "other programs keep 0.00 cores")),
        ({}, "storage", (True, ", 7.5 GB free, device sdx")),
        ({"free": 3 * GIB}, "storage", (True, ", 3.2 GB free")),
        ({"free": 3 * GIB - 1}, "storage", (None, ", 3.2 GB free")),
        ({"device": None}, "storage", (None, "7.5 GB free")),
        ({}, "write", (True, "can be written")),
        ({"flags": os.ST_RDONLY}, "write", (True, "is read-only")),
        ({}, "cold", (True, "100% read from the device")),
        ({"between": {**OTHERS, "device_bytes": PROBE + 4096}}, "cold", (True, "100% read")),
        ({"between": {**OTHERS, "device_bytes": PROBE - 1}}, "cold", (False, "100% read")),
        ({"between": {**OTHERS, "device_bytes": PROBE // 2}}, "cold", (False, "50% read")),
        ({"between": {**OTHERS, "device_bytes": None}}, "cold", (False, "unknown read from the device")),
        ({}, "cold", (True, "after eviction 0% resident (m)")),
        ({"residency": Residency(2048, 512, 0, "m")}, "cold", (False, "after eviction 25% resident")),
        ({"residency": Residency(2048, 0, 1, "m")}, "cold", (True, "after eviction an unknown share resident")),
    ],
)  # fmt: skip
def test_a_machine_is_judged_at_its_limits_and_told_with_figures(changes, what, told, looked_at):
    found = looked_at(**changes)

    assert (found[what].passed, told[1] in found[what].message) == (told[0], True), found[what].message
    order = ["tensorflow", "clock", "load", "storage", "write", "lock", "cold"]
    assert [*found] == order[: 5 if "flags" in changes else None]


def test_a_kernel_that_takes_pages_out_of_memory_early_is_named_with_what_that_costs(looked_at):
    assert "reclaim" not in looked_at()

    found = looked_at(reclaim=["/sys/a/state", "/sys/b/enabled"])["reclaim"]

    assert (found.passed, "(/sys/a/state, /sys/b/enabled)" in found.message) == (None, True)
    assert "warm runs may be refused" in found.hint


@pytest.mark.skipif(mount_of(MEMORY).fstype != "tmpfs", reason="no file system in memory here")
@pytest.mark.parametrize(("cold", "passed"), [(True, False), (False, None)])
def test_memory_is_a_storage_where_no_cell_asks_that_it_is_cold(cold, passed):
    described = {"name": "s", "root": MEMORY, "cold": cold, "exclusive": "none"}

    found = {each.what: each.passed for each in doctor_node.examine_storage(described)}

    assert found == {"storage": passed, "write": True, "cold": passed}


@pytest.mark.parametrize(
    ("folders", "own", "passed"),
    [((MEMORY, "."), (True, True), True), ((MEMORY, "."), (True, False), None), ((".", "."), (True, True), None)],
    ids=["each its own", "one goes through the cache of all", "one file system"],
)
def test_ranks_have_a_page_cache_each_where_all_of_them_have(folders, own, passed, tmp_path, monkeypatch):
    for rank, folder in enumerate(folders):
        (tmp_path / f"node{rank}").symlink_to(tmp_path / folder)
    monkeypatch.setattr(doctor_node, "has_own_cache", lambda path: own[int(path.name[-1])])
    described = {"name": "s", "root": str(tmp_path), "node_root": f"{tmp_path}/node{{rank}}", "nodes": 2}

    found = {each.what: each for each in doctor_node.examine_storage({**described, "cold": True, "exclusive": "none"})}

    assert (found["caches"].passed, found["caches"].message.startswith("2 emulated nodes with")) == (passed, True)


@pytest.mark.parametrize(
    ("device", "cold", "room", "passed"),
    [
        ("/dev/sdb", True, None, True),
        (None, False, None, True),
        (None, True, None, None),
        ("/dev/sdb", True, BucketSpace(90, 100), True),
        ("/dev/sdb", True, BucketSpace(91, 100), None),
    ],
)
def test_a_bucket_is_listed_and_its_room_and_its_disk_are_looked_at(device, cold, room, passed, monkeypatch):
    class Client:
        def __init__(self, storage):
            assert storage["retries"] == 0

        list_objects, bucket_space, url_of = (lambda _: iter(())), (lambda _: room), (lambda *_: "s3://b")

    monkeypatch.setattr(doctor_node, "Client", Client)
    (found,) = doctor_node.examine_storage(
        {"kind": "s3", "endpoint": "http://h", "device": device, "cold": cold, "retries": 9}
    )

    assert (found.passed, "s3://b at http://h can be listed" in found.message) == (passed, True)


def test_a_bucket_that_does_not_answer_fails(monkeypatch):
    def refused(_):
        raise JobError("no answer", "see to it")

    monkeypatch.setattr(doctor_node, "Client", refused)

    (found,) = doctor_node.examine_storage({"kind": "s3"})

    assert (found.passed, found.message, found.hint) == (False, "no answer", "see to it")


def test_a_storage_without_locks_is_found_out_where_it_is_to_be_locked(looked_at, tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    well = looked_at()["lock"]
    monkeypatch.setattr("fcntl.flock", flock)

    assert (well.passed, looked_at()["lock"].passed) == (True, False)
    assert list(tmp_path.iterdir()) == []


def test_records_are_to_be_written_where_the_campaign_will_be(tmp_path):
    found = doctor_node.check_campaign_folder(tmp_path / "not" / "there")

    assert (found.passed, found.message) == (True, f"{tmp_path} can be written")
    assert doctor_node.check_python().passed is True


def test_a_node_answers_in_json_with_the_nonce_of_the_request(machine, tmp_path, monkeypatch, capsys):
    asked = {"nonce": "w", "storages": [], "checks": {"other_cpu_max": 1000.0}, "needing_tensorflow": ["micro"]}
    (tmp_path / "request").write_text(json.dumps(asked), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["node", str(tmp_path / "request")])

    with pytest.raises(SystemExit) as ended, pytest.warns(RuntimeWarning):  # it is imported already
        runpy.run_module("campaign.doctor_node", run_name="__main__", alter_sys=True)

    answer = json.loads(capsys.readouterr().out)
    assert (ended.value.code, answer["nonce"], answer["host"]) == (0, "w", os.uname().nodename)
    assert [found["what"] for found in answer["findings"]] == ["tensorflow", "clock", "load"]


@pytest.mark.parametrize(
    ("words", "roles"),
    [
        ("cache=cold", {"local": (True, "lock")}),
        ("cache=warm", {"local": (False, "lock")}),
        ("cache=as_is,cold", {"local": (True, "lock")}),
        ("benchmark=alexnet storage.exclusive=none checkpoint=hdd checkpoint.root=. checkpoint.every=2",
         {"local": (True, "none"), "hdd": (False, "lock")}),
    ],
)  # fmt: skip
def test_a_storage_is_looked_at_for_what_it_is_to_do(words, roles, tmp_path, monkeypatch):
    seen = {}

    def machine(storages, *_):
        seen.update({storage["name"]: (storage["cold"], storage["exclusive"]) for storage in storages})
        return []

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor_node, "examine_machine", machine)

    assert doctor.main(["-m", "cluster=local", *words.split()]) == 0
    assert seen == roles
