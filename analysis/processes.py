"""Helper processes that share long work with this process."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

from analysis.errors import AnalysisError

Job = TypeVar("Job")
Result = TypeVar("Result")
Task = tuple[Callable[[Any], Any], Sequence[Any]]
"""The function to call with each job, and the jobs."""

MOST = 4
# A process that is spawned imports pandas and matplotlib anew, which takes two seconds; macOS has libraries that do not
# outlive a fork.
_CONTEXT: Any = get_context("fork" if sys.platform == "linux" else "spawn")
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Helpers:
    """Helper processes that run from `start` to the end of the context and share the memory that exists at `start`.

    They need no thread of this process, so that more can be forked at any time. A helper takes the next job as soon as
    it has finished one, and does not wait until its result is fetched.
    """

    def __init__(self) -> None:
        self._begun: Any = None  # how many jobs were begun, in memory that all processes share
        self._processes: list[Any] = []
        self._pipes: list[connection.Connection] = []

    def start(self, task: Task | None = None) -> None:
        """Start a helper for each processor but one (at most `MOST` - 1); without a task they wait for `send`."""
        gc.freeze()  # existing objects stay: no process searches them for garbage
        others = min(processor_count(), MOST) - 1
        self._begun = _CONTEXT.Value("l", 0) if others else None
        for _ in range(others):
            ours, theirs = _CONTEXT.Pipe()
            self._processes.append(_CONTEXT.Process(target=_help, args=(theirs, self._begun, task), daemon=True))
            self._processes[-1].start()
            theirs.close()
            self._pipes.append(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def __bool__(self) -> bool:
        return bool(self._processes)

    def send(self, task: Task) -> None:
        """Send the task, pickled, to the helpers; raise AnalysisError if one of them was killed."""
        with _reported():
            for pipe in self._pipes:
                pipe.send(task)

    def results(self, task: Task) -> Iterator[Any]:
        """Run the jobs that no helper has begun, then yield the results of all jobs in order.

        Raises AnalysisError if a helper was killed.
        """
        work, jobs = task
        done: dict[int, Any] = {}
        while (place := _next(self._begun)) < len(jobs):
            done[place] = work(jobs[place])
            self._collect(done, 0)
        for place in range(len(jobs)):
            while place not in done:
                self._collect(done, None)
            yield done.pop(place)

    def _collect(self, done: dict[int, Any], timeout_s: float | None) -> None:
        """Add the results that have arrived; raise the error of a job that failed."""
        ready: Sequence[Any] = connection.wait(self._pipes, timeout_s)
        for pipe in ready:
            with _reported():
                place, result, error = pipe.recv()
            if error:
                raise error
            done[place] = result


@contextmanager
def spread_jobs(
    work: Callable[[Job], Result], jobs: Sequence[Job], worth: int, helpers: Helpers | None = None
) -> Iterator[Iterator[Result]]:
    """Yield an iterator over the results of all jobs, in order; from `worth` jobs on, helper processes take part.

    Helpers begin at once, this process when the first result is fetched: it can do other work before. They are the
    waiting `helpers`, or else new processes, which inherit the task instead of receiving it.
    """
    task = work, jobs
    if len(jobs) < worth or processor_count() == 1 or (helpers is not None and not helpers):
        yield map(work, jobs)
    elif helpers:
        helpers.send(task)
        yield helpers.results(task)
    else:
        with Helpers() as new:
            new.start(task)
            yield new.results(task)


def processor_count() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Switch garbage collection off within the context, which makes millions of lasting objects; ignore these later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _reported() -> Iterator[None]:
    """Raise AnalysisError if a helper process is gone."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise AnalysisError("a process of the analysis was killed", "there may be too little memory") from error


def _next(begun: Any) -> int:
    """Return the index of the first job that nobody has begun."""
    with begun.get_lock():
        begun.value += 1
        return int(begun.value) - 1


def _help(pipe: connection.Connection, begun: Any, task: Task | None) -> None:
    """Run the jobs of a task in this helper; send the index of each job with its result or its error.

    Ctrl-C is handled by the parent process; on Linux the helper ends when the parent is killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    results: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_send, args=(pipe, results), daemon=True).start()
    work, jobs = task or pipe.recv()
    while (place := _next(begun)) < len(jobs):
        try:
            results.put(pickle.dumps((place, work(jobs[place]), None), 5))
        except Exception as error:  # noqa: BLE001 - the process that waits for the result raises it
            results.put(pickle.dumps((place, None, error)))
    signal.pause()


def _send(pipe: connection.Connection, results: SimpleQueue[bytes]) -> None:
    while True:
        pipe.send_bytes(results.get())
