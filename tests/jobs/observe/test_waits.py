"""What keeps the threads of a run from working, observed of real ones; and the limits on their reads and writes."""

import ctypes
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jobs.observe import io_limits as observer
from jobs.observe.waits import Waits
from jobs.system import io_limits, threads
from jobs.system.io_limits import Limit
from jobs.system.layers import Layers
from tests.jobs.jobs_factory import other_process

LIBC = ctypes.CDLL(None)
PATIENCE_S = 60


@dataclass
class Work:
    folders: tuple[Path, ...]
    below: Layers = field(default_factory=Layers)
    checkpoints: None = None


def observed(folder, until, action):
    """Observe a thread that does something, until the figures have what is waited for; return them."""
    watching, deadline = Waits({}, Work((folder,))), time.monotonic() + PATIENCE_S
    over = threading.Event()

    def work():
        while not over.is_set():
            action()

    thread = threading.Thread(target=work)
    watching.start()
    thread.start()
    while not until(watching.figures()["waits"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    over.set()
    thread.join()
    watching.stop(failed=False)
    return watching.figures()["waits"]


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

    assert "are not known" in found["error"]
    assert found["threads"] == {}
    assert found["alarms"] > 2


def test_a_process_that_is_stopped_counts_for_how_long(tmp_path):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.jobs.observe.test_waits import Waits, Work\n"
        "watching = Waits({}, Work((Path(sys.argv[1]),)))\n"
        "watching.start()\n"
        "print(flush=True)\n"
        "input()\n"
        "watching.stop(failed=False)\n"
        "print(watching.figures()['waits']['late_s'], flush=True)\n"
        "input()\n"
    )

    with other_process(script, str(tmp_path)) as process:
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.5)
        process.stdin.write("\n")
        process.stdin.flush()
        late_s = float(process.stdout.readline())

    assert late_s > 1.0


@pytest.mark.parametrize(
    ("per_s", "bounds", "counts"),
    [
        (163_000_000, {"read_mb_per_s": 163.0}, False),  # what makes the storage that slow
        (2_000_000, {"read_mb_per_s": 163.0}, True),
        (163_000_000, {"read_mb_per_s": None}, True),
        (163_000_000, None, True),
    ],
)
def test_a_limit_counts_unless_it_is_what_emulates_the_storage(per_s, bounds, counts, tmp_path, monkeypatch):
    limit = Limit("", "read_bps", per_s, "/group")
    monkeypatch.setattr(
        io_limits, "limits", lambda devices: [limit._replace(device=device.name) for device in devices[:1]]
    )
    monkeypatch.setattr(observer, "emulated", lambda _: bounds)
    watching = observer.IoLimits({}, Work((tmp_path,)))

    watching.start()
    watching.stop(failed=False)

    found = watching.figures()["io_limits"]
    if not found and counts:
        pytest.skip(f"{tmp_path} is on no block device: pass --basetemp on a disk")
    assert [(each["per_s"], each["group"]) for each in found] == [(per_s, "/group")] * counts
    assert all(each["reached_per_s"] >= 0 for each in found)
