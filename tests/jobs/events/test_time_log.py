"""The time log as a script has it: threads, forks, full disks, a process that is killed; read by the analysis."""

import errno
import itertools
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from jobs.events import TimeLog, TimeLogError, time_log
from jobs.events.read_time_logs import read_logs
from jobs.events.table import EventsError


def table(path, **asked):
    """Return (action, file, bytes, phase, epoch, step) of each event."""
    log, _ = read_logs([path], **asked)
    action, file, phase = (log.events.texts(name) for name in ("kind", "file", "phase"))
    size, epoch, step = (log.events[name].tolist() for name in ("bytes", "epoch", "step"))
    return list(zip(action, file, size, phase, epoch, step, strict=True))


def test_a_script_logs_what_it_does_and_where_in_the_run_it_is(tmp_path):
    with TimeLog(tmp_path / "log", rank=np.int64(1), ranks=2, run="one") as log:
        ahead = log.place("train", 1)
        with log.event("open", tmp_path / "a"):
            pass
        log.at("train", 0, np.int64(7))
        with log.event("load"), log.event("read", str(tmp_path / "a")) as read_it:
            read_it.size_bytes = np.int64(100)
        start_ns = time.monotonic_ns()
        log.add("read", start_ns, "b", 5, at=ahead)
        with pytest.raises(ZeroDivisionError), log.event("compute"):
            _ = 1 / 0

    file = str(tmp_path / "a")
    assert table(tmp_path / "log") == [
        ("open", file, -1, "none", -1, -1), ("read", file, 100, "train", 0, 7), ("load", None, -1, "train", 0, 7),
        ("read", "b", 5, "train", 1, -1), ("compute", None, -1, "train", 0, 7),
    ]  # fmt: skip
    events, stream = read_logs([tmp_path / "log"])[0].events, read_logs([tmp_path / "log"])[0].streams[0]
    assert (stream.rank, stream.ranks, stream.run, stream.process) == (1, 2, "one", os.getpid())
    assert stream.start_ns <= events["start"].min() <= events["end"].max() <= stream.end_ns
    assert abs(stream.end_ns - time.time_ns()) < 60e9
    assert events["start"][2] <= events["start"][1] <= events["end"][1] <= events["end"][2]


