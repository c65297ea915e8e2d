"""Truth by construction: programs of known demand on a device of known rate, and lies; an hour's quarter, marked long.

The device gives 16 MB/s, whoever asks; a program reads 8 files of 2 MB, an eighth of a second each, and works on each
for a known time. What of its runtime is waiting follows by arithmetic.
"""

import contextlib
import os
import random
import re
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from tests.acceptance import door
from tests.campaign.testbed.models import KINDS
from tests.lies import setup
from tests.lies.lie import MissingError

pytestmark = pytest.mark.long
FILES, FILE_BYTES, RATE = 8, 2_000_000, 16
READ_S = FILE_BYTES / (RATE * 1e6)
WITHIN = 0.03  # points of the share
DEMAND = Path(__file__).with_name("demand.py")


@contextlib.contextmanager
def made_disk(*places, **more):
    """Make a file system; gives its folder `data`."""
    with contextlib.ExitStack() as stack:
        try:
            made = setup.disk(stack, *places, **more)
        except MissingError as missing:
            pytest.skip(str(missing))
        (made.point / "data").mkdir()
        yield made.point / "data"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with the data, on the device."""
    folder, chance = tmp_path_factory.mktemp("truth"), random.Random(7)  # noqa: S311
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS["flash"], "read_mb_per_s", RATE)
        with made_disk(folder / "image", folder / "disk", mib=96, model="flash") as data:
            for number in range(FILES):
                (data / f"{number}.bin").write_bytes(zlib.compress(chance.randbytes(FILE_BYTES - 1000), 0))
            os.sync()
            yield data


@pytest.fixture
def stall(data, tmp_path):
    """Run the command on the data; returns what it printed."""

    def stall(*program, words=()):
        options = ("--data", data, "--runs", 5, f"campaign_dir={tmp_path / 'stall'}", *words, *door.SHARED)
        return door.cli("stall", *options, "--", *program, cwd=tmp_path)

    return stall


def _serial(work_s, epochs=1):
    return FILES * (READ_S + epochs * work_s), FILES * epochs * work_s


def _four(work_s):
    """Four threads: the device serves their files in the order in which they ask, and each sleeps by itself."""
    free_s, threads = 0.0, [0.0] * 4
    for _ in range(FILES):
        first = threads.index(min(threads))
        free_s = max(free_s, threads[first]) + READ_S
        threads[first] = free_s + work_s
    return max(threads), FILES / 4 * work_s


def _ahead(work_s):
    return (FILES - 1) * max(READ_S, work_s) + READ_S + work_s, FILES * work_s


def _decode_s():
    content, times = zlib.compress(random.Random(7).randbytes(FILE_BYTES - 1000), 0), []  # noqa: S311
    for _ in range(5):
        began = time.perf_counter()
        zlib.decompress(content)
        times.append(time.perf_counter() - began)
    return min(times)


SERIAL = "one_after_the_other"
CASES = {
    "reads alone": (SERIAL, "sleeps", 0.0, 1, _serial),
    "reads, sleeps a little": (SERIAL, "sleeps", 0.05, 1, _serial),
    "reads, sleeps as long": (SERIAL, "sleeps", READ_S, 1, _serial),
    "reads, sleeps longer": (SERIAL, "sleeps", 0.3, 1, _serial),
    "reads twice": (SERIAL, "sleeps", 0.1, 2, lambda work_s: _serial(work_s, 2)),
    "four threads that sleep": ("by_threads", "sleeps", 0.3, 1, _four),
    "four threads that sleep long": ("by_threads", "sleeps", 0.8, 1, _four),
    "one ahead, device is slower": ("one_ahead", "sleeps", 0.03, 1, _ahead),
    "one ahead, both as slow": ("one_ahead", "sleeps", READ_S, 1, _ahead),
    "one ahead, device is faster": ("one_ahead", "sleeps", 0.25, 1, _ahead),
    "a worker reads": ("by_workers", "sleeps", 0.06, 1, _ahead),
    "reads, computes": (SERIAL, "computes", 0.1, 1, _serial),
    "reads, computes long": (SERIAL, "computes", 0.3, 1, _serial),
    "computes, one ahead": ("one_ahead", "computes", 0.2, 1, _ahead),
    "decodes": (SERIAL, "decodes", None, 1, _serial),
    "tensorflow": ("by_tensorflow", "sleeps", 0.1, 1, _serial),
    "tensorflow, one ahead": ("by_tensorflow_ahead", "sleeps", 0.2, 1, _ahead),
}


@pytest.mark.parametrize("case", CASES)
def test_the_share_is_that_of_arithmetic(case, stall):
    order, work, work_s, epochs, truth = CASES[case]
    program = (sys.executable, str(DEMAND), "{data}", order, work, str(work_s or 0), str(epochs))

    done = stall(*program, words=("--from", "^begin$", "--json"))

    assert done.code == 0, done.err
    (found,) = done.json["programs"]
    # Others may have the processors, and TensorFlow takes some for itself: each file takes as long as it took warm.
    if work != "sleeps" or order.startswith("by_tensorflow"):
        work_s = max(_decode_s() if work_s is None else work_s, found["timed_part"]["warm_s"] / (FILES * epochs))
    cold_s, warm_s = truth(work_s)
    share, marked = 1 - warm_s / cold_s, found["timed_part"]
    low, high = marked["share_interval"]
    print(f"{case}: {marked['share']:.1%} ({low:.1%} to {high:.1%}), by arithmetic {share:.1%}")
    assert low - WITHIN <= share <= high + WITHIN
    assert not marked["decided"] or marked["seconds"] > 0
    if high - low < WITHIN:  # the runs were quiet
        assert marked["decided"] is (share > WITHIN)
        assert marked["share"] == pytest.approx(share, abs=WITHIN)


NEIGHBOUR = """
import mmap, pathlib, sys, time
kept = []
for each in pathlib.Path(sys.argv[1]).iterdir():
    with open(each, "rb") as file: kept.append(mmap.mmap(file.fileno(), 0, prot=1))
