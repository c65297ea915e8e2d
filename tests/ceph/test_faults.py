"""What befalls a store while it is read: a clear word, in bounded time, and nothing counted that was not delivered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest

from jobs.errors import ObjectStoreError
from jobs.objects.client import Client
from tests.ceph.test_lab import store
from tests.judged import records_of
from tests.lies import setup

pytestmark = pytest.mark.long

CAMPAIGN = (
    "storage=s3", "dataset.files=32", "batch_size=16", "benchmark.preprocess=false", "runs=1", "warmup_runs=0",
    "cluster=local", "checks.other_cpu_max=64", "checks.other_device_max=1", "cache=as_is",
    "checks.stolen_max=100", "checks.delayed_max=1",
)  # fmt: skip
CONTENT = {f"images/{number}": os.urandom(50_000) for number in range(8)}
ASK = """
import json, sys, time
from jobs.objects.client import Client
time.sleep(1.2)  # the clock jumps after a second
try:
    Client(json.loads(sys.argv[1])).get("images/0")
except Exception as error:
    print(error)
"""


@pytest.fixture
def listed(ceph, storage):
    """What is in the store, as a manifest of ours has it."""
    for key, content in CONTENT.items():
        obstore.put(store(ceph), f"{storage['prefix']}/{key}", content)
    known = {each.key: each for each in Client(storage).list_objects()}
    return {key: known[key]._replace(sha256=hashlib.sha256(content).hexdigest()) for key, content in CONTENT.items()}


@contextlib.contextmanager
def read_meanwhile(client, listed, threads=4):
    """Read by some threads for as long as the block lasts; yields what they have read, by thread."""
    ended, read = threading.Event(), [0] * threads

    def reader(thread):
        while not ended.is_set():
            for key, known in listed.items():
                assert bytes(client.get(key, known)) == CONTENT[key]
                read[thread] += known.size

    with ThreadPoolExecutor(threads) as pool:
        readers = [pool.submit(reader, thread) for thread in range(threads)]
        yield read
        ended.set()
        for each in readers:
            each.result()


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_gateway_that_is_killed_and_comes_back_costs_retries_and_no_byte(ceph, storage, listed):
    client = Client({**storage, "retries": 1000})

    with read_meanwhile(client, listed) as read:
        wait_until(lambda: all(read))
        ceph.kill("gateway")
        wait_until(lambda: client.counts.errors.total() > 4)
        ceph.start("gateway")
        before = [*read]
        wait_until(lambda: all(now > then for now, then in zip(read, before, strict=True)))

    assert client.counts.retries == client.counts.errors.total()
    assert client.counts.bytes == sum(read)


def test_an_osd_that_stops_for_a_while_is_a_timeout_and_then_right(ceph, storage, listed):
    client = Client({**storage, "timeout_s": 0.5, "retries": 1000})

    with read_meanwhile(client, listed, threads=2) as read:
        wait_until(lambda: all(read))
        ceph.freeze("osd")
        wait_until(lambda: client.counts.errors["timeout"] >= 2)
        ceph.thaw("osd")
        before = [*read]
        wait_until(lambda: all(now > then for now, then in zip(read, before, strict=True)))

    assert client.counts.bytes == sum(read)


@pytest.mark.parametrize(("retries", "puts"), [(60, 3), (1, 2)])
def test_a_disk_that_is_full_is_said_to_be_so_when_three_puts_have_waited_or_the_last_one(ceph, storage, retries, puts):
    client = Client({**storage, "timeout_s": 0.5, "retries": retries})
    with ceph.full(), pytest.raises(ObjectStoreError, match="answers reads but no writes: its disk is probably full"):
        client.put("put", b"1")

    assert client.counts.errors == {"timeout": puts}

    assert [each.key for each in Client(storage).list_objects()] in ([], ["put"])


@pytest.mark.parametrize(("bucket", "word"), [("nowhere", "there is no such bucket"), (None, "access denied")])
def test_a_missing_bucket_and_a_missing_right_are_told_at_once(ceph, storage, monkeypatch, bucket, word):
    for key, value in ceph.stranger.items():
        monkeypatch.setenv(key, value)
    client = Client({**storage, "bucket": bucket or ceph.bucket})

    with pytest.raises(ObjectStoreError, match=word):
        client.get("images/0")

    assert (client.counts.errors.total(), client.counts.retries, client.counts.bytes) == (1, 0, 0)


def test_a_clock_that_is_an_hour_late_is_named(ceph, storage, listed, tmp_path):
    late = {"LD_PRELOAD": setup.library(tmp_path, "clock"), "LIES_CLOCK": "jump"}

    asked = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(storage)],
        env={**os.environ, **late}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert "the clocks of this machine and of the endpoint differ too much" in asked.stdout


def _listening(port):
    """Return a socket on the port of a daemon that was killed, when the kernel has closed the daemon's own."""
    for _ in range(300):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            time.sleep(0.1)
    raise AssertionError(port)


def test_a_gateway_that_is_away_when_a_run_begins_costs_it_retries_and_no_image(ceph, storage, tmp_path):
    place = [f"storage.{key}={storage[key]}" for key in ("endpoint", "bucket", "prefix")]
    words = [sys.executable, "-m", "campaign", *CAMPAIGN, *place]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        said = next(line for line in process.stderr if "running" in line or "error" in line)
        assert "running 1 cell" in said
        ceph.kill("gateway")
        with _listening(ceph.facts["port"]) as deaf:
            deaf.settimeout(60)
            for _ in range(4):
                deaf.accept()[0].close()
        ceph.start("gateway")
        process.communicate()

    (recorded,) = records_of(tmp_path / "results")
    (run,) = recorded["runs"]
    assert run["objects"]["retries"] == sum(run["objects"]["errors"].values()) >= 4
    assert (run["images"], run["objects"]["bytes"]) == (32, run["listed_bytes"])
    assert {check["rule"]: check["passed"] for check in run["checks"]}["complete"]