def _ended(path):
    with TimeLog(path) as log:
        return log


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda log: log.event("sleep"), "there is no action 'sleep'; take one of: compute, validate"),
        (lambda log: log.at("test"), "there is no phase 'test'; take one of: none, train"),
        (lambda log: log.at("train", -2), "there is no epoch -2 with a step -1"),
        (lambda log: log.at("train", 0, -2), "there is no epoch 0 with a step -2"),
        (lambda log: log.at("train", 1 << 31), "there is no epoch 2147483648"),
        (lambda log: log.at("train", 0, 1 << 31), "with a step 2147483648"),
        (lambda log: log.event("read", at=1), "there is no place 1; give a number that `place` returned"),
        (lambda log: log.event("read", at=-1), "there is no place -1"),
        (lambda log: log.add("read", 5), "5 is no time within this log"),
        (lambda log: log.add("read", time.monotonic_ns() + 10**10), "is no time within this log"),
        (lambda log: log.add("read", time.monotonic_ns(), "a", 0.5), "size_bytes is 0.5; give a whole number"),
        (lambda log: TimeLog("new", rank=2, ranks=2), "there is no rank 2 of 2"),
        (lambda log: TimeLog("new", rank=-1, ranks=2), "there is no rank -1 of 2"),
        (lambda log: TimeLog("new", run=5), "5 is no name of a run; give text"),
        (lambda log: TimeLog("none/new"), "there is no folder .*/none; make it"),
        (lambda log: TimeLog("log"), "log exists already; remove it, or name"),
        (lambda log: TimeLog("link"), "link exists already; remove it, or name"),
        (lambda log: _ended("of before").event("read").__enter__().__exit__(None, None, None), "this log has ended"),
        (lambda log: _ended("of before").flush(), "this log has ended"),
    ],
)
def test_what_cannot_be_is_refused_and_the_log_goes_on(wrong, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("log")
    with TimeLog(tmp_path / "log") as log:
        with pytest.raises(TimeLogError, match=why):
            wrong(log)
        farthest = log.place("validation", (1 << 31) - 1, (1 << 31) - 1)
        for at in (0, farthest):
            with log.event("read", at=at):
                pass

    assert [event[3:] for event in table(tmp_path / "log")] == [
        ("none", -1, -1), ("validation", (1 << 31) - 1, (1 << 31) - 1)
    ]  # fmt: skip


def test_no_event_of_any_thread_is_lost_or_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(time_log, "_BLOCK", 10)
    each, threads = 500, 4
    together = threading.Barrier(threads)

    def work(log, worker):
        together.wait()
        for number in range(each):
            with log.event("read", f"{number % 50}", worker * each + number):
                pass
        together.wait()

    with TimeLog(tmp_path / "log") as log:
        started = [threading.Thread(target=work, args=(log, worker)) for worker in range(threads)]
        for thread in started:
            thread.start()
        for _ in range(20):
            log.at("train", 0, 1)
            log.flush()
        for thread in started:
            thread.join()

    found = table(tmp_path / "log")
    assert sorted(size for _, _, size, *_ in found) == list(range(each * threads))
    assert all(int(file) == size % each % 50 for _, file, size, *_ in found)
    assert len(set(read_logs([tmp_path / "log"])[0].events["thread"].tolist())) == threads


def test_a_full_disk_loses_nothing_once_there_is_room_again(tmp_path, monkeypatch):
    real, room = os.write, itertools.count()

    def write(descriptor, data):
        if next(room) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[:20])

    with TimeLog(tmp_path / "log") as log:
        with log.event("read", "a", 3):
            pass
        with monkeypatch.context() as full:
            full.setattr(time_log.os, "write", write)
            with pytest.raises(OSError, match=r"No space left on device.*log"):
                log.flush()

    assert table(tmp_path / "log") == [("read", "a", 3, "none", -1, -1)]


def test_a_block_that_fails_fails_by_its_own_error(tmp_path):
    with TimeLog(tmp_path / "log") as log, pytest.raises(ZeroDivisionError), log.event("read", size_bytes=0.5):
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), log.event("read"):
        _ = 1 / 0

    assert table(tmp_path / "log") == [("read", None, -1, "none", -1, -1)]


def test_a_forked_child_cannot_write_into_its_parents_log(tmp_path):
    with TimeLog(tmp_path / "log") as log:
        with log.event("read"):
            pass
        child = os.fork()
        if not child:
            code = 1
            try:
                for act in (log.flush, log.at, log.event("read").__enter__().__exit__):
                    with pytest.raises(TimeLogError, match="belongs to the parent process"):
                        act(*(None,) * 3) if act.__name__ == "__exit__" else act()
                log.close()
                with TimeLog(tmp_path / "child") as own, own.event("compute"):
                    pass
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert [len(table(tmp_path / name)) for name in ("log", "child")] == [1, 1]


def test_what_was_flushed_is_there_when_the_process_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(time_log, "_FLUSH_NS", 0)
    child = os.fork()
    if not child:
        log = TimeLog(tmp_path / "log")
        for step in range(3):
            log.at("train", 0, step)
            with log.event("compute"):
                pass
        os._exit(1)
    os.waitpid(child, 0)

    with pytest.raises(EventsError, match="has no end: its process was killed, or still runs"):
        read_logs([tmp_path / "log"])
    assert [event[-1] for event in table(tmp_path / "log", unfinished=True)] == [0, 1]


def test_a_log_that_is_forgotten_ends_with_the_process_and_one_that_fails_keeps_no_other_one_open(tmp_path):
    script = """if True:
        import os
        from jobs.events import TimeLog
        logs = [TimeLog(f"{number}") for number in range(10)]
        for log in logs[:5]:
            os.dup2(os.open("/dev/full", os.O_WRONLY), log._descriptor)
        with logs[9].event("read"):
            pass
    """
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert [len(table(tmp_path / number)) for number in "56789"] == [0, 0, 0, 0, 1]
    assert "No space left on device" in done.stderr