while [each[::4096] for each in kept]:
    print("kept", flush=True)
    time.sleep(0.01)
"""


def test_a_neighbour_that_keeps_the_data_warm_is_found(stall, data, tmp_path):
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR, data], stdout=subprocess.PIPE) as neighbour:
        try:
            neighbour.stdout.readline()  # its other lines are few
            done = stall(sys.executable, DEMAND, "{data}", SERIAL, "sleeps", "0", "1")
        finally:
            neighbour.kill()

    runs = [run for record in door.judged(tmp_path / "stall") for run in record["runs"]]
    failed = {check["rule"] for run in runs for check in run["checks"] if check["passed"] is False}
    assert (done.code, bool(failed & {"cold", "device_bytes"})) == (1, True), failed


def command(data, tmp_path, *words, argv):
    """Run a program three times on cold data, as a benchmark; returns the command's end and the runs."""
    argv = f"benchmark.argv=[{','.join(argv)}]"
    words = ("benchmark=command", argv, "dataset=folder", f"dataset.path={data}", "runs=3", *door.SHARED, *words)
    done = door.cli(*words, cwd=tmp_path)
    return done, [run for record in door.judged(tmp_path / "results") for run in record["runs"]]


def test_a_backing_file_that_is_in_memory_is_evicted_with_the_data(tmp_path):
    """A loop device without direct I/O keeps its file in memory, from where a second cold run would come."""
    with made_disk(tmp_path / "image", tmp_path / "disk") as data:
        (data / "a").write_bytes(os.urandom(8 << 20))
        os.sync()
        done, runs = command(data, tmp_path, argv=["cat", "'{data}/a'"])

    assert ([run["status"] for run in runs], done.code) == (["valid"] * 3, 0), done.err
    assert all(run["device_bytes"] >= 8 << 20 for run in runs)


def test_strace_sees_the_bytes_that_the_run_has(data, tmp_path):
    setup.need("strace")
    strace = ["strace", "-ff", "-y", "-o", str(tmp_path / "calls"), "-e", "'trace=read,pread64'"]
    program = [sys.executable, str(DEMAND), "'{data}'", "by_workers", "sleeps", "'0'", "'1'"]

    _, (run,) = command(data, tmp_path, "runs=1", "warmup_runs=0", argv=strace + program)

    text = "".join(each.read_text() for each in tmp_path.glob("calls.*"))  # one of each process
    calls = re.findall(rf"(?:read|pread64)\(\d+<{re.escape(str(data))}/[^>]*>.*= (\d+)$", text, re.MULTILINE)
    assert sum(map(int, calls)) == run["data_bytes"] == sum(path.stat().st_size for path in data.iterdir())
    assert run["data_in_memory_bytes"] == run["data_pages_bytes"]
    assert run["device_bytes"] >= 0.99 * run["data_pages_bytes"]  # what a run may have found in memory
