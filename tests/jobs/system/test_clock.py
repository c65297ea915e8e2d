import re
import time

from jobs.system import clock


def test_the_stamp_is_utc_in_milliseconds():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", clock.utc_now())


def test_all_clocks_are_read_at_the_moment_that_was_least_interrupted(monkeypatch):
    readings = iter([1.0, 1.5, 2.0, 2.001, 3.0, 3.2])
    kernel = iter([101.4, 51.4, 102.0, 52.0, 103.1, 53.1])
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    monkeypatch.setattr(clock, "kernel_s", lambda *_: next(kernel))

    assert clock.moment() == (2.0, 102.0, 52.0)
