"""Processes beside the one that analyses."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

_FOREVER = """
import os, signal
from analysis import processes
processes.processors = lambda: 3
def work(number):
    os.write(1, b"here\\n")  # whole, also beside the others'
    signal.pause()
if __name__ == "__main__":
    with processes.spread(work, [(each,) for each in range(9)], 1) as results:
        list(results)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="they are forked on Linux alone")
def test_when_the_analysis_is_killed_its_processes_end_with_it(tmp_path):
    script = tmp_path / "forever.py"
    script.write_text(_FOREVER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as analysis:
        try:
            assert [analysis.stdout.readline() for _ in range(3)] == ["here\n"] * 3
            beside = psutil.Process(analysis.pid).children()
        finally:
            analysis.kill()
        gone, alive = psutil.wait_procs(beside, timeout=30)

    assert (len(gone), alive) == (2, [])
