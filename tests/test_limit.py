"""A test that hangs fails by its name, and the others go on (tests/conftest.py)."""

import os
import subprocess
import sys

from tests.test_rooms import ROOT

_HANGS = """
import os, subprocess

def test_reads_a_pipe_for_ever():
    os.read(os.pipe()[0], 1)

def test_waits_for_a_child_at_its_end_as_well():
    with subprocess.Popen(["sleep", "60"]) as child:
        child.wait()

def test_is_quick():
    pass
"""


def test_a_test_that_hangs_fails_by_its_name_and_those_after_it_run(tmp_path):
    (tmp_path / "test_it.py").write_text(_HANGS)
    words = ["-q", "-c", os.devnull, "--rootdir", tmp_path, "-p", "tests.conftest", "-o", "test_limit_s=0.5"]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )

    failures, _, summary = done.stdout.partition("short test summary")
    assert failures.count("Failed: not done after test_limit_s = 0.5") >= 2, failures
    assert "in test_reads_a_pipe_for_ever\n" in failures  # the stack
    assert [name for name in ("pipe_for_ever", "at_its_end_as_well", "is_quick") if name in summary] == [
        "pipe_for_ever", "at_its_end_as_well"
    ]  # fmt: skip
    assert "2 failed, 1 passed" in summary
