"""What keeps the threads of a run from working, observed of real ones; and the limits on their reads and writes."""

import ctypes
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs import checks
from jobs.checks import Limits
from jobs.observe import storages as observer
from jobs.observe import waits
from jobs.observe.waits import ThreadWaitsObserver
from jobs.system import cgroup, threads
from jobs.system.cgroup import IoLimit
from jobs.system.layers import Layers

LIBC = ctypes.CDLL(None)
PATIENCE_S = 60


@dataclass
class Work:
    folders: tuple[Path, ...]
    below: Layers = field(default_factory=Layers)
    checkpoints: None = None


def observed(folder, until, action):
    """Observe a thread that does something, until the figures have what is waited for; return them."""
    watching, deadline = ThreadWaitsObserver({}, Work((folder,))), time.monotonic() + PATIENCE_S
    over = threading.Event()

    def work():
        while not over.is_set():
            action()

    thread = threading.Thread(target=work)
    watching.start()
    thread.start()
    while not until(watching.metrics()["waits"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    over.set()
    thread.join()
    watching.stop(failed=False)
    return watching.metrics()["waits"]


def test_looks_meet_what_a_thread_does_and_name_the_function_of_the_kernel(tmp_path):
    (tmp_path / "file").write_bytes(bytes(100_000))

    def read_and_sleep():
        (tmp_path / "file").read_bytes()
        LIBC.usleep(300_000)

    found = observed(tmp_path, lambda waits: waits["threads"].get("asleep", 0) > 2, read_and_sleep)

    assert found["threads"]["asleep"] > 2
    assert sum(found["functions"].values()) == found["threads"]["asleep"]
    assert found["alarms"] >= found["looks"] > 0
    assert found["error"] is None
    assert found["cpu_s"] > 0


def test_a_user_who_is_told_nothing_of_threads_has_alarms_and_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_CALLS", None)

    found = observed(tmp_path, lambda waits: waits["alarms"] > 2, lambda: time.sleep(0.01))

    assert "are unknown" in found["error"]
    assert found["threads"] == {}
    assert found["alarms"] > 2


class Rings:
    """An alarm that was late by so many seconds, one time after the other, until somebody rings."""

    def __init__(self):
        self.late_s, self.rung, self.is_open = [0.0, 0.005, 0.006, 0.5], threading.Event(), True
        MADE.append(self)

    def wait(self, _seconds):
        return self.late_s.pop() if self.late_s else self.rung.wait()

    def ring(self):
        self.rung.set()

    def close(self):
        self.is_open = False


MADE = []


def test_an_alarm_is_late_by_more_than_hypervisors_take_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "Alarm", Rings)

    found = observed(tmp_path, lambda waits: waits["alarms"] == 4, lambda: time.sleep(0.01))

    assert (found["alarms"], found["late"], found["late_s"]) == (4, 2, pytest.approx(0.506))
    assert [alarm.is_open for alarm in MADE] == [False]


def test_where_the_kernel_does_not_tell_how_long_a_thread_was_ready_nothing_is_claimed(tmp_path, monkeypatch):
    def fail(*_):
        raise FileNotFoundError(0, "no schedstat")

    monkeypatch.setattr(Rings, "wait", fail)
    monkeypatch.setattr(waits, "Alarm", Rings)

    found = observed(tmp_path, lambda waits: waits["error"], lambda: time.sleep(0.01))

    assert "no schedstat" in found["error"]
    assert checks.undelayed({"waits": found, "elapsed_s": 1.0}, Limits())["passed"] is None


@pytest.mark.parametrize(
    ("per_s", "bounds", "counts"),
    [
        (163_000_000, {"read_mb_per_s": 163.0}, False),  # what makes the storage that slow
        (162_999_999, {"read_mb_per_s": 163.0}, True),
        (2_000_000, {"read_mb_per_s": 163.0}, True),
        (163_000_000, {"read_mb_per_s": None}, True),
        (163_000_000, None, True),
    ],
)
def test_a_limit_counts_unless_it_is_what_emulates_the_storage(per_s, bounds, counts, tmp_path, monkeypatch):
    limit = IoLimit("", "read_bps", per_s, "/group")
    monkeypatch.setattr(
        cgroup, "io_limits", lambda devices: [limit._replace(device=device.name) for device in devices[:1]]
    )
    monkeypatch.setattr(observer, "emulated_storage", lambda _: bounds)
    watching = observer.IoLimitsObserver({}, Work((tmp_path,)))

    watching.start()
    watching.stop(failed=False)

    found = watching.metrics()["io_limits"]
    if not found and counts:
        pytest.skip(f"{tmp_path} is on no block device: pass --basetemp on a disk")
    assert [(each["per_s"], each["group"]) for each in found] == [(per_s, "/group")] * counts
