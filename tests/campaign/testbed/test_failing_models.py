"""Testbeds whose models fail, for real: `status` tells it, `up` mends it, `down` takes all away, and nobody hangs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from campaign.storage.emulation import unbounded
from campaign.testbed import apply
from campaign.testbed.spec import Model, Wanted
from campaign.testbed.state import inspect
from jobs.system import emulated
from tests.campaign.testbed.models import DISK, FLASH, needed
from tests.campaign.testbed.test_testbed import traces
from tests.campaign.testbed.testbeds import HDD, SSD, required

OWNER = (0, 0)
BYTES = os.urandom(3_000_000)


def physical(kind, parameters, speed):
    rates = ("read_mb_per_s", "write_mb_per_s")
    return Wanted(speed, 64_000_000, Model(kind, {key: parameters[key] for key in parameters if key not in rates}))


ONE = {"hdd": physical("disk", DISK, HDD)}
BOTH = ONE | {"ssd": physical("flash", FLASH, SSD)}


@pytest.fixture
def bed(tmp_path, monkeypatch):
    needed()
    required()
    monkeypatch.setattr(emulated, "_PATIENCE_S", 0.3)
    folder = tmp_path / "bed"
    yield folder
    if folder.exists():
        apply.down(folder)
    assert traces(folder) == []


def made(bed, asked=ONE):
    """A testbed with a file on its hdd, written through to the device."""
    apply.up(bed, asked, OWNER)
    file = bed / "hdd/data/file"
    with file.open("wb") as out:
        out.write(BYTES)
        os.fsync(out.fileno())
    return file


def server(bed, name="hdd"):
    return inspect(bed).storages[name].server


def missing(bed):
    return apply.states(inspect(bed))["hdd"]["missing"]


def stop(bed):
    os.kill(server(bed).pid, signal.SIGSTOP)


def kill(bed):
    os.kill(server(bed).pid, signal.SIGKILL)


def fault(text):
    def give(bed):
        with suppress(OSError):  # who disconnects does not answer
            (bed / "hdd.model/faults").write_text(text)

    return give


FAILURES = {"kill": kill, "stop": stop, "hang": fault("hang 1"), "disconnect": fault("disconnect 1")}


@contextmanager
def reader(file, *, there):
    """Another process that has the file open, and reads what is not cached of it, again and again."""
    if not there:
        yield
        return
    script = (
        "import os, sys\nfile = os.open(sys.argv[1], os.O_RDONLY)\nprint(flush=True)\n"
        "while True:\n    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)\n    os.pread(file, 1 << 20, 0)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as other:
        other.stdout.readline()
        yield
        other.kill()
        other.wait(10)  # not in state D, in which nothing can be killed


@pytest.mark.parametrize("opened", [False, True], ids=["idle", "in use"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_that_fails_is_told_and_mended_and_what_was_written_is_there(bed, failure, opened):
    file = made(bed)
    with reader(file, there=opened):
        FAILURES[failure](bed)
        told = missing(bed)
        refused = unbounded([str(file.parent)])
        apply.up(bed, ONE, OWNER)
        found = file.read_bytes()

    assert told.startswith(("kill -KILL", "umount --lazy"))
    assert "its model does not serve" in refused
    assert missing(bed) is None
    assert unbounded([str(file.parent)]) is None
    assert hashlib.sha256(found).digest() == hashlib.sha256(BYTES).digest()


@pytest.mark.parametrize("opened", [False, True], ids=["idle", "in use"])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_that_fails_is_taken_away_whoever_waits_for_it(bed, failure, opened):
    with reader(made(bed), there=opened):
        FAILURES[failure](bed)
        apply.down(bed)
        assert traces(bed) == []
    done = subprocess.run(["losetup", "--list", "--noheadings", "-O", "BACK-FILE"], capture_output=True, check=True)

    assert b"/device\n" not in done.stdout.splitlines(keepends=True)


def test_faults_and_what_a_file_system_lost_by_them_are_mended_by_up(bed):
    file = made(bed)
    fault("eio_to 1e12\nspike_ms 3")(bed)
    (file.parent / "new").mkdir()
    with pytest.raises(OSError, match=r"Input/output error|Read-only"):
        os.sync() or (file.parent / "newer").mkdir()
    read_only = inspect(bed).storages["hdd"].failed

    apply.up(bed, ONE, OWNER)
    (file.parent / "newer").write_bytes(BYTES)

    assert read_only
    assert not any(emulated.served(bed / "hdd.model")["faults"].values())
    assert file.read_bytes() == BYTES
    fault("spike_every 5")(bed)
    assert missing(bed) == f"echo 'spike_every 0' > {bed}/hdd.model/faults"


def test_other_parameters_are_another_server_and_the_same_bytes_also_after_down_that_keeps(bed):
    file = made(bed, BOTH)
    before = server(bed), server(bed, "ssd")
    slower = Model("disk", {**ONE["hdd"].model.parameters, "rpm": 5400})

    apply.up(bed, {"hdd": dataclasses.replace(ONE["hdd"], model=slower)}, OWNER)
    after, same = server(bed), server(bed, "ssd")
    found = file.read_bytes()
    apply.down(bed, keep=True)
    left = [each for each in traces(bed) if each != str(bed)]
    apply.up(bed, {"hdd": Wanted(HDD)}, OWNER)  # as before there were models
    throttled = inspect(bed).storages["hdd"]
    apply.up(bed, ONE, OWNER)

    assert after.pid != before[0].pid
    assert "rpm=5400" in after.words
    assert same == before[1]
    assert left == []
    assert (throttled.served, throttled.model_mounted, len(throttled.loops)) == ((), False, 1)
    assert found == file.read_bytes() == BYTES


def test_a_command_line_like_a_servers_is_no_server(bed):
    made(bed)
    real = server(bed)
    words = [f"{bed}/storage_model-0", f"{bed}/hdd.model", "-"]
    theirs = subprocess.Popen(
        words, executable="/bin/cat", user=65534, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    seen, there = server(bed), theirs.poll() is None
    theirs.communicate()

    assert there
    assert seen == real


def test_who_is_not_root_sees_the_status():
    needed()
    required()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # pytest's folders are root's alone
        Path(folder).chmod(0o755)
        bed = Path(folder, "bed")
        made(bed)
        try:
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                os._exit(apply.states(inspect(bed))["hdd"]["state"] != "up")
            assert os.waitpid(child, 0)[1] == 0
        finally:
            apply.down(bed)
