"""A sleep that says how late it ended."""

import errno
import os
import re
import resource
import select
import signal
import threading
import time
from pathlib import Path

import pytest

from jobs.system import clock
from jobs.system.clock import Alarm
from tests.jobs.jobs_factory import other_process


def test_the_stamp_is_utc_in_milliseconds():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", clock.utc_now())


@pytest.mark.parametrize(
    ("kernel_s", "clock_id"),
    [(clock.kernel_s, time.CLOCK_BOOTTIME), (lambda: clock.read_clocks()[2], time.CLOCK_MONOTONIC_RAW)],
)
def test_a_clock_of_the_kernel_is_read_in_seconds(kernel_s, clock_id):
    for _ in range(20):
        before, found, after = time.clock_gettime(clock_id), kernel_s(), time.clock_gettime(clock_id)

        assert before <= found <= after


@pytest.mark.parametrize(
    ("stamp", "is_utc"),
    [
        ("2026-11-23T23:59:59.999Z", True),
        ("2026-11-23T23:59:59.999", False),
        ("2026-11-23T23:59:59+00:00Z", False),
        ("9999-12-31T00:00:00Z", False),
        ("soon Z", False),
    ],
)
def test_a_stamp_is_known(stamp, is_utc):
    assert clock.is_utc(stamp) is is_utc


def test_all_clocks_are_read_at_the_moment_that_was_least_interrupted(monkeypatch):
    readings = iter([1.0, 1.5, 2.0, 2.001, 3.0, 3.2])
    kernel = iter([101.4, 51.4, 102.0, 52.0, 153.1, 93.1])
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    monkeypatch.setattr(clock, "kernel_s", lambda *_: next(kernel))

    assert clock.read_clocks() == (2.0, 102.0, 52.0)


def test_a_process_that_was_stopped_wakes_late_and_by_as_much():
    script = (
        "from jobs.system.clock import Alarm\n"
        "alarm = Alarm()\n"
        "print(flush=True)\n"
        "while (late_s := alarm.wait(0.5)) < 1.0:\n"
        "    pass\n"
        "print(late_s, flush=True)\n"
        "input()\n"
    )

    with other_process(script) as process:
        began_s = time.monotonic()
        while not select.select([process.stdout], [], [], 0.5)[0]:  # it may be stopped when it does not wait
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(process.pid, signal.SIGCONT)
        late_s = float(process.stdout.readline())

    assert 1.0 <= late_s <= time.monotonic() - began_s


def test_an_alarm_of_a_process_that_goes_on_is_not_late():
    alarm = Alarm()

    assert min(alarm.wait(0.001) for _ in range(100)) == 0.0
    alarm.close()


def test_a_process_without_a_descriptor_left_is_told_so():
    free = os.dup(0)
    os.close(free)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(OSError, match="timerfd_create") as caught:
            Alarm()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert caught.value.errno == errno.EMFILE


def test_whoever_waits_can_be_woken_and_nothing_stays_open():
    before = len([*Path("/proc/self/fd").iterdir()])
    alarm = Alarm()
    waiter = threading.Thread(target=alarm.wait, args=(3600.0,))
    waiter.start()

    while waiter.is_alive():  # it may not wait yet
        alarm.ring()
        waiter.join(0.01)

    alarm.close()
    assert not waiter.is_alive()
    assert len([*Path("/proc/self/fd").iterdir()]) == before
