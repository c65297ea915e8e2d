"""What the profiler says against what others say: strace, the kernel's count, the sizes of files."""

import os
import subprocess
import zipfile
from collections import Counter

import h5py
import numpy as np
import pytest

from jobs.events.posix_window import OPERATIONS
from jobs.profiler import Profile

# Names of the system calls.


def calls(profile):
    return Counter(OPERATIONS[code] for code in profile.events["operation"].tolist())


def returned(profile, *operations):
    events = profile.events
    chosen = np.isin(events["operation"], [OPERATIONS.index(name) for name in operations])
    return int(events["returned"][chosen & (events["returned"] > 0)].sum())


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


def test_tensorflow_writes_checkpoints_through_streams(job):
    seen = job("checkpoint", of="tests.jobs.profiler.tensorflow_jobs")

    assert seen["fopen"] == seen["fclose"] >= 2
    assert seen["written"] == seen["kernel_bytes"] >= seen["sizes"]  # the parts of an index are written, then merged
