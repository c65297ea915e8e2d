"""Processes beside the one that analyses, and whose modules it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from analysis import processes
from analysis.errors import AnalysisError

ROOT = Path(__file__).parents[2]
_FOREVER = """
import os, signal
from analysis import processes
processes.processor_count = lambda: 3
def work(number):
    os.write(1, b"here\\n")  # whole, also beside the others'
    signal.pause()
if __name__ == "__main__":
    with processes.spread_jobs(work, range(9), 1) as results:
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
    monkeypatch.setattr(processes, "processor_count", lambda: processors)

    with processes.spread_jobs(_squared, range(jobs), 3) as results:
        assert len(psutil.Process().children()) == beside
        assert list(results) == [each**2 for each in range(jobs)]
    assert psutil.Process().children() == []


@pytest.mark.parametrize("processors", [1, 3])
def test_processes_that_wait_for_a_task_have_none_of_what_was_made_since(monkeypatch, processors):
    monkeypatch.setattr(processes, "processor_count", lambda: processors)
    monkeypatch.setattr(sys.modules[__name__], "_made", [])

    with processes.Helpers() as helpers:
        helpers.start()
        _made.append(1)
        with processes.spread_jobs(_who, range(9), 3, helpers) as results:
            found = list(results)
            assert len(psutil.Process().children()) == processors - 1

    of_others = {(False, 0)} if processors > 1 else set()
    assert {(pid == os.getpid(), made) for pid, made in found} == {(True, 1), *of_others}


def test_an_error_of_a_job_is_raised_wherever_it_was_done(monkeypatch):
    monkeypatch.setattr(processes, "processor_count", lambda: 3)

    with pytest.raises(ZeroDivisionError), processes.spread_jobs(_reciprocal, range(9), 3) as results:
        list(results)


_made = []


def _who(_number):
    time.sleep(0.05)
    return os.getpid(), len(_made)


def _reciprocal(number):
    time.sleep(0.05)
    return 1 / number


def _die_but(home):
    if os.getpid() != home:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)


def _slow(number):
    time.sleep(0.2)
    return number


def test_a_process_waits_neither_for_jobs_nor_until_its_results_are_taken(monkeypatch):
    monkeypatch.setattr(processes, "processor_count", lambda: 2)
    here = []

    with processes.spread_jobs(lambda number: here.append(number) or b"x" * 10**6, range(5), 1) as results:
        time.sleep(1)  # more than a pipe holds, of each of the five jobs
        assert len(list(results)) == 5

    assert here == []


def test_who_asks_for_no_result_waits_for_none_and_nothing_is_said(monkeypatch, capfd):
    monkeypatch.setattr(processes, "processor_count", lambda: 3)
    started = time.perf_counter()

    with processes.spread_jobs(_slow, range(99), 1):
        pass

    assert time.perf_counter() - started < 10
    assert capfd.readouterr() == ("", "")


def test_a_process_that_is_killed_is_an_error_with_a_cure(monkeypatch):
    monkeypatch.setattr(processes, "processor_count", lambda: 2)

    with (
        pytest.raises(AnalysisError, match="was killed\n\nhint: there may be too little memory"),
        processes.spread_jobs(_die_but, [os.getpid()] * 9, 1) as results,
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
