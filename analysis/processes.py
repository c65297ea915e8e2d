"""Several processes for what takes long: others beside this one, which does its part, too."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
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
        try:
            yield _finish(work, jobs, [pool.submit(_done, job) for job in jobs])
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


def _finish(work: Callable[[Job], Result], jobs: Sequence[Job], begun: Sequence[Future[Result]]) -> Iterator[Result]:
    """Do here, from the last, what no process has begun; then yield all results in their order."""
    mine = {place: work(jobs[place]) for place in reversed(range(len(jobs))) if begun[place].cancel()}
    for place, future in enumerate(begun):
        yield mine[place] if place in mine else future.result()


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
