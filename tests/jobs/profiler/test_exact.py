"""What the profiler says against what others say: strace, the kernel's count, the sizes of files."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter

import h5py
import numpy as np
import pytest

from jobs.events.posix_window import OPERATIONS
from jobs.profiler import Profile

# Names of the system calls.
_OWN = {
    "pread": "pread64", "pwrite": "pwrite64", "open": "openat", "dup": "fcntl", "preadv": "preadv2",
    "pwritev": "pwritev2",
}  # fmt: skip
_ALIKE = {
    "openat", "close", "read", "pread64", "readv", "preadv2", "write", "pwrite64", "writev", "pwritev2", "fsync",
    "fdatasync", "fcntl", "access", "rename", "unlink",
}  # fmt: skip


def calls(profile):
    return Counter(OPERATIONS[code] for code in profile.events["operation"].tolist())


def returned(profile, *operations):
    events = profile.events
    chosen = np.isin(events["operation"], [OPERATIONS.index(name) for name in operations])
    return int(events["returned"][chosen & (events["returned"] > 0)].sum())


WORKLOAD = """
import os, sys
from jobs.profiler import Profile
folder = sys.argv[1]
with Profile(only=[folder]) as profile:
    os.write(2, b"window opens\\n")
    fd = os.open(f"{folder}/a", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 5000); os.pwrite(fd, b"y" * 700, 100); os.lseek(fd, 10, 0)
    os.read(fd, 64); os.pread(fd, 4096, 2000); os.pread(fd, 4096, 5000)
    os.readv(fd, [bytearray(10), bytearray(20)]); os.preadv(fd, [bytearray(30)], 7)
    os.writev(fd, [b"12", b"345"]); os.pwritev(fd, [b"6789"], 9)
    os.fsync(fd); os.fdatasync(fd); os.close(os.dup(fd)); os.close(fd)
    for name in ("a", "missing"):
        os.access(f"{folder}/{name}", os.R_OK)
        for act in (os.stat, lambda path: open(path).read()):
            try: act(f"{folder}/{name}")
            except OSError: pass
    os.rename(f"{folder}/a", f"{folder}/b"); os.unlink(f"{folder}/b")
    os.write(2, b"window ends\\n")
from jobs.events.posix_window import OPERATIONS
for event in profile.events:
    print(OPERATIONS[event["operation"]], event["returned"], event["error"])
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_strace_sees_the_same_calls_with_the_same_answers(tmp_path):
    log = tmp_path / "strace"
    (tmp_path / "data").mkdir()
    command = ["strace", "-f", "-y", "-o", str(log), sys.executable, "-c", WORKLOAD, str(tmp_path / "data")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    inside = log.read_text().partition("window opens")[2].partition("window ends")[0]
    theirs = Counter()
    for line in inside.splitlines():
        found = re.match(r"\d+ +(\w+)\(.*= (-?\d+)(?:<[^>]*>)?(?: E(\w+).*)?$", line)
        if found and str(tmp_path / "data") in line:
            theirs[found[1], max(-1, int(found[2]))] += 1
    answers = [line.split() for line in done.stdout.splitlines()]
    ours = Counter((_OWN.get(name, name), int(answer)) for name, answer, _ in answers)
    of_both = [{key: n for key, n in each.items() if key[0] in _ALIKE} for each in (theirs, ours)]
    assert [{name for name, _ in each} for each in of_both] == [_ALIKE, _ALIKE]
    assert of_both[0] == of_both[1]
    assert ("openat", -1) in theirs
    number = Counter(name for name, *_ in answers)
    asked = sum(number[name] for name in ("read", "write", "readv", "writev"))  # the profiler asks where each began
    assert sum(n for (name, _), n in theirs.items() if name == "lseek") == number["lseek"] + asked
    assert sum(n for (name, _), n in theirs.items() if name == "newfstatat") == number["stat"]


def test_the_kernel_counts_the_same_bytes(tmp_path):
    (tmp_path / "file").write_bytes(os.urandom(3_000_000))

    with Profile() as profile:
        (tmp_path / "file").read_bytes()
        (tmp_path / "copy").write_bytes(b"x" * 12_345)

    assert profile.window.kernel_read_bytes == returned(profile, "read", "pread") == profile.window.read_bytes
    assert returned(profile, "write") == 12_345
    assert profile.window.blind_spot() is None


def test_bytes_that_were_read_unseen_are_named(tmp_path):
    (tmp_path / "file").write_bytes(bytes(500_000))

    with Profile() as profile:
        subprocess.run(["cat", str(tmp_path / "file")], stdout=subprocess.DEVNULL, check=True)

    assert "bytes were read unseen" in profile.window.blind_spot()


def _numpy(folder):
    np.save(folder / "a.npy", np.zeros(50_000))
    np.load(folder / "a.npy")
    return "a.npy", 400_128


def _hdf5(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"] = np.zeros(50_000)
    with h5py.File(folder / "a.h5") as file:
        file["x"][:]
    return "a.h5", 400_000


def _zip(folder):
    with zipfile.ZipFile(folder / "a.keras", "w") as file:  # what Keras saves is one
        file.writestr("weights", bytes(400_000))
    with zipfile.ZipFile(folder / "a.keras") as file:
        file.read("weights")
    return "a.keras", 400_000


@pytest.mark.parametrize("library", [_numpy, _hdf5, _zip])
def test_a_librarys_own_reads_and_writes_are_seen(library, tmp_path):
    with Profile(only=[tmp_path]) as profile:
        name, least = library(tmp_path)

    counters = profile.files[str(tmp_path / name)]
    written = counters["POSIX_BYTES_WRITTEN"] + counters.get("STDIO_BYTES_WRITTEN", 0)
    assert counters["POSIX_BYTES_READ"] + counters.get("STDIO_BYTES_READ", 0) >= least
    assert least <= written <= least + 10_000


def test_tensorflow_reads_each_file_with_one_open_and_two_reads(job):
    seen = job("five_thousand", of="tests.jobs.profiler.tensorflow_jobs")

    assert seen["calls"] == {"open": 10_000, "pread": 20_000, "close": 10_000}
    assert seen["empty_reads"] == 10_000
    assert seen["bytes"] == 2 * seen["sizes"]
    assert seen["files"] == 5000
    assert abs(seen["kernel_bytes"] - seen["bytes"]) < 4096
    assert seen["dropped"] == 0


def test_tensorflow_writes_checkpoints_through_streams(job):
    seen = job("checkpoint", of="tests.jobs.profiler.tensorflow_jobs")

    assert seen["fopen"] == seen["fclose"] >= 2
    assert seen["written"] == seen["kernel_bytes"] >= seen["sizes"]  # the parts of an index are written, then merged
