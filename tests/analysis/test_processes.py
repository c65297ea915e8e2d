"""Processes beside the one that analyses, and whose modules it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil
import pytest

from analysis import processes
from analysis.errors import AnalysisError

ROOT = Path(__file__).parents[2]
_FOREVER = """
import os, signal
from analysis import processes
processes.processors = lambda: 3
def work(number):
    os.write(1, b"here\\n")  # whole, also beside the others'
    signal.pause()
if __name__ == "__main__":
    with processes.spread(work, range(9), 1) as results:
        list(results)
"""


def _deaf(process):
    """Tell whether a process ignores Ctrl-C."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(status.partition("SigIgn:")[2].split()[0], 16) >> signal.SIGINT - 1 & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="they are forked on Linux alone")
def test_processes_leave_ctrl_c_to_the_analysis_and_end_with_it(tmp_path):
    script = tmp_path / "forever.py"
    script.write_text(_FOREVER)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as analysis:
        try:
            assert [analysis.stdout.readline() for _ in range(3)] == ["here\n"] * 3
            beside = psutil.Process(analysis.pid).children()
            deaf = [_deaf(each) for each in (psutil.Process(analysis.pid), *beside)]
        finally:
            analysis.kill()
        gone, alive = psutil.wait_procs(beside, timeout=30)

    assert (len(gone), alive, deaf) == (2, [], [False, True, True])


def _squared(number):
    return number**2


@pytest.mark.parametrize(
    ("processors", "jobs", "beside"), [(1, 9, 0), (2, 9, 1), (4, 9, 3), (9, 9, 3), (3, 2, 0), (3, 3, 2)]
)
def test_others_work_beside_it_where_it_is_worth_it_and_results_keep_their_order(monkeypatch, processors, jobs, beside):
    started = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, count, *more):
            started.append(count)
            super().__init__(count, *more)

    monkeypatch.setattr(processes, "processors", lambda: processors)
    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)

    with processes.spread(_squared, range(jobs), 3) as results:
        assert list(results) == [each**2 for each in range(jobs)]
    assert sum(started) == beside


def _die_but(home):
    if os.getpid() != home:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)


def _slow(number):
    time.sleep(0.2)
    return number


def test_of_jobs_that_nobody_has_begun_none_waits_for_another_process(monkeypatch):
    monkeypatch.setattr(processes, "processors", lambda: 2)
    here = []

    with processes.spread(lambda number: (here.append(number), _slow(number))[1], range(5), 1) as results:
        time.sleep(0.1)  # the other one has begun its first job, and has no second one
        assert list(results) == list(range(5))

    assert here in ([4, 3, 2], [4, 3])


def test_who_asks_for_no_result_waits_for_the_jobs_that_are_begun_alone_and_nothing_is_said(monkeypatch, capfd):
    monkeypatch.setattr(processes, "processors", lambda: 3)
    started = time.perf_counter()

    with processes.spread(_slow, range(99), 1):
        pass

    assert time.perf_counter() - started < 10
    assert capfd.readouterr() == ("", "")


def test_a_process_that_is_killed_is_an_error_with_a_cure(monkeypatch):
    monkeypatch.setattr(processes, "processors", lambda: 2)

    with (
        pytest.raises(AnalysisError, match="was killed\n\nhint: there may be too little memory"),
        processes.spread(_die_but, [os.getpid()] * 9, 1) as results,
    ):
        list(results)


@pytest.mark.parametrize("flags", [[], ["-P"]])
def test_a_module_in_the_current_folder_is_not_taken_for_pythons_own(tmp_path, flags):
    (tmp_path / "argparse.py").write_text("raise SystemExit('taken')")

    done = subprocess.run(
        [sys.executable, *flags, "-m", "analysis", "--version"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr, done.stdout[:18]) == (0, "", "python -m analysis")
