"""Windows: what belongs to which, what ends them, and what a program may do meanwhile."""

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jobs.events.posix_window import COUNTERS, EVENT, OPERATIONS, checked_events
from jobs.profiler import Profile, ProfilerError, profile
from jobs.profiler.hook_library import load_library
from jobs.system import page_cache
from tests.jobs.profiler.test_exact import calls, returned


@contextlib.contextmanager
def opened(path, flags=os.O_RDONLY):
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_windows_are_disjoint(data):
    first, second = Profile(only=[data]), Profile(only=[data])

    with first:
        data.read_bytes()
    data.read_bytes()
    with second:
        data.read_bytes()
        data.read_bytes()

    assert calls(second) == {name: 2 * number for name, number in calls(first).items()}
    assert first.events["end"].max() < first.window.ended_ns <= second.window.started_ns < second.events["start"].min()


def test_one_window_at_a_time_and_none_twice(data):
    with Profile(events=10) as stopped:
        with pytest.raises(ProfilerError, match="only one") as caught:
            Profile(events=10).start()
        stopped.stop()
    with pytest.raises(ProfilerError, match="no window is open"):
        stopped.stop()
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("wrong", [{"mode": "all"}, {"events": 0}, {"max_files": 1 << 40}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ProfilerError):
        Profile(**wrong)


def test_names_are_found_again_when_there_are_more_than_the_first_table_holds(tmp_path):
    paths = [str(tmp_path / str(number)) for number in range(20_000)]
    for _ in range(2):
        with Profile(only=[tmp_path]) as profile:
            for path in paths:
                os.access(path, os.R_OK)
        assert list(profile.files) == paths


@pytest.mark.long
def test_names_of_many_windows_need_no_more_room_than_those_of_one():
    for number in range(10):
        paths = [f"/nowhere/{number}/{'x' * 3900}/{place}" for place in range(16_000)]
        with Profile("counters", only=["/nowhere"]) as watched:
            for path in paths:
                os.access(path, os.R_OK)
        assert (watched.dropped, list(watched.files)) == (0, paths)  # 640 MB in all, and there is room for 512


def test_threads_lose_no_event(data):
    def reading():
        with opened(data) as descriptor:
            for _ in range(500):
                os.pread(descriptor, 10, 0)

    threads = [threading.Thread(target=reading) for _ in range(8)]
    with Profile(only=[data]) as watched:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert calls(watched) == {"open": 8, "pread": 4000, "close": 8}
    assert len(np.unique(watched.events["thread"])) == 8


@pytest.mark.parametrize("only", [lambda data: [data], lambda _: ["/"]], ids=["the file", "all of the tree"])
def test_a_file_that_was_open_before_has_its_name(only, data):
    with opened(data) as descriptor, Profile(only=only(data)) as watched:
        os.read(descriptor, 100)

    assert list(watched.files) == [str(data)]


def test_a_descriptor_is_what_it_was_opened_for_in_each_window(data):
    other = data.with_name("other")
    other.write_bytes(b"12345")
    first, second = Profile(only=[data.parent]), Profile(only=[data.parent])
    with opened(data) as descriptor:
        with first:
            os.read(descriptor, 1)
        with opened(other) as new:
            os.dup2(new, descriptor)
        with second:
            os.read(descriptor, 1)
            os.dup2(copy := os.dup(descriptor), descriptor)
            os.read(descriptor, 1)
            os.close(copy)

    assert list(first.files) == [str(data)]
    assert list(second.files) == [str(other)]
    reads = second.events[second.events["operation"] == OPERATIONS.index("read")]
    assert reads["offset"].tolist() == [0, 1]  # a copy shares the position


def test_a_folder_that_was_listed_leaves_its_descriptor_to_others(data):
    folder = str(data.parent)
    with Profile(only=[folder]) as watched:
        descriptor = os.open(folder, os.O_RDONLY)
        assert [each.name for each in os.scandir(descriptor)] == ["file"]  # closes a copy of it
        os.close(descriptor)
        pipe = os.pipe()
        os.write(pipe[1], b"1234")
        for each in pipe:
            os.close(each)

    assert watched.files[folder]["POSIX_WRITES"] == 0


def test_a_file_that_is_opened_anew_by_its_descriptor_has_its_name(data):
    with Profile(only=[data.parent]) as watched, data.open("rb") as file:
        again = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
        os.read(again, 100)
        os.close(again)

    counters = watched.files[str(data)]
    assert (counters["POSIX_OPENS"], counters["POSIX_BYTES_READ"]) == (2, 100)


def test_errors_are_kept_with_their_number(data):
    with Profile(only=[data.parent]) as watched:
        for path in (data.with_name("missing"), data / "below"):
            with pytest.raises(OSError, match=path.name):
                os.open(path, os.O_RDONLY)

    assert watched.events["error"].tolist() == [errno.ENOENT, errno.ENOTDIR]
    assert all(not any(counters.values()) for counters in watched.files.values())  # what failed is not counted


def test_names_are_bytes_and_paths_absolute(data, monkeypatch):
    monkeypatch.chdir(data.parent)
    odd = os.fsdecode(b"\xff\xfe odd")

    with Profile(only=[data.parent]) as watched, opened(odd, os.O_CREAT | os.O_WRONLY), opened(".") as folder:
        os.stat("./file")  # noqa: PTH116 - Path would take the dot away
        os.close(os.open("file", os.O_RDONLY, dir_fd=folder))

    assert list(watched.files) == [str(data.parent / odd), str(data.parent), str(data)]


def test_a_child_is_not_in_the_window_and_may_have_its_own(data):
    with Profile(only=[data]) as watched:
        pid = os.fork()
        if not pid:
            code = 1
            with contextlib.suppress(BaseException):
                with contextlib.suppress(ProfilerError):
                    watched.stop()
                    os._exit(2)
                watched.__exit__(None, None, None)
                with Profile(only=[data]) as own:
                    data.read_bytes()
                code = 0 if returned(own, "read") == 10_000 and own.window.process == os.getpid() else 3
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        with opened(data) as descriptor:
            subprocess.run(["true"], stdin=descriptor, close_fds=True, check=True)  # by vfork

    assert calls(watched)["open"] == calls(watched)["close"] == 1


_READ = ("0", "63")  # number of the system call: x86-64, aarch64


def test_a_call_that_is_under_way_at_the_end_is_in_no_window(data):
    ours, theirs = os.pipe()
    began = threading.Event()

    def waiting():
        began.set()
        os.read(ours, 1)

    thread = threading.Thread(target=waiting)
    first, second = Profile(), Profile()
    with first:
        thread.start()
        began.wait()
        while Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()[:2] not in (
            [n, hex(ours)] for n in _READ
        ):
            time.sleep(0.001)
    with second:
        os.write(theirs, b"x")
        thread.join()
    for descriptor in (ours, theirs):
        os.close(descriptor)

    assert "pipe" not in first.files
    assert second.files["pipe"]["POSIX_BYTES_WRITTEN"] == 1
    assert "POSIX_READS" not in {name for name, value in second.files["pipe"].items() if value}


def _event(called, start, end, **others):
    event = np.zeros(1, EVENT)
    event["operation"], event["start"], event["end"] = OPERATIONS.index(called), start, end
    for name, value in others.items():
        event[name] = value
    return event


def test_a_call_that_began_later_and_ended_earlier_does_not_end_its_kind():
    events, counters = (
        np.concatenate([_event("open", 1, 9), _event("open", 2, 3), _event("open", 8, 11)]),
        np.zeros(1, COUNTERS),
    )

    load_library().profiler_count(events.ctypes.data, 3, counters.ctypes.data, 1)

    assert (counters["open_start"], counters["open_end"], counters["meta_time"]) == (1, 11, 10)


@pytest.mark.parametrize("wrong", [{"file": 1}, {"file": -1}, {"operation": 999}])
def test_events_that_cannot_be_count_for_nothing_and_are_an_error(wrong):
    events, counters = _event("stat", 1, 2, **wrong), np.zeros(2, COUNTERS)

    load_library().profiler_count(events.ctypes.data, 1, counters.ctypes.data, 1)

    assert not counters.view(np.uint8).any()
    with pytest.raises(ValueError, match="do not match its files"):
        checked_events(events, 1)


def test_a_child_may_open_windows_whatever_its_parents_threads_do():
    held, done = threading.Event(), threading.Event()

    def holds():
        with profile.LOCK:
            held.set()
            done.wait()

    thread = threading.Thread(target=holds)
    thread.start()
    held.wait()
    if not (pid := os.fork()):
        signal.alarm(20)
        with contextlib.suppress(BaseException), Profile(events=10):
            os._exit(0)
        os._exit(1)
    done.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0


def test_a_window_has_what_the_kernel_fetched_for_the_process(disk):
    path = disk / "large"
    path.write_bytes(os.urandom(5_000_000))
    fetched = []
    for policy in ("cold", "warm"):
        if policy == "cold":
            page_cache.drop_from_cache([path], [path], disk)
        with Profile("counters", only=[disk]) as seen:
            path.read_bytes()
        fetched.append(seen.window.device_bytes)

    assert fetched[0] >= 5_000_000
    assert fetched[1] < 500_000
