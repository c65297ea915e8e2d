"""Proofs by instruments that the tool does not use: lies that are staged for real, honest runs, strace."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.acceptance import door
from tests.lies.registry import ALL, IN_CI


def told(*words):
    """Give the lies' own command; returns its exit code, the lines that it printed, and its errors."""
    words = [sys.executable, "-m", "tests.lies", *words]
    done = subprocess.run(words, cwd=door.ROOT, env=door.environment(), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.in_ci] * (name in IN_CI)) for name in ALL])
def test_the_tool_answers_each_lie_as_it_must(name):
    code, said, err = told(name)

    if code == 3:
        pytest.skip(said[0])
    assert (code, said[0]) == (0, f"{name}: as expected"), "\n".join([*said, err])


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the storages of honest runs are made as root")
def test_of_two_hundred_honest_runs_none_is_called_invalid_without_a_cause():
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
    os.stat(f"{folder}/a"); open(f"{folder}/a").read()
    os.rename(f"{folder}/a", f"{folder}/b")
    os.write(2, b"window ends\\n")
print(json.dumps({Path(path).name: {**each} for path, each in profile.files.items()}["a"]))
"""
KINDS = {
    "READS": "p?read(v|v2|64)?", "WRITES": "p?write(v|v2|64)?", "OPENS": "openat", "DUPS": "fcntl", "FSYNCS": "fsync",
    "FDSYNCS": "fdatasync", "STATS": "newfstatat|fstat", "RENAME_SOURCES": "rename",
}  # fmt: skip


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_strace_sees_the_calls_and_the_bytes_that_the_profile_counts(tmp_path):
    (data := tmp_path / "data").mkdir()
    words = ["strace", "-f", "-y", "-o", tmp_path / "strace", sys.executable, "-c", WORKLOAD, data]

    done = subprocess.run(words, env=door.environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    calls = []
    for line in (tmp_path / "strace").read_text().partition("window opens")[2].partition("window ends")[0].splitlines():
        found = re.match(r"\d+ +(\w+)\(.*= (\d+)(?:<[^>]*>)?$", line)
        if found and f"{data}/a" in line:
            calls.append((found[1], int(found[2])))
    sizes = {kind: [n for name, n in calls if re.fullmatch(names, name)] for kind, names in KINDS.items()}
    theirs = {kind: len(each) for kind, each in sizes.items()}
    assert (theirs["READS"], theirs["WRITES"], theirs["OPENS"], theirs["FSYNCS"]) == (7, 4, 2, 1)
    theirs |= {"BYTES_READ": sum(sizes["READS"]), "BYTES_WRITTEN": sum(sizes["WRITES"])}
    assert {kind: json.loads(done.stdout)[f"POSIX_{kind}"] for kind in theirs} == theirs
