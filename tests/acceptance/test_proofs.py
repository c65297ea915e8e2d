"""Proofs by instruments that the tool does not use: lies that are staged for real, honest runs, strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from tests.acceptance import door
from tests.lies.registry import ALL, IN_CI


def told(*words):
    """Give the lies' own command; returns its exit code and the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.lies", *words],
        cwd=door.ROOT,
        env=door.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.in_ci] * (name in IN_CI)) for name in ALL])
def test_the_tool_answers_each_lie_as_it_must(name):
    code, said, err = told(name)

    if code == 3:
        pytest.skip(said[0])
    assert (code, said[0]) == (0, f"{name}: as expected"), "\n".join([*said, err])


@pytest.mark.long
def test_of_two_hundred_honest_runs_none_is_called_invalid_without_a_cause():
    if os.geteuid() != 0:
        pytest.skip("the storages of honest runs are made as root")

    code, said, err = told("--honest", "200")

    assert code in {0, 3}, "\n".join([*said, err])
    assert sum(int(line.split(" | ")[1]) for line in said if "not staged" not in line) >= 100


WORKLOAD = """
import json, os, sys
from pathlib import Path
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
        for act in (os.stat, lambda path: open(path).read()):
            try: act(f"{folder}/{name}")
            except OSError: pass
    os.rename(f"{folder}/a", f"{folder}/b"); os.unlink(f"{folder}/b")
    os.write(2, b"window ends\\n")
print(json.dumps({Path(path).name: {**each} for path, each in profile.files.items()}))
"""
READS = {"read", "pread64", "readv", "preadv", "preadv2"}
WRITES = {"write", "pwrite64", "writev", "pwritev", "pwritev2"}


def test_strace_sees_the_calls_and_the_bytes_that_the_profile_counts(tmp_path):
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    log, data = tmp_path / "strace", tmp_path / "data"
    data.mkdir()

    done = subprocess.run(
        ["strace", "-f", "-y", "-o", log, sys.executable, "-c", WORKLOAD, data],
        env=door.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    calls, moved = Counter(), Counter()
    for line in log.read_text().partition("window opens")[2].partition("window ends")[0].splitlines():
        found = re.match(r"\d+ +(\w+)\(.*= (\d+)(?:<[^>]*>)?$", line)
        if found and f"{data}/a" in line:
            calls[found[1]] += 1
            moved[found[1]] += int(found[2])
    ours = door.Done(0, done.stdout, "").json["a"]
    theirs = {
        "READS": sum(calls[name] for name in READS),
        "WRITES": sum(calls[name] for name in WRITES),
        "BYTES_READ": sum(moved[name] for name in READS),
        "BYTES_WRITTEN": sum(moved[name] for name in WRITES),
        "OPENS": calls["openat"],
        "DUPS": calls["fcntl"],
        "FSYNCS": calls["fsync"],
        "FDSYNCS": calls["fdatasync"],
        "STATS": calls["newfstatat"] + calls["fstat"],
        "RENAME_SOURCES": calls["rename"],
    }
    assert {name: ours[f"POSIX_{name}"] for name in theirs} == theirs
    assert (theirs["READS"], theirs["WRITES"], theirs["OPENS"], theirs["FSYNCS"]) == (7, 4, 2, 1)
