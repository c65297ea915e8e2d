"""Signals that end a worker."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class WorkerStoppedError(BaseException):
    """A signal ended the worker: SIGTERM (Ctrl-C in front of it, scancel, preemption), SIGUSR2 (time limit near)."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__(number)
        self.time_is_up = number == signal.SIGUSR2


@contextmanager
def stoppable(*, slurm: bool) -> Iterator[None]:
    """Turn the signals that end a worker into an exception, so that the run under way is recorded as interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        for each in before:  # a second one must not interrupt the recording of the first
            signal.signal(each, signal.SIG_IGN)
        raise WorkerStoppedError(number)

    numbers = [signal.SIGTERM, *([signal.SIGUSR2] if slurm else [])]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
