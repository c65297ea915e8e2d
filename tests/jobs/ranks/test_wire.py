"""Lines between ranks: who is silent, slow or gone is told apart."""

import errno
import itertools

import pytest

from jobs.ranks.wire import ClosedError, Line


class Socket:
    """One that gives a byte at each read, or fails."""

    def __init__(self, error=None):
        self.error, self.timeout = error, None

    def setsockopt(self, *_):
        pass

    def settimeout(self, seconds):
        self.timeout = seconds

    def recv(self, _most):
        if self.error:
            raise self.error
        return b" "


def test_who_sends_a_byte_now_and_then_is_waited_for_no_longer_than_who_is_silent(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr("jobs.ranks.wire.time.monotonic", lambda: float(next(clock)))
    slow = Socket()

    with pytest.raises(TimeoutError):
        Line(slow).receive(5.0)

    assert next(clock) < 10
    assert slow.timeout == 5.0  # for what is sent next


def test_a_line_that_the_kernel_has_given_up_is_closed_and_one_that_is_silent_is_not():
    lost, silent = TimeoutError(errno.ETIMEDOUT, "Connection timed out"), TimeoutError("timed out")

    with pytest.raises(ClosedError, match="Connection timed out"):
        Line(Socket(lost)).receive(5.0)
    with pytest.raises(TimeoutError) as told:
        Line(Socket(silent)).receive(5.0)
    assert not isinstance(told.value, ClosedError)
