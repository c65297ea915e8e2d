"""Spread long work over this process and helper processes."""

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
"""A function and the jobs: the function is called once with each job as the argument."""

MOST = 4
"""The maximum number of processes that share the work, this process included."""
# Helpers are forked on Linux, because a spawned process needs two seconds to import pandas and matplotlib again.
# Helpers are spawned on macOS, where some system libraries do not work in a forked process.
_CONTEXT: Any = get_context("fork" if sys.platform == "linux" else "spawn")
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Helpers:
    """Helper processes that run from the call of `start` to the end of the `with` block.

    The helpers share the memory that exists when `start` is called. This process uses no threads for the helpers, so
    that this process can be forked again at any time. A helper that has finished a job takes the next job at once,
    before this process fetches the result.
    """

    def __init__(self) -> None:
        self._begun: Any = None  # the number of jobs that were begun, in memory that all processes share
        self._processes: list[Any] = []
        self._pipes: list[connection.Connection] = []

    def start(self, task: Task | None = None) -> None:
        """Start one helper per processor except for one processor, at most `MOST` - 1 helpers.

        Helpers that are started without a task wait until `send` is called.
        """
        gc.freeze()  # no process needs to search the existing objects for garbage, because they are not deleted
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
        """Pickle the task and send it to all helpers; raise AnalysisError if a helper was killed."""
        with _reported():
            for pipe in self._pipes:
                pipe.send(task)

    def results(self, task: Task) -> Iterator[Any]:
        """Run the jobs that no helper has begun, then yield the results of all jobs in the order of the jobs.

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
        """Add the results that helpers have sent to `done`; raise the error of a job that failed."""
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
    """Yield an iterator over the results of all jobs, in the order of the jobs.

    If there are at least `worth` jobs, helper processes run jobs too. Helper processes begin at once. This process
    begins when the first result is fetched, so that this process can do other work before.

    The jobs are sent to the processes in `helpers`, which wait for a task. If `helpers` is None, new processes are
    started, which inherit the task from this process.
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
    """Switch garbage collection off inside the `with` block, which creates millions of objects and deletes few.

    After the block, garbage collection ignores the objects that exist then (`gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def _reported() -> Iterator[None]:
    """Raise AnalysisError if the pipe to a helper process is closed, which means that the helper was killed."""
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise AnalysisError("a process of the analysis was killed", "there may be too little memory") from error


def _next(begun: Any) -> int:
    """Return the index of the first job that no process has begun, and count this job as begun."""
    with begun.get_lock():
        begun.value += 1
        return int(begun.value) - 1


def _help(pipe: connection.Connection, begun: Any, task: Task | None) -> None:
    """Run jobs of a task in this helper process, and send the index and the result or error of each job.

    The helper ignores Ctrl-C, because the parent process handles Ctrl-C. On Linux the helper ends when the parent
    process is killed.
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
        except Exception as error:  # noqa: BLE001 - the parent process raises the error
            results.put(pickle.dumps((place, None, error)))
    signal.pause()


def _send(pipe: connection.Connection, results: SimpleQueue[bytes]) -> None:
    while True:
        pipe.send_bytes(results.get())
