import re
import time

import pytest

from jobs.system import clock


def test_the_stamp_is_utc_in_milliseconds():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", clock.utc_now())


@pytest.mark.parametrize(
    ("kernel_s", "clock_id"),
    [(clock.kernel_s, time.CLOCK_BOOTTIME), (lambda: clock.moment()[2], time.CLOCK_MONOTONIC_RAW)],
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

    assert clock.moment() == (2.0, 102.0, 52.0)
