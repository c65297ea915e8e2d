"""A burst buffer whose slow side is a bucket: whatever is killed, a snapshot is whole or invisible, and none lost."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import obstore
import psutil
import pytest

from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, drain_process, snapshots
from jobs.checkpoints.lease import MARKER_NAME
from jobs.objects import faults
from jobs.objects.address import address_of, storage_of
from jobs.store import bucket as objects
from jobs.store.bucket import Bucket
from jobs.system import clock, files
from tests.ceph.test_lab import store
from tests.jobs.checkpoints import child
from tests.jobs.checkpoints.child import contents, writer
from tests.jobs.checkpoints.shared import by_hand, drainer_ended, in_this_process, reasons, snapshots_in

pytestmark = pytest.mark.long

QUICK = {"attempts": 2, "backoff_s": 0.1}


@pytest.fixture
def places(storage, tmp_path, monkeypatch):
    """A fast folder, and the address of a prefix that is empty; files of more than 100 kB have several objects."""
    monkeypatch.setattr(objects, "PIECE_BYTES", 100_000)
    monkeypatch.setattr(drain_process, "COMMAND", (sys.executable, child.__file__, "drain"))
    return tmp_path / "fast", address_of({**storage, "timeout_s": 2.0})


@pytest.fixture
def idle(monkeypatch):
    """No drainer is started but by hand."""
    monkeypatch.setattr(drain_process.Drainer, "poke", lambda self: None)


def drained(places):
    return drain_loop.drain_snapshots(*places)


def keys(ceph, places):
    """What lies in the bucket below the prefix, as a client that knows nothing of us lists it."""
    prefix = storage_of(places[1])["prefix"] + "/"
    pages = obstore.list(store(ceph), prefix)
    return {each["path"].removeprefix(prefix): prefix for page in pages for each in page}


def complete(ceph, places):
    """The steps of all snapshots with a manifest, each of which is compared with what was saved, byte for byte."""
    there, found = keys(ceph, places), []
    for manifest in [key for key in there if key.endswith("/manifest.json")]:
        try:
            found.append(whole(ceph, there[manifest], manifest))
        except FileNotFoundError:  # a drainer that was killed has asked for it to be deleted: the manifest goes first
            assert manifest not in keys(ceph, places)
    return sorted(found)


def whole(ceph, prefix, manifest):
    """The step of a snapshot that is what was saved."""
    told = json.loads(bytes(obstore.get(store(ceph), prefix + manifest).bytes()))
    folder, number, held = manifest.partition("/")[0], 0, {}
    for name, size, _ in told["files"]:
        held[name] = b""
        while len(held[name]) < size:
            held[name] += bytes(obstore.get(store(ceph), f"{prefix}{folder}/files/{number:06d}").bytes())
            number += 1
    assert held == contents(told["step"])
    return told["step"]


def end_drainers(fast):
    """Kill all drainers of a folder: a trainer whose drainer was killed has started another one."""
    while found := [each for each in psutil.process_iter(["cmdline"]) if str(fast) in (each.info["cmdline"] or ())]:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(found, timeout=60)


def test_snapshots_come_to_the_bucket_whole_and_only_the_newest_stay(ceph, places, capsys):
    with contextlib.closing(BurstBuffer(*places, keep=2, streams=2)) as buffer:
        for step in range(4):
            buffer.save(step, writer(step))
        assert buffer.wait_until_drained(60)
        report = buffer.report(clock.current_moment())

    drainer_ended(places[0])
    assert complete(ceph, places) == [2, 3]
    assert all(line["durable_slow_s"] > 0 and line["retries"] == 0 for line in report)
    assert {key.partition("/")[0] for key in keys(ceph, places)} == {MARKER_NAME, *snapshots_in(places[1]).names()}
    said = in_this_process(capsys, "list", "--verify", *places)[1].splitlines()
    assert [line.split()[1::2] for line in said] == [["complete", "good"]] * 4


def test_what_is_cleared_by_hand_is_ours_alone_and_nothing_while_a_trainer_lives(ceph, places, idle):
    with contextlib.closing(BurstBuffer(*places)) as buffer:
        buffer.save(1, writer(1))
        assert drained(places) == 0
        refused = by_hand("clear", *places)
        assert (refused.returncode, "in use by another trainer" in refused.stderr) == (2, True)
    prefix = next(iter(keys(ceph, places).values()))
    obstore.put(store(ceph), f"{prefix}notes.txt", b"mine")

    assert by_hand("clear", *places).returncode == 0

    assert [*keys(ceph, places)] == ["notes.txt"]
    assert not places[0].exists()


def test_who_serves_the_bucket_here_is_no_other_that_disturbs_a_run(ceph, places):
    names = {psutil.Process(pid).name() for pid in Bucket.at(places[1]).pids()}

    assert {"radosgw", "ceph-osd"} <= names


def test_a_quota_that_is_used_up_is_told_and_nothing_is_lost(ceph, places, idle):
    with contextlib.closing(BurstBuffer(*places, **QUICK)) as buffer:
        buffer.save(1, writer(1))
    with ceph.quota(1):
        time.sleep(0.1)
        assert drained(places) == drain_loop.GAVE_UP
    assert "a quota is used up" in reasons(places[0])[0]

    assert drained(places) == 0
    assert complete(ceph, places) == [1]


def test_a_full_pool_is_told_in_bounded_time_and_drained_when_there_is_room(ceph, places, idle):
    with contextlib.closing(BurstBuffer(*places, **QUICK)) as buffer:
        buffer.save(1, writer(1))
    with ceph.full():
        began = time.monotonic()
        assert drained(places) == drain_loop.GAVE_UP
        assert time.monotonic() - began < 60  # 2 attempts of 3 requests of 2 s, and pauses
    assert faults.STORE_IS_FULL[0] in reasons(places[0])[0]

    assert drained(places) == 0
    assert complete(ceph, places) == [1]


@pytest.mark.filterwarnings("ignore::jobs.checkpoints.restart.DrainWarning")
def test_a_gateway_that_is_away_holds_a_full_fast_storage_back_and_nothing_else(ceph, places, monkeypatch):
    def free_bytes(folder):
        return (1 << 40) if len(snapshots_in(places[0]).names()) < 2 else 0

    with contextlib.closing(BurstBuffer(*places, backoff_max_s=0.5, attempts=100)) as buffer:
        buffer.save(0, writer(0))
        assert buffer.wait_until_drained(60)
        ceph.kill("gateway")
        monkeypatch.setattr(files, "free_bytes", free_bytes)
        saving = threading.Thread(target=lambda: [buffer.save(step, writer(step)) for step in (1, 2, 3)])
        saving.start()
        saving.join(6)
        assert saving.is_alive()
        ceph.start("gateway")
        saving.join(60)
        assert not saving.is_alive()
        assert buffer.wait_until_drained(60)

    assert complete(ceph, places)[-1] == 3


def test_nothing_is_lost_when_trainer_drainer_and_gateway_are_killed_thirty_times(ceph, places, tmp_path):
    """Every snapshot that `save` came back from, or a newer one, is found; what is said complete is whole."""
    dice, acknowledged = random.Random(22), -1  # noqa: S311
    places = places[0], places[1].replace("timeout_s=2.0", "timeout_s=20")
    errors = tmp_path / "errors"
    killed = {"trainer": 0, "drainer": 0, "gateway": 0}
    for _ in range(30):
        words = [sys.executable, child.__file__, "train", str(acknowledged + 1), *map(str, places)]
        with errors.open("w") as stderr:
            trainer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True)
        began = trainer.stdout.readline()
        assert began, (trainer.wait(), errors.read_text())
        pids = {"trainer": trainer.pid, "drainer": int(began)}
        time.sleep(dice.uniform(0.1, 1.5))
        victims = dice.sample(["trainer", "drainer", "gateway"], dice.randint(1, 3))
        for victim in victims:
            killed[victim] += 1
            if victim == "gateway":
                ceph.kill("gateway")
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids[victim], signal.SIGKILL)
            time.sleep(dice.choice([0, 0.01, 0.3]))
        ceph.start("gateway")
        with contextlib.suppress(ProcessLookupError):
            os.kill(trainer.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, trainer.communicate(timeout=60)[0].split())])
        end_drainers(places[0])

        there = complete(ceph, places)
        fast = snapshots_in(places[0])
        held = [snapshots.training_step(name) for name in fast.names()]
        assert all(fast.verify(name) == [] for name in fast.names())
        assert max([*there, *held], default=-1) >= acknowledged

    assert drained(places) == 0
    assert min(killed.values()) >= 5
    assert complete(ceph, places)[-1] >= acknowledged > 30
    assert len(complete(ceph, places)) == 2
