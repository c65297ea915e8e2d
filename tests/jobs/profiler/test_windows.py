"""Windows: what belongs to which, what ends them, and what a program may do meanwhile."""

import contextlib
import errno
import mmap
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from jobs.events.posix_window import COUNTERS, EVENT, MODES, OPERATIONS, checked_events
from jobs.profiler import Profile, ProfilerError, attach, detach, profile
from jobs.profiler import hook_library as profile_memory
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


def test_no_memory_is_an_error_and_no_crash(monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(mmap, "mmap", full)

    with pytest.raises(ProfilerError, match="use fewer events or files"):
        Profile().start()


def test_names_are_found_again_when_there_are_more_than_the_first_table_holds(tmp_path):
    paths = [str(tmp_path / str(number)) for number in range(20_000)]
    for _ in range(2):
        with Profile(only=[tmp_path]) as profile:
            for path in paths:
                os.access(path, os.R_OK)
        assert list(profile.files) == paths


@pytest.mark.parametrize("mode", MODES)
def test_a_window_begins_empty_in_the_memory_of_the_one_before_whose_figures_stay(mode, data):
    counts, windows, spare = (200, 3, 20_000, 0, 7), [], []  # the third is too large to be copied
    names = [
        str(data.parent) + f"{number:015b}".replace("0", "/").replace("1", "/.") + "/file" for number in range(20_000)
    ]
    for count in counts:
        with Profile(mode, only=[data.parent], events=1 << 18, max_files=1 << 15) as watched:
            for name in names[:count] * 3:
                os.stat(name)  # noqa: PTH116 - Path would take the dots away
        windows.append(watched.window)
        spare += profile_memory.spare.values()

    assert [spare[0] is each for each in spare] == [True, True, False, False, False]
    assert spare[2] is spare[4]
    for window, count in zip(windows, counts, strict=True):
        assert window.counters["stats"].tolist() == [3] * count
        assert window.paths == names[:count]
        assert window.events is None or len(window.events) == 3 * count


@pytest.mark.long
def test_names_of_many_windows_need_no_more_room_than_those_of_one():
    for number in range(10):
        paths = [f"/nowhere/{number}/{'x' * 3900}/{place}" for place in range(16_000)]
        with Profile("counters", only=["/nowhere"]) as watched:
            for path in paths:
                os.access(path, os.R_OK)
        assert (watched.dropped, list(watched.files)) == (0, paths)  # 640 MB in all, and there is room for 512


@pytest.mark.parametrize("room", [{"events": 3}, {"max_files": 1}, {"mode": "counters", "max_files": 1}])
def test_what_finds_no_room_is_counted(room, data):
    with Profile(**room) as small, opened(data) as descriptor, opened(__file__):
        for _ in range(5):
            os.read(descriptor, 10)
        Path(__file__).stat()

    assert small.dropped > 0
    assert "dropped" in small.window.blind_spot()


def test_detaching_gives_every_slot_and_page_back(data):
    detach()
    mappings = Path("/proc/self/maps").read_text()
    libraries = [line.split() for line in mappings.splitlines() if line.endswith((".so", "python3.11"))]

    for _ in range(3):
        attach()
        detach()

    after = Path("/proc/self/maps").read_text()
    assert all(" ".join(line[:2]) in after for line in libraries)
    with Profile(only=[data], events=100) as watched:
        detach()
        data.read_bytes()
    assert len(watched.events) == 0


def test_readers_do_not_mind_a_hundred_attachments(data):
    stop, read, seen = threading.Event(), [0] * 4, 0

    def reading(place):
        with opened(data) as descriptor:
            while not stop.is_set():
                assert len(os.pread(descriptor, 100, 0)) == 100
                read[place] += 1

    threads = [threading.Thread(target=reading, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for round_ in range(100):
        detach()
        with Profile(only=[data], events=100_000, mode=MODES[round_ % 2]) as window:
            time.sleep(0)
        assert not window.dropped
        counters = window.window.counters
        assert counters["reads"].sum() * 100 == counters["bytes_read"].sum()
        seen += counters["reads"].sum()
        if window.events is not None:
            assert (window.events["returned"][window.events["operation"] == OPERATIONS.index("pread")] == 100).all()
            assert (window.events["end"] <= window.window.ended_ns).all()
    stop.set()
    for thread in threads:
        thread.join()

    assert all(read)
    assert 0 < seen <= sum(read)


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


def test_only_what_is_asked_for_is_kept_but_all_bytes_are_counted(data):
    with Profile(only=[data.parent / "fil"]) as none:
        data.read_bytes()
    with Profile(only=str(data.parent)) as all_:
        data.read_bytes()

    assert (len(none.files), len(all_.files)) == (0, 1)
    assert none.window.read_bytes == all_.window.read_bytes == 10_000


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


def test_what_the_profiler_reads_of_its_own_in_a_window_is_no_blind_spot():
    with Profile() as watched:
        detach()

    assert watched.window.read_bytes == watched.window.kernel_read_bytes > 0


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


def test_one_thread_at_a_time_opens_windows_or_detaches(monkeypatch):
    thread, asked = threading.Thread(target=detach), profile.process_bytes

    def meanwhile():
        if not thread.ident:
            thread.start()
            thread.join(0.05)
            assert thread.is_alive()
        return asked()

    monkeypatch.setattr(profile, "process_bytes", meanwhile)
    with Profile(events=1000):
        pass
    thread.join()


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


def _workload(folder):
    """Read forwards, backwards and by turns with writes; sizes on the edges of Darshan's bins."""
    for place, size in enumerate((0, 100, 101, 1024, 1025, 70_000)):
        path = folder / str(place)
        path.write_bytes(bytes(size))
        with opened(path, os.O_RDWR) as descriptor:
            for offset in (0, size // 2, 1, size, 5):
                os.pread(descriptor, size, offset)
            os.pwrite(descriptor, b"x" * 10, size)
            os.fsync(descriptor)
        np.save(folder / f"{place}.npy", np.zeros(size))
        path.rename(folder / f"{place}.bin")


def test_counters_are_those_that_a_trace_has(tmp_path):
    windows = []
    for mode in MODES:
        folder = tmp_path / "data"
        folder.mkdir()
        with Profile(mode=mode, only=[folder]) as watched:
            _workload(folder)
        windows.append(watched)
        folder.rename(tmp_path / mode)

    trace, counters = (
        {
            path: {k: v for k, v in each.items() if "_F_" not in k and "_TIME_" not in k}
            for path, each in w.files.items()
        }
        for w in windows
    )
    assert trace == counters
    assert len(trace) == 18
    big = trace[str(tmp_path / "data" / "5")]
    assert [big[f"POSIX_{name}"] for name in ("OPENS", "READS", "WRITES", "FSYNCS")] == [2, 5, 2, 1]
    assert (big["POSIX_SEQ_READS"], big["POSIX_CONSEC_READS"]) == (1, 1)
    assert (big["POSIX_SIZE_READ_10K_100K"], big["POSIX_SIZE_READ_0_100"]) == (4, 1)
    assert (big["POSIX_RW_SWITCHES"], big["POSIX_MAX_BYTE_WRITTEN"]) == (2, 70_009)
    assert big["POSIX_RENAME_SOURCES"] == trace[str(tmp_path / "data" / "5.bin")]["POSIX_RENAME_TARGETS"] == 1


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
