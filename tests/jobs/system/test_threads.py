"""What threads do: real ones that sleep, wait, are held by a virus scanner, or wait for a device that is idle."""

import contextlib
import ctypes
import os
import platform
import threading
import time
from pathlib import Path

import pytest

from jobs.system import clock, threads
from jobs.system.threads import ASLEEP, IDLE_DEVICE, RUNNING, STOPPED_BY_OTHER, STORAGE, WORK, Threads
from tests.lies import groups, setup
from tests.lies.disturbances import held
from tests.lies.disturbances.disturbance import ALL, Place
from tests.lies.lie import MissingError

LIBC = ctypes.CDLL(None)
PATIENCE_S = 60


@contextlib.contextmanager
def at(folder, action, *, seen=True):
    """Look at a thread that does something over and over; yields a function that says what it does, and its number."""
    over = threading.Event()
    looking = Threads([folder], seen=seen)

    def work():
        while not over.is_set():
            action()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: looking._wait_of(str(thread.native_id), threads._CALLS), thread.native_id  # noqa: SLF001
    finally:
        over.set()
        thread.join()


def met(look, kind):
    """Return the first look that meets a state."""
    deadline = time.monotonic() + PATIENCE_S
    while (wait := look()).kind != kind:
        assert time.monotonic() < deadline, wait
        time.sleep(0.001)
    return wait


def read_and_sleep(folder):
    (folder / "file").read_bytes()
    LIBC.usleep(200_000)


def test_a_thread_that_reads_and_sleeps_is_asleep(tmp_path):
    (tmp_path / "file").write_bytes(bytes(100_000))

    with at(tmp_path, lambda: read_and_sleep(tmp_path)) as (look, _):
        assert met(look, ASLEEP)


def test_on_a_machine_whose_calls_are_not_known_nothing_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_CALLS", None)

    with pytest.raises(PermissionError, match="are unknown"):
        next(Threads([tmp_path]).list_waits())


def look_and_sleep():
    threads._read_bytes("self")  # noqa: SLF001 - of some 100 bytes
    LIBC.usleep(200_000)


@pytest.mark.parametrize(
    "action",
    [look_and_sleep, lambda: LIBC.usleep(200_000), lambda: clock.wait(0.2), lambda: threading.Event().wait(0.2)],
)
def test_who_reads_nothing_may_sleep_and_who_waits_for_a_lock_waits_for_work(action, tmp_path):
    with at(tmp_path, action) as (look, _):
        assert met(look, WORK)
        assert {look().kind for _ in range(50)} <= {WORK, RUNNING}


@pytest.mark.parametrize(
    ("call", "file", "kind"),
    [
        ("clock_nanosleep", "", ASLEEP),
        ("futex", "", WORK),
        ("poll of nothing", "", ASLEEP),
        ("poll of one", "", WORK),
        ("open", "", IDLE_DEVICE),
        ("read", "data", IDLE_DEVICE),
        ("read", "pipe", WORK),
        ("write", "data", STORAGE),
        ("page fault", "", STORAGE),
        ("read", "closed", WORK),
    ],
)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_the_call_that_a_thread_waits_in_says_what_for(call, file, kind, tmp_path, monkeypatch):
    numbers = {"clock_nanosleep": 230, "futex": 202, "open": 257, "read": 17, "write": 18, "page fault": -1}
    monkeypatch.setattr(threads, "_read_bytes", lambda _: 100_000)
    looking = Threads([tmp_path])
    looking._bytes_before = {}  # noqa: SLF001 - it has read since
    (tmp_path / "data").touch()
    with (tmp_path / "data").open("rb") as data:
        reader, writer = os.pipe()
        files = {"data": data.fileno(), "pipe": reader, "closed": 10**6, "": 0}
        words = {"poll of nothing": [7, 0, 0], "poll of one": [7, 0, 1]}.get(call) or [numbers[call], files[file], 0]

        assert looking._classify_wait("1", words, threads._CALLS) == kind  # noqa: SLF001
        os.close(reader)
        os.close(writer)


def test_where_the_kernel_has_no_such_file_a_look_fails_and_a_thread_that_has_ended_is_left_out(tmp_path, monkeypatch):
    def fail(name, _):
        raise FileNotFoundError(name)

    looking, over = Threads([tmp_path]), threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    monkeypatch.setattr(threads, "_read_thread_file", fail)
    with pytest.raises(FileNotFoundError):
        list(looking.list_waits())
    over.set()
    thread.join()
    while Path("/proc/self/task", str(thread.native_id)).exists():  # Python has joined it before the kernel ends it
        time.sleep(0.01)
    monkeypatch.setattr(threads, "_thread_names", lambda: [str(thread.native_id)])
    assert list(looking.list_waits()) == []


@pytest.fixture
def place(tmp_path):
    """Return a disk with a few files of its own."""
    with contextlib.ExitStack() as stack:
        try:
            disk = setup.disk(stack, tmp_path / "disk.img", tmp_path / "disk", direct=True)
        except MissingError as error:
            pytest.skip(str(error))
        paths = [disk.point / "set" / f"{number}" for number in range(4)]
        paths[0].parent.mkdir()
        for path in paths:
            path.write_bytes(bytes(100_000))
        os.sync()
        yield Place(stack, tmp_path, paths, disk.device)


def read_anew(paths):
    for path in paths:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()


def test_a_thread_whose_open_a_virus_scanner_holds_is_held(place):
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(ALL[held.scanner.__name__].around(place))
        except MissingError as error:
            pytest.skip(str(error))
        look, _ = stack.enter_context(at(place.paths[0].parent, lambda: read_anew(place.paths)))

        assert "fanotify" in met(look, STOPPED_BY_OTHER).function


def test_a_thread_that_waits_for_a_device_with_nothing_to_do_shows_and_else_it_waits_for_storage(place):
    with contextlib.ExitStack() as stack, at(place.paths[0].parent, lambda: read_anew(place.paths)) as (look, thread):
        assert met(look, STORAGE)
        assert sum(look().kind == IDLE_DEVICE for _ in range(300)) < 3

        try:
            group = groups.made(stack, f"tfio-test-{os.getpid()}", "blkio")
        except MissingError as error:
            pytest.skip(str(error))
        limit = group / "blkio.throttle.read_bps_device"
        if not limit.exists():
            pytest.skip("threads alone cannot be moved to a group of version 2")
        limit.write_text(f"{place.number} 1000000")
        (group / "tasks").write_text(str(thread))

        assert met(look, IDLE_DEVICE)
        with at(place.paths[0].parent, lambda: read_anew(place.paths), seen=False) as (unseeing, other):
            (group / "tasks").write_text(str(other))
            kinds = set()
            for _ in range(300):
                kinds.add(unseeing().kind)
                time.sleep(0.002)
            assert STORAGE in kinds
            assert IDLE_DEVICE not in kinds
            limit.write_text(f"{place.number} 0")
