"""Testbeds whose models fail, for real: `status` tells it, `up` mends it, `down` takes all away, and nobody hangs."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.errors import EnvironmentFaultError
from campaign.storage.emulation import emulation_notices, missing_limits
from campaign.testbed import apply, state
from campaign.testbed.spec import Model, StorageRequest
from campaign.testbed.state import inspect_testbed
from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop
from jobs.checkpoints.buffer import DirectTarget
from jobs.checkpoints.restart import latest_snapshot
from jobs.system import layers
from tests.campaign.command_line import TINY
from tests.campaign.testbed.models import DISK, FLASH, built, needed
from tests.campaign.testbed.testbeds import HDD, SSD, required, traces
from tests.campaign.work_lists import compose
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import bytes_of as contents_of
from tests.jobs.checkpoints.shared import reasons
from tests.judged import records_of

OWNER = (0, 0)
QUICK = {"attempts": 2, "backoff_s": 0.01}  # of a drain
BYTES = os.urandom(3_000_000)


def physical(kind, parameters, speed):
    rates = ("read_mb_per_s", "write_mb_per_s")
    return StorageRequest(
        speed, 64_000_000, Model(kind, {key: parameters[key] for key in parameters if key not in rates})
    )


ONE = {"hdd": physical("disk", DISK, HDD)}
BOTH = ONE | {"ssd": physical("flash", FLASH, SSD)}


pytestmark = pytest.mark.long
"""Each test makes storages on loop devices and takes them down again."""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """A folder with a compiler that takes no time: it gives the program that was built once."""
    needed()
    folder = tmp_path_factory.mktemp("compiler")
    (folder / "cc").write_text(f'#!/bin/sh\nexec cp "{built(folder)}" "$3"\n')  # cc -O2 -o PROGRAM
    (folder / "cc").chmod(0o755)
    return folder


@pytest.fixture
def bed(tmp_path, monkeypatch, compiler):
    required()
    monkeypatch.setenv("PATH", f"{compiler}:{os.environ['PATH']}")
    folder = tmp_path / "bed"
    yield folder
    if folder.exists():
        apply.take_down(folder)
    assert traces(folder) == []


def made(bed, asked=ONE):
    """A testbed with a file on its hdd, written through to the device."""
    apply.bring_up(bed, asked, OWNER)
    file = bed / "hdd/data/file"
    with file.open("wb") as out:
        out.write(BYTES)
        os.fsync(out.fileno())
    return file


def server(bed, name="hdd"):
    return inspect_testbed(bed).storages[name].server


def missing(bed):
    return apply.storage_states(inspect_testbed(bed))["hdd"]["missing"]


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


USES = [pytest.param(False, id="idle"), pytest.param(True, id="in use")]


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


@pytest.mark.parametrize("opened", USES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_that_fails_is_told_and_mended_and_what_was_written_is_there(bed, failure, opened):
    file = made(bed)
    with reader(file, there=opened):
        FAILURES[failure](bed)
        told = missing(bed)
        refused = missing_limits([str(file.parent)])
        apply.bring_up(bed, ONE, OWNER)
        found = file.read_bytes()

    assert told.startswith(("kill -KILL", "umount --lazy"))
    assert ("its model injects faults (hang 1)" if failure == "hang" else "its model does not answer") in refused
    assert missing(bed) is None
    assert missing_limits([str(file.parent)]) is None
    assert hashlib.sha256(found).digest() == hashlib.sha256(BYTES).digest()


@pytest.mark.parametrize("opened", USES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_model_that_fails_is_taken_away_whoever_waits_for_it(bed, failure, opened):
    with reader(made(bed), there=opened):
        FAILURES[failure](bed)
        apply.take_down(bed)
        assert traces(bed) == []
    done = subprocess.run(["losetup", "--list", "--noheadings", "-O", "BACK-FILE"], capture_output=True, check=True)

    assert b"/device\n" not in done.stdout.splitlines(keepends=True)


def test_faults_and_what_a_file_system_lost_by_them_are_mended_by_up(bed):
    file = made(bed)
    fault("eio_to 1e12\nspike_ms 3")(bed)
    (file.parent / "new").mkdir()
    with pytest.raises(OSError, match=r"Input/output error|Read-only"):
        os.sync() or (file.parent / "newer").mkdir()
    read_only = inspect_testbed(bed).storages["hdd"].failed

    apply.bring_up(bed, ONE, OWNER)
    (file.parent / "newer").write_bytes(BYTES)

    assert read_only
    assert not any(layers.ask_server(bed / "hdd.model")["faults"].values())
    assert file.read_bytes() == BYTES
    fault("spike_every 5")(bed)
    assert missing(bed) == f"echo 'spike_every 0' > {bed}/hdd.model/faults"


def test_other_parameters_are_another_server_and_the_same_bytes_also_after_down_that_keeps(bed):
    file = made(bed, BOTH)
    before = server(bed), server(bed, "ssd")
    slower = Model("disk", {**ONE["hdd"].model.parameters, "rpm": 5400})

    apply.bring_up(bed, {"hdd": dataclasses.replace(ONE["hdd"], model=slower)}, OWNER)
    after, same = server(bed), server(bed, "ssd")
    found = file.read_bytes()
    apply.take_down(bed, keep=True)
    left = [each for each in traces(bed) if each != str(bed)]
    apply.bring_up(bed, {"hdd": StorageRequest(HDD)}, OWNER)  # as before there were models
    throttled = inspect_testbed(bed).storages["hdd"]
    apply.bring_up(bed, ONE, OWNER)

    assert after.pid != before[0].pid
    assert "rpm=5400" in after.server_arguments
    assert same == before[1]
    assert left == []
    assert (throttled.model_loops, throttled.model_mounted, len(throttled.loops)) == ((), False, 1)
    assert found == file.read_bytes() == BYTES


@pytest.mark.parametrize("user", [65534, 0])
def test_a_command_line_like_a_servers_is_no_server(bed, user):
    made(bed)
    real = server(bed)
    words = [f"{bed}/storage_model-0", f"{bed}/hdd.model", "-"]
    theirs = subprocess.Popen(words, executable="/bin/cat", user=user, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    seen, there = server(bed), theirs.poll() is None
    theirs.communicate()

    assert there
    assert seen == real


def test_who_is_not_root_sees_the_status_also_beside_a_testbed_that_is_roots_alone(tmp_path):
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
                apart = state._is_of_another(str(tmp_path / "bed/hdd.img"), bed)  # noqa: SLF001 - else one is to be made
                os._exit(apart or apply.storage_states(inspect_testbed(bed))["hdd"]["state"] != "up")
            assert os.waitpid(child, 0)[1] == 0
        finally:
            apply.take_down(bed)


@pytest.mark.parametrize("linked", [False, True])
def test_a_campaign_touches_nothing_of_a_storage_that_does_not_answer(bed, tmp_path, linked):
    root = made(bed).parent
    if linked:
        (tmp_path / "link").symlink_to("bed/hdd")
        root = tmp_path / "link/data"
    cell = make_cell(compose("storage.name=hdd", f"storage.root={root}"))
    before = emulation_notices([cell])
    stop(bed)

    with pytest.raises(EnvironmentFaultError, match=r"the emulated storage hdd, .*hdd\.model, does not answer"):
        emulation_notices([cell])

    assert before == ["hdd is emulated: at most 163 MB/s read, 133.14 MB/s written, by a disk model"]


@pytest.mark.filterwarnings("ignore:the drain")  # it may have failed before the next snapshot is taken
@pytest.mark.parametrize("text", ["eio_to 1e12", "disconnect 1"])
def test_what_a_failing_storage_did_not_take_stays_on_the_fast_one_and_is_drained_when_it_is_mended(bed, text):
    apply.bring_up(bed, BOTH, OWNER)
    fast, slow = bed / "ssd/data/fast", bed / "hdd/data/slow"
    with closing(DirectTarget(bed / "hdd/data/direct")) as target, closing(BurstBuffer(fast, slow, **QUICK)) as buffer:
        target.save(1, writer(1))
        buffer.save(1, writer(1))
        assert buffer.wait_until_drained(60)
        fault(text)(bed)
        with pytest.raises(OSError, match=r"Input/output error|Read-only"):
            target.save(2, writer(2))
        saved = buffer.save(2, writer(2))
        drained, why = buffer.wait_until_drained(60), " ".join(reasons(fast))
    kept = contents_of(saved.path)

    apply.bring_up(bed, BOTH, OWNER)
    left = drain_loop.drain_snapshots(fast, slow)

    assert not drained
    assert re.search("Input/output error|Read-only", why)
    assert kept == contents(2)
    assert left == 0
    assert contents_of(latest_snapshot(fast, slow)) == contents(2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("eio_to 1e12", "complete: 0 of 24 images delivered, 24 unreadable"),
        ("disconnect 1", "complete: 0 of 24 images delivered, 24 unreadable"),
        ("hang 1", "still running after run_timeout_s=15"),
        ("spike_every 4\nspike_ms 50", "unspoiled: faults were injected into "),
    ],
    ids=["errors", "gone", "hangs", "spikes"],
)
def test_a_fault_during_a_run_ends_it_in_time_and_its_figure_does_not_count(bed, command, text, why):
    apply.bring_up(bed, ONE, OWNER)
    records = command.cwd / "results/records"
    words = (*TINY, "threads=1", "storage.name=hdd", f"storage.root={bed}/hdd/data", "cluster=local")

    process = command.start(*words, "run_timeout_s=15")
    while not list(records.glob("*/run-1.log")):
        assert process.poll() is None
        time.sleep(0.01)
    fault(text)(bed)
    told = process.communicate(timeout=120)[1]
    (recorded,) = records_of(command.cwd / "results")
    warm_up, measured, after = recorded["runs"]

    assert process.returncode == 1
    assert warm_up["status"] == "valid"
    assert measured["status"] == ("failed" if "running" in why else "invalid")
    assert measured["reason"].startswith(why)
    assert after["status"] == "failed"
    assert "testbed up" in after["reason"]
    assert "testbed up" in told


@pytest.mark.parametrize("text", ["eio_to 1e12", "hang 1"], ids=["errors", "hangs"])
def test_a_fault_while_a_data_set_is_made_is_told_and_the_same_command_makes_it_whole(bed, command, text):
    apply.bring_up(bed, ONE, OWNER)
    data = bed / "hdd/data"
    tiny = [word for word in TINY if not word.startswith("dataset.files")]
    words = (*tiny, "dataset.files=300", "threads=1", "storage.name=hdd", f"storage.root={data}", "cluster=local")

    process = command.start(*words)
    while not list(data.glob("**/*.jpg")):
        assert process.poll() is None
        time.sleep(0.005)
    fault(text)(bed)
    if "hang" in text:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=3)
        apply.bring_up(bed, ONE, OWNER)
    told = process.communicate(timeout=60)[1]
    apply.bring_up(bed, ONE, OWNER)
    again = command(*words)

    assert process.returncode not in (0, 1)
    assert re.search("Input/output error|Read-only|not connected", told), told
    assert "Traceback" not in told
    assert again.returncode == 0, again.stderr
    assert len(list(data.glob("**/*.jpg"))) == 300
