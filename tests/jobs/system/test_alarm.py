"""A sleep that says how late it ended."""

import errno
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from jobs.system.alarm import Alarm
from tests.jobs.jobs_factory import other_process


def test_a_process_that_was_stopped_wakes_late_and_by_as_much():
    script = (
        "from jobs.system.alarm import Alarm\n"
        "alarm = Alarm()\n"
        "print(flush=True)\n"
        "print(alarm.wait(2.0), flush=True)\n"
        "input()\n"
    )

    with other_process(script) as process:
        time.sleep(1.0)  # it waits now
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(3.0)
        os.kill(process.pid, signal.SIGCONT)
        late_s = float(process.stdout.readline())

    assert late_s > 1.0


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
