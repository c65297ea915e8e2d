"""Several processes for what takes long: others beside this one, which does its part, too."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Lock
from typing import Any, TypeVar

from analysis.errors import AnalysisError

Job = TypeVar("Job")
Result = TypeVar("Result")

MOST = 4
# A process that is spawned imports pandas and matplotlib anew, which takes two seconds; macOS has libraries that do not
# outlive a fork.
START = "fork" if sys.platform == "linux" else "spawn"
_PR_SET_PDEATHSIG = 1  # prctl(2)


@contextmanager
def spread(work: Callable[[Job], Result], jobs: Sequence[Job], worth: int) -> Iterator[Iterator[Result]]:
    """Do jobs, from so many that it is `worth` it in processes beside this one, too; results come in the jobs' order.

    The processes begin at once, this one when the first result is asked for: it can do other work before. A process has
    the `work` once, with all that is bound to it, and not with each job.

    Raises
    ------
    AnalysisError
        If one of the processes was killed.
    """
    beside = min(processors(), MOST) - 1
    if len(jobs) < worth or not beside:
        yield map(work, jobs)
        return
    gc.freeze()  # what there is now stays: no process searches it for garbage
    with ProcessPoolExecutor(beside, get_context(START), _begin, (work,)) as pool:
        shared = _Shared(pool, jobs)
        for _ in range(beside):
            shared.begin()
        try:
            yield _finish(work, jobs, shared)
        except BrokenProcessPool as error:
            raise AnalysisError("a process of the analysis was killed", "there may be too little memory") from error


def processors() -> int:
    """Return on how many processors this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def keeping() -> Iterator[None]:
    """Look for no garbage while what is made stays, millions of parts maybe, and for none among it afterwards."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Shared:
    """The jobs that nobody has begun: a process is given the first one when it has none, this one takes the last.

    (A pool that is given all jobs at once has more of them on their way to a process than that process works at.)
    """

    def __init__(self, pool: ProcessPoolExecutor, jobs: Sequence[Any]) -> None:
        self._pool, self._jobs, self._lock = pool, jobs, Lock()
        self._left = deque(range(len(jobs)))
        self.begun: dict[int, Future[Any]] = {}

    def begin(self, ended: Future[Any] | None = None) -> None:
        """Give a process a job in the place of one that has ended; none where it failed."""
        if ended and ended.exception():
            return
        with self._lock:
            if not self._left:
                return
            place = self._left.popleft()
            try:
                future = self._pool.submit(_done, self._jobs[place])
            except RuntimeError as error:  # the pool is broken, or nobody waits for it any more
                future = Future()
                future.set_exception(error)
            self.begun[place] = future
        future.add_done_callback(self.begin)

    def take(self) -> int | None:
        """Take the place of the last job; None where all are begun, and `begun` has those of other processes."""
        with self._lock:
            return self._left.pop() if self._left else None


def _finish(work: Callable[[Job], Result], jobs: Sequence[Job], shared: _Shared) -> Iterator[Result]:
    """Do here, from the last, what no process has begun; then yield all results in their order."""
    mine = {}
    while (place := shared.take()) is not None:
        mine[place] = work(jobs[place])
    for place in range(len(jobs)):
        yield mine.pop(place) if place in mine else shared.begun.pop(place).result()


_works: list[Callable[[Any], Any]] = []
"""What this process does with each job, where another one has started it."""


def _done(job: Any) -> Any:
    return _works[-1](job)


def _begin(work: Callable[[Any], Any]) -> None:
    """Take the work; leave Ctrl-C to the process that started this one, and look for no garbage: the work does.

    A process that is forked ends when that one is killed: it has its locks, too.
    """
    _works.append(work)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    if START == "fork":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
